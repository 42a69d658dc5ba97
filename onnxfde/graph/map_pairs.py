"""Walking from one affine map to the next, through nodes that only scale and shift.

Gemm | MatMul  →  [constants]  →  Gemm | MatMul
"""

from __future__ import annotations

from onnxfde.graph.affine_maps import NoMatch
from onnxfde.graph.inner_nodes import AFFINE, hidden_input
from onnxfde.graph.model import Graph
from onnxfde.graph.nodes import op
from onnxfde.graph.protos import NodeProto


def walk_on(graph: Graph, start: NodeProto, where: str) -> tuple[list[NodeProto], NodeProto]:
    """Nodes between a node and the next affine node, and that affine node."""
    between: list[NodeProto] = []
    value = start.output[0]
    while True:
        node = only_use(graph, value)
        if op(node) in AFFINE:
            return between, node
        hidden_input(graph, node, where)
        between.append(node)
        value = node.output[0]


def only_use(graph: Graph, value: str) -> NodeProto:
    """The one consumer of a hidden value."""
    if value in graph.outputs:
        raise NoMatch(f"'{value}' inside it is an output of the graph")
    users = graph.consumers.get(value, [])
    if len(users) != 1:
        raise NoMatch(f"'{value}' inside it is used by {len(users)} nodes")
    return users[0]
