"""Finding axes: from each node that makes units, forward through every node that touches them.

    Conv | Gemm | MatMul  →  nodes that act on each unit by itself  →  Conv | Gemm | MatMul

Every node that reads a value with units has to be a row of the table in `axis_rules`; the first one
that is not ends the axis, with a reason. A dense layer with one reader is left to `match` where it
is merged by itself, and is an axis where a limit on the whole model is spent over all of them.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field, replace

from onnxfde.graph.affine_maps import NoMatch
from onnxfde.graph.axes import Axis, Inner, Producer, Reader
from onnxfde.graph.axis_rules import outcome_of
from onnxfde.graph.axis_steps import Passes, Spot, Step
from onnxfde.graph.match import Refusal
from onnxfde.graph.model import Graph
from onnxfde.graph.nodes import attributes, bodies, label, op, unique_labels
from onnxfde.graph.protos import NodeProto
from onnxfde.graph.weight_matrices import PRODUCTS, bias_vector, product_of, weight_matrix
from onnxfde.numbers import FloatArray


def find_axes(graph: Graph, dense: bool = False) -> tuple[list[Axis], list[Refusal]]:
    """All axes in node order, and why other convolutions do not make one.

    Dense layers with one reader are left out unless they are asked for.
    """
    axes: list[Axis] = []
    refusals: list[Refusal] = []
    places = positions(graph)
    for node in graph.model.graph.node:
        if op(node) not in PRODUCTS or is_depthwise(graph, node):
            continue
        try:
            found = axis_of(graph, node, places)
        except NoMatch as reason:
            if op(node) == "Conv":
                refusals.append(Refusal(label(node), str(reason)))
            continue
        if dense or not is_plain_dense(found):
            axes.append(found)
    names = unique_labels([axis.name for axis in axes])
    return [replace(axis, name=name) for axis, name in zip(axes, names, strict=True)], refusals


def positions(graph: Graph) -> dict[str, int]:
    """The position of the node that makes each value."""
    return {
        name: i for i, node in enumerate(graph.model.graph.node) for name in node.output if name
    }


def is_depthwise(graph: Graph, node: NodeProto) -> bool:
    """Whether a node is a Conv with one input channel for each group: units only pass it."""
    if op(node) != "Conv" or attributes(node).get("group", 1) == 1:
        return False
    weight = graph.constant(node.input[1])
    return weight is not None and weight.values.ndim > 1 and weight.values.shape[1] == 1


def is_plain_dense(axis: Axis) -> bool:
    """Whether an axis is a dense layer as `match` finds them: two matrices, one reader."""
    nodes = [axis.producer.node, *(reader.node for reader in axis.readers)]
    return len(nodes) == 2 and all(op(node) != "Conv" for node in nodes)


def read_again(graph: Graph, axis: Axis) -> Axis:
    """An axis as it is now, after edits to others; NoMatch if it is no longer one."""
    return replace(axis_of(graph, axis.producer.node, positions(graph), axis), name=axis.name)


def axis_of(
    graph: Graph,
    node: NodeProto,
    places: dict[str, int],
    before: Axis | None = None,
) -> Axis:
    """The axis of the units that a node makes; NoMatch says what ended it.

    `before` is the axis as it was with more units: where a single one is left, a depthwise Conv
    looks like others, and a Reshape does not tell on which axis of length 1 it is.
    """
    product = product_of(graph, node)
    spot = Spot(product.rank, product.axis)
    producer = Producer(node, product.rows, product.bias, node.input[0], product.value)
    walk = Walk(graph, product.outputs, places, before)
    if product.value != node.output[0]:
        walk.spots[node.output[0]] = spot
    walk.reach(product.value, spot)
    walk.run()
    if not walk.readers:
        raise NoMatch("nothing that can be refitted reads the channels")
    return Axis(
        name=label(node),
        units=product.outputs,
        producer=producer,
        inner=tuple(walk.inner),
        readers=tuple(walk.readers),
        values={name: s.axis for name, s in walk.spots.items()},
        flattened={name: s.block for name, s in walk.spots.items() if s.block > 1},
    )


@dataclass
class Walk:
    """The nodes that read units, in the order of the graph."""

    graph: Graph
    units: int
    places: dict[str, int]
    """The position of the node that makes each value."""
    before: Axis | None
    spots: dict[str, Spot] = field(default_factory=dict)
    pending: list[tuple[int, NodeProto]] = field(default_factory=list)
    met: set[int] = field(default_factory=set)
    inner: list[Inner] = field(default_factory=list)
    readers: list[Reader] = field(default_factory=list)

    def reach(self, value: str, spot: Spot) -> None:
        """Add a value with units, and line up the nodes that read it."""
        if value in self.graph.outputs:
            raise NoMatch(f"'{value}' with the channels is an output of the graph")
        self.spots[value] = spot
        for node in self.graph.consumers.get(value, ()):
            place = max((self.places.get(name, 0) for name in node.output), default=0)
            if place not in self.met:
                self.met.add(place)
                heapq.heappush(self.pending, (place, node))

    def run(self) -> None:
        """Visit all nodes that read units."""
        while self.pending:
            self.visit(heapq.heappop(self.pending)[1])

    def visit(self, node: NodeProto) -> None:
        """One node: it passes the units on, reads them, or asks for other axes only."""
        if any(bodies(node)):
            raise NoMatch(f"{op(node)} '{label(node)}' reads the channels in a body")
        outcome = outcome_of(Step(self.graph, node, self.spots, self.units, self.before))
        if isinstance(outcome, Passes):
            self.leave_unused(node, outcome.spot)
            self.inner.append(Inner(node, outcome.ports, outcome.depthwise, outcome.lengths))
            self.reach(node.output[0], outcome.spot)
        elif outcome is not None:
            self.readers.append(outcome)

    def leave_unused(self, node: NodeProto, spot: Spot) -> None:
        """Add what a node makes besides, as a mask or indices; NoMatch if it is used."""
        for name in filter(None, node.output[1:]):
            if self.graph.consumers.get(name) or name in self.graph.outputs:
                raise NoMatch(f"the further outputs of {op(node)} '{label(node)}' are used")
            self.spots[name] = spot


def producer_rows(graph: Graph, producer: Producer) -> tuple[FloatArray, FloatArray]:
    """The weight of a producer, units × fan-in, and its bias."""
    rows = weight_matrix(graph, producer.node)
    return rows, bias_vector(graph, producer.node, producer.bias, len(rows))
