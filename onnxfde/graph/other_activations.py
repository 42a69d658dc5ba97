"""Activations that are named to the user, in the main graph of a model.

Those in no layer follow a sum of residuals, or no map comes after them, or they are not in the
table.

x·Sigmoid(k·x)   SiLU        x·HardSigmoid(x)   HardSwish        x·Tanh(Softplus(x))   Mish
Relu, Tanh, …    everywhere  Clip, Sin, …       only behind a map: elsewhere they prepare data
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from onnxfde.graph.inner_nodes import AFFINE, TRANSPARENT, scaled_input
from onnxfde.graph.model import Graph
from onnxfde.graph.nodes import op
from onnxfde.graph.protos import NodeProto

ALWAYS = {
    "Relu", "LeakyRelu", "PRelu", "Sigmoid", "Tanh", "Gelu", "Erf", "Softplus", "Elu", "HardSwish",
    "Selu", "Celu", "ThresholdedRelu", "HardSigmoid", "Softsign", "Mish", "Swish",
    "com.microsoft.Gelu", "com.microsoft.FastGelu", "com.microsoft.BiasGelu",
    "com.microsoft.QuickGelu",
}  # fmt: skip
"""Operators that are activations wherever they stand."""
BEHIND_A_MAP = {"Abs", "Clip", "Cos", "Exp", "Log", "Sign", "Sin", "Sqrt"}
"""Operators that are activations if they read what an affine map or a convolution makes."""
GATES = {"Sigmoid": "SiLU", "HardSigmoid": "HardSwish", "Tanh": "Mish"}
"""What a value times this function of it is called."""
MAPS = AFFINE | {"Conv", "ConvTranspose"}


def other_activations(graph: Graph, inside: Iterable[str] = ()) -> dict[str, int]:
    """How often each activation makes another value than these; polynomials do not count."""
    inside = {*inside}
    return dict(Counter(name for value, name in found_activations(graph) if value not in inside))


def found_activations(graph: Graph) -> Iterator[tuple[str, str]]:
    """All activations in node order: the value each makes and its name.

    A gate counts as the product it belongs to.
    """
    gates = {node.output[0]: name for node in graph.model.graph.node for name in gated(graph, node)}
    for node in graph.model.graph.node:
        kind = op(node)
        if node.output and node.output[0] in gates:
            yield node.output[0], gates[node.output[0]]
        elif any(user.output[0] in gates for user in users_behind(graph, node)):
            continue
        elif kind in ALWAYS or (kind in BEHIND_A_MAP and stands_behind_map(graph, node)):
            yield node.output[0], kind


def gated(graph: Graph, product: NodeProto) -> Iterator[str]:
    """The name of x·f(x), if a node computes that with one of the gates."""
    if op(product) != "Mul" or len(product.input) != 2:
        return
    for value, other in (product.input, reversed(product.input)):
        gate = graph.producers.get(other)
        if gate is None or op(gate) not in GATES:
            continue
        read = source_of(graph, gate.input[0])
        if op(gate) == "Tanh":
            inner = graph.producers.get(read)
            if inner is None or op(inner) != "Softplus":
                continue
            read = source_of(graph, inner.input[0])
        if read == source_of(graph, value):
            yield GATES[op(gate)]
            return


def users_behind(graph: Graph, node: NodeProto) -> list[NodeProto]:
    """The nodes that read a gate, or the gate of Mish behind a Softplus."""
    if op(node) not in (*GATES, "Softplus"):
        return []
    users = graph.consumers.get(node.output[0], [])
    if op(node) == "Softplus":
        users = [u for tanh in users for u in graph.consumers.get(tanh.output[0], [])]
    return users


def stands_behind_map(graph: Graph, node: NodeProto) -> bool:
    """Whether a node reads what an affine map or a convolution makes, constants aside."""
    before = graph.producers.get(source_of(graph, node.input[0]))
    return before is not None and op(before) in MAPS


def source_of(graph: Graph, value: str) -> str:
    """The value before all nodes that only scale and shift it by constants."""
    while (node := graph.producers.get(value)) is not None:
        read = node.input[0] if op(node) in TRANSPARENT else scaled_input(graph, node)
        if read is None:
            return value
        value = read
    return value
