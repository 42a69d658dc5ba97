"""How exporters write activations, by the last node of each; its first input is the argument.

    square    Mul(x, x) | Pow(x, 2), unless it is averaged: then it is part of a normalization

`polynomials` reads the spellings of a·x² + b·x + c. One row per activation of
`neurons/activations.py`.
"""

from __future__ import annotations

from collections.abc import Callable

from onnxfde.graph.model import PASS_THROUGH, Graph
from onnxfde.graph.nodes import op
from onnxfde.graph.protos import NodeProto
from onnxfde.neurons.activations import Activation, activation_named

AVERAGES = {"GlobalAveragePool", "ReduceMean", "ReduceSum", "ReduceSumSquare"}
"""Operators that turn squares into a variance or a norm."""


def is_square(graph: Graph, node: NodeProto) -> bool:
    """Mul(x, x) or Pow(x, 2), where the 2 adds no axes and makes none longer."""
    if len(node.input) != 2 or op(node) not in ("Mul", "Pow"):
        return False
    if op(node) == "Mul":
        return bool(node.input[0] == node.input[1]) and not graph.is_constant(node.input[0])
    exponent = graph.constant(node.input[1])
    if exponent is None or not exponent.values.size or not (exponent.array == 2).all():
        return False
    return keeps_shape(graph, node.input[0], exponent.values.shape)


def keeps_shape(graph: Graph, value: str, constant: tuple[int, ...]) -> bool:
    """Whether a value has the same shape after it has met a constant of this shape."""
    if len(constant) <= 1 and all(length == 1 for length in constant):
        return True
    shape = graph.shape(value) or ()
    fits = all(a in (1, b) for a, b in zip(reversed(constant), reversed(shape), strict=False))
    return len(constant) <= len(shape) and fits


def is_averaged(graph: Graph, node: NodeProto) -> bool:
    """Whether what a node computes is averaged, as squares are in a normalization."""
    pending = [node]
    while pending:
        users = graph.consumers.get(pending.pop().output[0], ())
        if any(op(user) in AVERAGES for user in users):
            return True
        pending.extend(user for user in users if op(user) in PASS_THROUGH)
    return False


PATTERNS: dict[str, Callable[[Graph, NodeProto], bool]] = {"square": is_square}
"""Whether a node computes an activation of its first input, by the name of the activation."""


def activation_of(graph: Graph, node: NodeProto) -> Activation | None:
    """The activation that a node computes, if it is one of the table."""
    found = next((name for name, matches in PATTERNS.items() if matches(graph, node)), "")
    return None if not found or is_averaged(graph, node) else activation_named(found)
