"""Reshapes inside a layer that leave the features on the last axis.

    MatMul  →  Reshape(…, n)  →  activation  →  Reshape(−1, n)  →  MatMul

keras writes Dense layers on sequences this way. The n is a constant, or the last part of a Concat,
and it changes with the number of neurons. Nodes that only ask for the other axes may stay.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from onnxfde.graph.affine_maps import Layout, NoMatch
from onnxfde.graph.model import Graph
from onnxfde.graph.nodes import attributes, label, op
from onnxfde.graph.protos import NodeProto


class FeatureLength(NamedTuple):
    """The input of a node that ends with the number of features."""

    node: NodeProto
    place: int


def feature_length(graph: Graph, reshape: NodeProto) -> FeatureLength:
    """Where a Reshape gets the length of its last axis from; NoMatch if that is not constant."""
    node, place = reshape, 1
    while not graph.is_constant(node.input[place]):
        before = graph.producers.get(node.input[place])
        if before is None or op(before) not in ("Cast", "Concat"):
            raise NoMatch(f"Reshape '{label(reshape)}' does not have a constant last length")
        if graph.uses(node.input[place]) > 1 or node.input[place] in graph.outputs:
            raise NoMatch(f"the shape of Reshape '{label(reshape)}' is used elsewhere, too")
        node, place = before, len(before.input) - 1
    return FeatureLength(node, place)


def check_reshapes(graph: Graph, nodes: Iterable[NodeProto], features: int, layout: Layout) -> None:
    """Refuse a Reshape that mixes features with other axes."""
    for node in nodes:
        if op(node) != "Reshape":
            continue
        found = feature_length(graph, node)
        constant = graph.constant(found.node.input[found.place])
        lengths = [] if constant is None else constant.values.ravel().tolist()
        if layout != "rows" or not lengths or lengths[-1] != features:
            raise NoMatch(f"Reshape '{label(node)}' mixes features with other axes")


def asks_other_axes(graph: Graph, node: NodeProto, axis: int = -1) -> bool:
    """Whether a node reads the shape of a value, and of that only the lengths of other axes."""
    if op(node) != "Shape" or node.output[0] in graph.outputs:
        return False
    rank, options = graph.rank(node.input[0]), attributes(node)
    if rank is None:
        return False
    asked = range(rank)[slice(options.get("start", 0), options.get("end", rank))]
    if axis % rank not in asked:
        return True
    hidden = asked.index(axis % rank)
    pending = list(graph.consumers.get(node.output[0], ()))
    while pending:
        user = pending.pop()
        if op(user) == "Cast":
            if user.output[0] in graph.outputs:
                return False
            pending.extend(graph.consumers.get(user.output[0], ()))
            continue
        places = lengths_taken(graph, user, len(asked))
        if places is None or hidden in places:
            return False
    return True


def lengths_taken(graph: Graph, node: NodeProto, lengths: int) -> list[int] | None:
    """Which of the lengths of a shape a Gather or Slice takes; None if that is not known."""
    constants = [graph.constant(name) for name in node.input[1:]]
    given = [[] if a is None else a.values.ravel().tolist() for a in constants]
    if None in constants or (op(node) == "Gather" and attributes(node).get("axis", 0) != 0):
        return None
    if op(node) == "Gather":
        return [place % lengths for place in given[0]]
    if op(node) == "Slice" and len(given) >= 2 and all(len(numbers) == 1 for numbers in given):
        step = given[3][0] if len(given) > 3 else 1
        return list(range(lengths))[slice(given[0][0], given[1][0], step)]
    return None
