"""How exporters write activations, by the last node of each; its first input is the argument.

    square    Mul(x, x) | Pow(x, 2)

One row per activation of `neurons/activations.py`.
"""

from __future__ import annotations

from collections.abc import Callable

from onnxfde.graph.model import Graph
from onnxfde.graph.nodes import op
from onnxfde.graph.protos import NodeProto
from onnxfde.neurons.activations import ACTIVATIONS, Activation


def is_square(graph: Graph, node: NodeProto) -> bool:
    """Mul(x, x) or Pow(x, 2), where the 2 adds no axes."""
    if len(node.input) != 2 or op(node) not in ("Mul", "Pow"):
        return False
    if op(node) == "Mul":
        return bool(node.input[0] == node.input[1])
    exponent = graph.constant(node.input[1])
    if exponent is None or exponent.values.size != 1 or float(exponent.array.item()) != 2:
        return False
    axes = exponent.values.ndim
    return axes <= 1 or axes <= (graph.rank(node.input[0]) or 0)


PATTERNS: dict[str, Callable[[Graph, NodeProto], bool]] = {"square": is_square}
"""Whether a node computes an activation of its first input, by the name of the activation."""


def activation_of(graph: Graph, node: NodeProto) -> Activation | None:
    """The activation that a node computes, if it is one of the table."""
    found = (name for name, matches in PATTERNS.items() if matches(graph, node))
    return ACTIVATIONS.get(next(found, ""))
