"""Reading one affine map, y = W x + b, and folding constants into it.

    y·s + t   →  (s W) x + (s b + t)          constants behind the map
    W (s·x + t) + b  →  (W s) x + (b + W t)   constants before it

A BatchNormalization is two such steps, x − mean and then its factor and bias.

`rows`: features on the last axis (Gemm, MatMul with the weight on the right); `columns`: features
on the second-last axis (MatMul with the weight on the left).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from onnxfde.graph.model import Constant, Graph
from onnxfde.graph.nodes import attributes, label, op
from onnxfde.graph.protos import NodeProto
from onnxfde.numbers import ROUNDOFF, FloatArray

Layout = Literal["rows", "columns"]
ELEMENTWISE = {"Mul", "Add", "Sub", "Div", "Neg", "Pow", "BatchNormalization"}
"""Operators that, with constants, can be folded into an affine map (Pow if the exponent is 1)."""
Line = tuple[FloatArray, FloatArray]
"""A factor and a term for each feature."""
NUMPY_BROADCASTING = 7
"""The opset since which elementwise operators broadcast as in numpy (ONNX)."""
NORMALIZATION_IN_TRAINING = 7
"""The opset before which BatchNormalization trains unless `is_test` is set (ONNX)."""
DEFAULT_EPSILON = float(np.float32(1e-5))
"""What BatchNormalization adds to the variance unless it says otherwise (ONNX)."""


class NoMatch(Exception):  # noqa: N818 - control flow inside this module, never an error
    """Carries the reason why a walk through the graph ended."""


@dataclass(frozen=True, eq=False)
class Affine:
    """One affine map: y = W x + b, its node, and the nodes with constants folded into it."""

    node: NodeProto
    layout: Layout
    weight: FloatArray
    bias: FloatArray
    dtype: np.dtype[Any]
    folded: tuple[NodeProto, ...] = ()
    carrier: NodeProto | None = None
    """The Add that holds the bias of a MatMul."""


def overridable_reason(name: str) -> str:
    """Why a weight that is also a graph input cannot be changed."""
    return (
        f"the weight '{name}' is also a graph input that a caller may override; take it off the "
        "graph's inputs to make it a constant"
    )


def affine(graph: Graph, node: NodeProto) -> Affine:
    """Read W and b of a Gemm or MatMul."""
    constants = [graph.is_constant(name) for name in node.input[:2]]
    if constants == [True, True] or not any(constants):
        overridable = [name for name in node.input if name in graph.overridable]
        if overridable:
            raise NoMatch(overridable_reason(overridable[0]))
        raise NoMatch(f"{node.op_type} '{label(node)}' does not have exactly one constant weight")
    layout: Layout = "rows" if constants[1] else "columns"
    found = graph.constant(node.input[1 if layout == "rows" else 0])
    if found is None or found.values.dtype.name not in ROUNDOFF:
        raise NoMatch(f"the weight of '{label(node)}' is not a floating-point tensor")
    if found.values.ndim != 2:
        raise NoMatch(f"the weight of '{label(node)}' is not a matrix but {found.values.shape}")
    if node.op_type == "Gemm":
        return gemm(graph, node, layout, found)
    if layout == "columns" and graph.rank(node.input[1]) is None:
        raise NoMatch(f"the rank of what '{label(node)}' multiplies from the left is not known")
    weight = found.array.T if layout == "rows" else found.array
    return Affine(node, layout, weight, np.zeros(len(weight)), found.values.dtype)


def gemm(graph: Graph, node: NodeProto, layout: Layout, found: Constant) -> Affine:
    """alpha·A·B + beta·C with A the activation."""
    options = attributes(node)
    if layout == "columns":
        raise NoMatch(f"the weight of Gemm '{label(node)}' is its first input")
    if options.get("transA", 0):
        raise NoMatch(f"Gemm '{label(node)}' transposes its activation (transA)")
    stored = found.array if options.get("transB", 0) else found.array.T
    weight = options.get("alpha", 1.0) * stored
    bias = np.zeros(len(weight))
    if len(node.input) > 2 and node.input[2]:
        name = node.input[2]
        if name in graph.overridable:
            raise NoMatch(overridable_reason(name))
        constant = graph.constant(name)
        if constant is None:
            raise NoMatch(f"C of Gemm '{label(node)}' is not a constant")
        bias = options.get("beta", 1.0) * per_feature(constant.array, len(weight), "rows", 2, name)
    return Affine(node, layout, np.ascontiguousarray(weight), bias, found.values.dtype)


def per_feature(
    a: FloatArray, features: int, layout: Layout, rank: int | None, name: str
) -> FloatArray:
    """A constant as one value per feature; NoMatch if it varies along another axis."""
    axis = -1 if layout == "rows" or rank == 1 else -2
    if a.ndim > (1 if rank is None else rank):
        raise NoMatch(f"'{name}' has more axes than the value it meets is known to have")
    lengths = list(a.shape)
    along = lengths.pop(axis) if a.ndim >= -axis else 1
    if any(length != 1 for length in lengths) or along not in (1, features):
        raise NoMatch(f"'{name}' of shape {a.shape} is not one value per feature")
    return np.broadcast_to(a.reshape(-1), (features,)).astype(np.float64)


def lines_of(graph: Graph, node: NodeProto, features: int, layout: Layout) -> tuple[Line, ...]:
    """An elementwise node with constants as y = scale·x + shift, or as several such steps."""
    if node.op_type == "BatchNormalization":
        return normalization_lines(graph, node, features, layout)
    if node.op_type == "Neg":
        return ((-np.ones(features), np.zeros(features)),)
    second = graph.is_constant(node.input[1])
    name, value = (node.input[1], node.input[0]) if second else (node.input[0], node.input[1])
    a = constant_of_features(graph, name, value, features, layout)
    return (line_with(node.op_type, a, second),)


def line_with(op_type: str, a: FloatArray, second: bool) -> Line:
    """A value and a constant in an elementwise operator; the constant is its second input or not.

    The exponent of a Pow counts as 1.
    """
    one, zero = np.ones(len(a)), np.zeros(len(a))
    match op_type:
        case "Mul":
            return a, zero
        case "Add":
            return one, a
        case "Sub":
            return (one, -a) if second else (-one, a)
        case "Pow":
            return one, zero
    with np.errstate(divide="ignore"):
        return 1 / a, zero


def constant_of_features(
    graph: Graph, name: str, value: str, features: int, layout: Layout
) -> FloatArray:
    """A constant that meets a value, as one number per feature."""
    constant = graph.constant(name)
    assert constant is not None
    a = constant.array
    rank = 1 if a.ndim <= 1 and layout == "rows" else graph.rank(value)
    return per_feature(a, features, layout, rank, name)


def normalization_lines(
    graph: Graph, node: NodeProto, features: int, layout: Layout
) -> tuple[Line, ...]:
    """A BatchNormalization with constant statistics: x − mean, then a factor and a term."""
    rank = graph.rank(node.input[0])
    if rank != (2 if layout == "rows" else 3):
        raise NoMatch(
            f"BatchNormalization '{label(node)}' does not normalize the features of the affine map"
        )
    return normalization_steps(graph, node, features)


def normalization_steps(graph: Graph, node: NodeProto, features: int) -> tuple[Line, Line]:
    """A BatchNormalization of so many features: x − mean, then a factor and a term."""
    options, where = attributes(node), f"BatchNormalization '{label(node)}'"
    trains = options.get("training_mode", 0) or (
        graph.opset < NORMALIZATION_IN_TRAINING and not options.get("is_test", 0)
    )
    if trains or any(node.output[1:]):
        raise NoMatch(f"{where} may be in training mode")
    if not options.get("spatial", 1):
        raise NoMatch(f"{where} does not normalize the features of the affine map")
    found = [graph.constant(name) for name in node.input[1:5]]
    scale, bias, mean, variance = (np.zeros(0) if a is None else a.array for a in found)
    if any(a.shape != (features,) for a in (scale, bias, mean, variance)):
        raise NoMatch(f"{where} does not have four constants with one value per feature")
    with np.errstate(divide="ignore", invalid="ignore"):
        factor = scale / np.sqrt(variance + options.get("epsilon", DEFAULT_EPSILON))
    return (np.ones(features), -mean), (factor, bias)


def fold_after(graph: Graph, start: Affine, nodes: Sequence[NodeProto]) -> Affine:
    """The affine map followed by constant factors and terms."""
    weight, bias = start.weight, start.bias
    folded = tuple(n for n in nodes if n.op_type in ELEMENTWISE)
    for node in folded:
        for scale, shift in lines_of(graph, node, len(weight), start.layout):
            weight, bias = scale[:, None] * weight, scale * bias + shift
    carrier = None
    if start.node.op_type == "MatMul":
        carrier = next((n for n in folded if n.op_type == "Add"), None)
    folded = tuple(n for n in folded if n is not carrier)
    return replace(start, weight=weight, bias=bias, folded=folded, carrier=carrier)


def fold_before(graph: Graph, start: Affine, nodes: Sequence[NodeProto]) -> Affine:
    """Constant factors and terms followed by the affine map."""
    weight, bias = start.weight, start.bias
    folded = tuple(n for n in nodes if n.op_type in ELEMENTWISE)
    for node in reversed(folded):
        for scale, shift in reversed(lines_of(graph, node, weight.shape[1], start.layout)):
            weight, bias = weight * scale, bias + weight @ shift
    return replace(start, weight=weight, bias=bias, folded=folded)


def with_carrier(graph: Graph, side: Affine) -> Affine:
    """Take in the Add that follows an outgoing MatMul, if it holds a constant bias."""
    output = side.node.output[0]
    users = graph.consumers.get(output, [])
    if side.node.op_type != "MatMul" or output in graph.outputs or len(users) != 1:
        return side
    node = users[0]
    if op(node) != "Add" or sum(graph.is_constant(name) for name in node.input) != 1:
        return side
    try:
        ((_, shift),) = lines_of(graph, node, len(side.weight), side.layout)
    except NoMatch:
        return side
    return replace(side, bias=side.bias + shift, carrier=node)
