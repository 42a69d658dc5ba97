"""Nodes that may stand inside a layer: those that compute nothing, and those with constants.

Identity, Dropout, Flatten          x
Mul, Add, Sub, Div, Neg, Pow 1      scale·x + shift, with constants
BatchNormalization                  (x − mean) · (scale / √(var + ε)) + bias
"""

from __future__ import annotations

from onnxfde.graph.affine_maps import ELEMENTWISE, NoMatch, overridable_reason
from onnxfde.graph.model import Graph
from onnxfde.graph.nodes import attributes, label, op
from onnxfde.graph.protos import NodeProto

TRANSPARENT = {"Identity", "Dropout", "Flatten"}
"""Operators that may stand inside a layer and compute nothing."""
AFFINE = {"Gemm", "MatMul"}
DROPOUT_FOR_INFERENCE = 7
"""The opset since which Dropout has no attribute `is_test` and drops nothing by default (ONNX)."""


def hidden_input(graph: Graph, node: NodeProto, where: str) -> str:
    """The one value that a node reads; NoMatch if it does more than scale and shift it."""
    if op(node) in TRANSPARENT:
        check_transparent(graph, node)
        return node.input[0]
    found = scaled_input(graph, node)
    if found is not None:
        return found
    check_not_overridable(graph, node)
    raise NoMatch(why_not_inside(node, where))


def why_not_inside(node: NodeProto, where: str) -> str:
    """Why a node cannot be part of a layer."""
    return (
        f"{op(node)} '{label(node)}' stands {where}; only Gemm, MatMul, BatchNormalization, "
        "elementwise activations and arithmetic with constants may"
    )


def check_not_overridable(graph: Graph, node: NodeProto) -> None:
    """Refuse a node that reads an initializer which a caller may replace."""
    overridable = [name for name in node.input if name in graph.overridable]
    if overridable:
        raise NoMatch(overridable_reason(overridable[0]))


def scaled_input(graph: Graph, node: NodeProto) -> str | None:
    """The value that a node multiplies by constants and adds constants to, if it does only that."""
    if op(node) not in ELEMENTWISE:
        return None
    constants = [graph.is_constant(name) for name in node.input]
    if constants in ([False], [False, *[True] * (len(constants) - 1)]):
        return None if op(node) == "Pow" and not has_exponent(graph, node, 1) else node.input[0]
    if constants == [True, False] and op(node) in ("Mul", "Add", "Sub"):
        return node.input[1]
    return None


def has_exponent(graph: Graph, node: NodeProto, power: int) -> bool:
    """Whether a Pow has a constant exponent that is this number throughout."""
    found = graph.constant(node.input[1]) if len(node.input) == 2 else None
    return found is not None and found.values.size > 0 and bool((found.array == power).all())


def check_transparent(graph: Graph, node: NodeProto) -> None:
    """Refuse a Dropout in training and a Flatten that mixes features with other axes."""
    options = attributes(node)
    if node.op_type == "Dropout":
        if dropout_may_train(graph, node):
            raise NoMatch(f"Dropout '{label(node)}' may be in training mode")
        masks = [name for name in node.output[1:] if name]
        if any(graph.consumers.get(name) or name in graph.outputs for name in masks):
            raise NoMatch(f"the mask of Dropout '{label(node)}' is used")
    if node.op_type == "Flatten":
        rank = graph.rank(node.input[0])
        if rank is None:
            raise NoMatch(f"the rank of what Flatten '{label(node)}' reads is not known")
        if rank < 2 or options.get("axis", 1) % rank != rank - 1:
            raise NoMatch(f"Flatten '{label(node)}' mixes features with other axes")


def dropout_may_train(graph: Graph, node: NodeProto) -> bool:
    """Whether a Dropout could drop something at inference."""
    if graph.opset < DROPOUT_FOR_INFERENCE:
        return not attributes(node).get("is_test", 0)
    if len(node.input) < 3 or not node.input[2]:
        return False
    training = graph.constant(node.input[2])
    return training is None or training.values.size != 1 or bool(training.values.any())
