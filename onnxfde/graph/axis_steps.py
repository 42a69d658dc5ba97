"""One step of the walk along an axis: where the units are before a node, and behind it.

Units lie along one axis of a value, in blocks if other axes were flattened into it:

    entry of unit u along the axis = (o·units + u)·inner + i      o < outer, i < inner
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from onnxfde.graph.affine_maps import NoMatch, overridable_reason
from onnxfde.graph.axes import Axis, Length, Port, Reader
from onnxfde.graph.inferred_shapes import computed_integers
from onnxfde.graph.model import Graph
from onnxfde.graph.nodes import attributes, label, op
from onnxfde.graph.protos import NodeProto
from onnxfde.numbers import Array, Indices


@dataclass(frozen=True)
class Spot:
    """Where the units are in a value."""

    rank: int
    axis: int
    outer: int = 1
    inner: int = 1

    @property
    def block(self) -> int:
        """How many entries of the axis belong to one unit."""
        return self.outer * self.inner

    def entries(self, units: int) -> Indices:
        """For each unit, its entries along the axis."""
        every = np.arange(units * self.block).reshape(self.outer, units, self.inner)
        return every.transpose(1, 0, 2).reshape(units, -1)


@dataclass(frozen=True)
class Passes:
    """A node acts on each unit by itself: where they are in its result, and what it stores."""

    spot: Spot
    ports: tuple[Port, ...] = ()
    depthwise: bool = False
    lengths: tuple[Length, ...] = ()


@dataclass(frozen=True, eq=False)
class Step:
    """A node that reads units."""

    graph: Graph
    node: NodeProto
    spots: Mapping[str, Spot]
    """Values with units, and where they are."""
    units: int
    before: Axis | None = None
    """The axis as it was with more units, if it is known."""

    @property
    def named(self) -> str:
        """The node in reasons."""
        return f"{op(self.node)} '{label(self.node)}'"

    @property
    def spot(self) -> Spot:
        """Where the units are in the first input; NoMatch if they are not in that one alone."""
        first, *others = self.node.input
        if first not in self.spots or any(name in self.spots for name in others):
            raise NoMatch(f"{self.named} reads the channels in an unusual place")
        return self.spots[first]

    @property
    def channels(self) -> Spot:
        """Where the units are in the first input, which must be on axis 1; NoMatch otherwise."""
        spot = self.spot
        if spot.axis != 1:
            raise NoMatch(f"the channels are not on axis 1 of what {self.named} reads")
        return spot

    @property
    def was_depthwise(self) -> bool:
        """Whether the node was a depthwise Conv when there were more units."""
        inner = self.before.inner if self.before else ()
        return any(i.depthwise and i.node.output[0] == self.node.output[0] for i in inner)

    def may_be_on(self, axis: int) -> bool:
        """Whether the units of the result can be on an axis, by what it was with more of them."""
        known = self.before.values if self.before else {}
        return known.get(self.node.output[0], axis) == axis

    def number_of_entries(self, spot: Spot) -> int:
        """The length of the axis with the units."""
        return self.units * spot.block

    def constant(self, place: int) -> Array | None:
        """A constant input; None if it is not given, NoMatch if it is not constant."""
        if place >= len(self.node.input) or not self.node.input[place]:
            return None
        name = self.node.input[place]
        if name in self.graph.overridable:
            raise NoMatch(overridable_reason(name))
        found = self.graph.constant(name)
        if found is None:
            raise NoMatch(f"'{name}', which {self.named} reads, is not a constant")
        return found.values

    def integers(self, name: str, place: int) -> list[int] | None:
        """Whole numbers that are an attribute in old opsets and an input in new ones."""
        given = attributes(self.node).get(name)
        if given is not None:
            return [int(number) for number in given]
        if place >= len(self.node.input) or not self.node.input[place]:
            return None
        found = computed_integers(self.graph, self.node.input[place])
        found = self.constant(place) if found is None else found
        return None if found is None else [int(number) for number in found.ravel()]

    def port(self, place: int, spot: Spot) -> tuple[Port, ...]:
        """The port of a constant that meets a value with units by broadcasting, if it has one."""
        found = self.constant(place)
        if found is None:
            return ()
        if found.ndim > spot.rank:
            raise NoMatch(f"a constant of {self.named} has more axes than the units' value")
        dim = spot.axis - (spot.rank - found.ndim)
        if dim < 0 or found.shape[dim] == 1:
            return ()
        if found.shape[dim] != self.number_of_entries(spot):
            raise NoMatch(f"a constant of {self.named} does not have one number for each unit")
        return (Port(self.node, place, dim, spot.inner),)


AxisOutcome = Passes | Reader | None
"""What a node does: it passes the units on, sums over them, or asks only for other axes (None)."""
AxisRule = Callable[[Step], AxisOutcome]
"""What an operator does with units; NoMatch says why it ends the axis."""
