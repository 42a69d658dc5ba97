"""The shapes of values as a model says them."""

from __future__ import annotations

from onnx.shape_inference import InferenceError as ShapeError

from onnxfde.graph.protos import ValueInfoProto

__all__ = ["Dims", "ShapeError", "dims"]

Dims = tuple[int | str | None, ...]


def dims(value: ValueInfoProto) -> Dims:
    """The shape of a value: numbers, symbols, or None where it is unknown or below 0."""
    shape = value.type.tensor_type.shape
    return tuple(
        (d.dim_value if d.dim_value >= 0 else None)
        if d.HasField("dim_value")
        else (d.dim_param or None)
        for d in shape.dim
    )
