"""onnx's own types, for rooms that do not import onnx themselves."""

from onnx import (
    AttributeProto,
    GraphProto,
    ModelProto,
    NodeProto,
    TensorProto,
    ValueInfoProto,
)

__all__ = [
    "AttributeProto",
    "GraphProto",
    "ModelProto",
    "NodeProto",
    "TensorProto",
    "ValueInfoProto",
]
