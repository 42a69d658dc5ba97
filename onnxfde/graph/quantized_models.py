"""Models whose weights and values are integers already, as quantizers leave them."""

from __future__ import annotations

from onnxfde.graph.protos import ModelProto

QUANTIZERS = {"QuantizeLinear", "DynamicQuantizeLinear", "DequantizeLinear"}
"""Operators that only a quantized model has."""
INTEGER_PRODUCTS = {"ConvInteger", "MatMulInteger", "QLinearConv", "QLinearMatMul"}
"""Products of integers."""


def is_quantized(model: ModelProto) -> bool:
    """Whether a model has such operators, of onnx or of a runtime."""
    return any(node.op_type in QUANTIZERS | INTEGER_PRODUCTS for node in model.graph.node)
