"""onnx's own types, for rooms that do not import onnx themselves."""

from onnx import GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto

__all__ = ["GraphProto", "ModelProto", "NodeProto", "TensorProto", "ValueInfoProto"]
