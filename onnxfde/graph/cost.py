"""The cost of one run, computed from shapes: multiply-adds of its products, and stored weights.

A product costs (values it makes) × (values that each is summed from), a recurrent layer (steps) ×
(batch) × (weights of its gates).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from onnxfde.graph.inferred_shapes import NOTHING, inferred_dims
from onnxfde.graph.model import Graph
from onnxfde.graph.nodes import attributes, is_standard, op
from onnxfde.graph.onnx_calls import KEEPS_SHAPE
from onnxfde.graph.protos import ModelProto, NodeProto
from onnxfde.graph.shapes import Dims
from onnxfde.graph.tensors import FLOATS, keyed_tensors

MATRIX = {"Gemm": 0, "MatMul": 0, "MatMulInteger": 0, "QLinearMatMul": 0}
WINDOW = {"Conv": 1, "ConvInteger": 1, "QLinearConv": 3, "ConvTranspose": 1}
"""The input whose shape says how many values are summed."""
RECURRENT = {"GRU", "LSTM", "RNN"}
WHOLE = {
    "QuantizeLinear": (0,),
    "DequantizeLinear": (0,),
    "MatMulInteger": (0, 1),
    "ConvInteger": (0, 1),
    "QLinearMatMul": (0, 3),
    "QLinearConv": (0, 3, 8),
    "QGemm": (0, 3, 6),
}
"""The inputs of integer operators that are values; the others are scales and zero points."""
UNCOUNTED = {"Attention", "DeformConv", "Einsum", "Scan", "Loop", "If"}
"""Operators that multiply in ways which are not counted here."""
NO_PRODUCTS = {
    *KEEPS_SHAPE,
    *(f"ai.onnx.ml.{kind}" for kind in ("ArrayFeatureExtractor", "LabelEncoder", "ZipMap")),
}
"""Operators of other domains that are known to hold no products."""
QUANTIZED, SCALE = "_quantized", "_scale"
"""How onnxruntime's quantizer names a weight and a scale that it multiplies with later."""


def multiply_adds(model: ModelProto, inputs: Mapping[str, Dims]) -> int | None:
    """Multiply-adds of matrix products and convolutions in one run.

    None where a shape is unknown or empty, or an operator multiplies in a way that is not counted.
    """
    if not is_counted(model):
        return None
    known, total = inferred_dims(model, inputs), 0
    for node in product_nodes(model):
        cost = product_cost(node, known)
        if not cost:
            return None
        total += cost
    return total


def is_counted(model: ModelProto) -> bool:
    """Whether all operators of a model multiply in ways that are counted here, or not at all."""
    kinds = {op(node) for node in model.graph.node if not is_standard(node)}
    return kinds <= NO_PRODUCTS and not UNCOUNTED & {node.op_type for node in model.graph.node}


def product_nodes(model: ModelProto) -> Iterator[NodeProto]:
    """Matrix products, convolutions and recurrent layers."""
    kinds = {*MATRIX, *WINDOW, *RECURRENT}
    return (node for node in model.graph.node if node.op_type in kinds)


def one_sample(graph: Graph, known: Mapping[str, Dims] = NOTHING) -> dict[str, Dims]:
    """The shapes of a model's inputs for one sample, of which some lengths may be known from data.

    Shapes of other values that are known stay. Other lengths that it leaves open are 1 or, if
    windows or steps move over them, not known: 1 would be fewer than a window has.
    """
    kinds = {node.op_type for node in graph.model.graph.node}
    moving = kinds & {*WINDOW, *RECURRENT} or any(kind.endswith("Pool") for kind in kinds)
    found = dict(known)
    for value in graph.inputs:
        lengths, seen = graph.shape(value.name) or (), known.get(value.name, ())
        seen = seen if len(seen) == len(lengths) else (None,) * len(lengths)
        others = ((None if moving else 1) if d is None else d for d in seen[1:])
        pairs = zip(lengths, (1, *others), strict=False)
        found[value.name] = tuple(d if isinstance(d, int) else other for d, other in pairs)
    return found


def lengths_needed(node: NodeProto) -> tuple[str, ...]:
    """The values whose shapes say what a product costs: what it sums over, and what it makes."""
    if node.op_type in RECURRENT:
        return tuple(node.input[:3])
    made = node.input[0] if node.op_type == "ConvTranspose" else node.output[0]
    return node.input[{**MATRIX, **WINDOW}[node.op_type]], made


def product_cost(node: NodeProto, known: Mapping[str, Dims]) -> int | None:
    """Multiply-adds of one product."""
    shapes = [known.get(name, (None,)) for name in lengths_needed(node)]
    if node.op_type in RECURRENT:
        return recurrent_cost(*shapes) if len(shapes) == 3 else None
    operand, made = shapes
    if node.op_type in WINDOW:
        summed = operand[1:]
    else:
        summed = operand[:1] if attributes(node).get("transA") else operand[-1:]
    return product_of_lengths([*made, *summed])


def recurrent_cost(read: Dims, weights: Dims, recurrence: Dims) -> int | None:
    """Multiply-adds of a recurrent layer, which reads steps × batch × features."""
    parts = [product_of_lengths([*read[:2], *each]) for each in (weights, recurrence)]
    return None if None in parts else sum(part or 0 for part in parts)


def product_of_lengths(lengths: Sequence[int | str | None]) -> int | None:
    """The product of lengths; None if one of them is not known."""
    known = [length for length in lengths if isinstance(length, int)]
    return math.prod(known) if len(known) == len(lengths) else None


def stored_weights(model: ModelProto) -> int:
    """The number of weights of any type; scales and zero points do not count."""
    steps: set[str] = set()
    whole: set[str] = set()
    for node in model.graph.node:
        values = WHOLE.get(node.op_type, ())
        for place, name in enumerate(node.input if values else ()):
            (whole if place in values else steps).add(name)
    steps |= {name.removesuffix(QUANTIZED) + SCALE for name in whole if name.endswith(QUANTIZED)}
    return sum(
        math.prod(tensor.dims)
        for _, tensor in keyed_tensors(model)
        if tensor.dims
        and tensor.name not in steps
        and (tensor.data_type in FLOATS or tensor.name in whole)
    )
