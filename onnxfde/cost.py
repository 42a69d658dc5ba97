"""What a run costs on paper: multiply-adds of its products, and the weights it reads.

A product costs (values it makes) × (values that each is summed from).
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from onnxfde.graph import (
    FLOATS,
    Dims,
    ModelProto,
    NodeProto,
    attributes,
    bodies,
    inferred_dims,
    keyed_tensors,
)

MATRIX = {"Gemm": 0, "MatMul": 0, "MatMulInteger": 0, "QLinearMatMul": 0}
WINDOW = {"Conv": 1, "ConvInteger": 1, "QLinearConv": 3, "ConvTranspose": 1}
"""The input whose shape says how many values are summed."""
RESCALED = {"DequantizeLinear": 1, "QuantizeLinear": 1, "MatMulInteger": 2, "ConvInteger": 2}
"""Where the scales and zero points begin among a node's inputs."""
QUANTIZED, SCALE = "_quantized", "_scale"
"""How onnxruntime's quantizer names a weight and a scale that it multiplies with later."""


def multiply_adds(model: ModelProto, inputs: Mapping[str, Dims]) -> int | None:
    """Multiply-adds of matrix products and convolutions in one run.

    None where a shape is unknown, or nodes hide in functions or in the bodies of other nodes.
    """
    if model.functions or any(body for node in model.graph.node for body in bodies(node)):
        return None
    known, total = inferred_dims(model, inputs), 0
    for node in model.graph.node:
        if node.op_type in MATRIX or node.op_type in WINDOW:
            cost = product_cost(node, known)
            if cost is None:
                return None
            total += cost
    return total


def product_cost(node: NodeProto, known: Mapping[str, Dims]) -> int | None:
    """Multiply-adds of one product."""
    operand = known.get(node.input[{**MATRIX, **WINDOW}[node.op_type]], (None,))
    made = known.get(node.input[0] if node.op_type == "ConvTranspose" else node.output[0], (None,))
    if node.op_type in WINDOW:
        summed = operand[1:]
    else:
        summed = operand[:1] if attributes(node).get("transA") else operand[-1:]
    lengths = [d for d in (*made, *summed) if isinstance(d, int)]
    return math.prod(lengths) if len(lengths) == len(made) + len(summed) else None


def stored_weights(model: ModelProto) -> int:
    """Weights in whatever type they are stored; scales and zero points do not count."""
    steps, whole = set(), set()
    for node in model.graph.node:
        first = RESCALED.get(node.op_type)
        steps |= set(node.input[first:] if first else ())
        whole |= set(node.input[:first] if first else ())
    steps |= {name.removesuffix(QUANTIZED) + SCALE for name in whole if name.endswith(QUANTIZED)}
    return sum(
        math.prod(tensor.dims)
        for _, tensor in keyed_tensors(model)
        if tensor.dims
        and tensor.name not in steps
        and (tensor.data_type in FLOATS or tensor.name in whole)
    )
