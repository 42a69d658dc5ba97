"""The shapes of values: what a model says, and what onnx can infer."""

from __future__ import annotations

from collections.abc import Mapping

import onnx
import onnx.shape_inference
from onnx.shape_inference import InferenceError as ShapeError

from onnxfde.graph.protos import ModelProto, ValueInfoProto
from onnxfde.graph.tensors import copy_of

__all__ = ["Dims", "ShapeError", "dims", "inferred_dims"]

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


def inferred_dims(model: ModelProto, inputs: Mapping[str, Dims]) -> dict[str, Dims]:
    """The shapes of all values that onnx can infer, for inputs of these shapes."""
    light = copy_of(model)
    for value in light.graph.input:
        if value.name in inputs:
            del value.type.tensor_type.shape.dim[:]
            for length in inputs[value.name]:
                value.type.tensor_type.shape.dim.add(dim_value=int(length or 0))
    for value in light.graph.output:
        value.type.tensor_type.ClearField("shape")
    del light.graph.value_info[:]
    try:
        known = onnx.shape_inference.infer_shapes(light, data_prop=True).graph
    except (ShapeError, RuntimeError, ValueError):
        return {}
    found = {t.name: tuple(t.dims) for t in known.initializer}
    values = (*known.input, *known.value_info, *known.output)
    return found | {v.name: dims(v) for v in values if v.type.tensor_type.HasField("shape")}
