"""What nodes do, as values that can be compared: two graphs with the same ones compute the same."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Sequence

import numpy as np

from onnxfde.graph.model import Graph
from onnxfde.graph.nodes import op
from onnxfde.graph.protos import NodeProto

Signature = tuple[Hashable, ...]
"""What a node or a map is made of."""


def nodes_signature(graph: Graph, argument: str, nodes: Sequence[NodeProto]) -> Signature:
    """What nodes do that compute a function of one value, and which values each of them reads."""
    numbers = {argument: 0, **{node.output[0]: i + 1 for i, node in enumerate(nodes)}}
    return tuple(
        (node_signature(graph, node), tuple(numbers.get(name) for name in node.input))
        for node in nodes
    )


def node_signature(graph: Graph, node: NodeProto) -> Signature:
    """What a node does to the value it reads: its operator, attributes and constants."""
    options = sorted(a.SerializeToString() for a in node.attribute)
    found: list[Signature] = []
    for name in node.input:
        constant = graph.constant(name) if name else None
        if constant is None:
            found.append((name == "",))
            continue
        a = constant.values
        digest = hashlib.sha256(np.ascontiguousarray(a).tobytes()).digest()
        found.append((a.dtype.name, a.shape, digest))
    return (op(node), *options, *found)
