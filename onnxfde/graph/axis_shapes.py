"""Operators that move units to another axis, or flatten other axes into theirs.

Reshape keeps the order of all numbers, so in a value of the shape (…, units, …) a unit comes again
every units · S numbers, for S numbers, S the product of the lengths behind. In the new shape it is
on the axis whose length is a multiple of units · S / T, T the product of the lengths behind it:

    (N, C, H, W) → (N, C·H·W)      a block of H·W entries for each unit, side by side
    (N, H, W, C) → (N, H·W·C)      units side by side, H·W times
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from onnxfde.graph.affine_maps import NoMatch
from onnxfde.graph.axes import Length
from onnxfde.graph.axis_steps import Passes, Spot, Step
from onnxfde.graph.model import Graph
from onnxfde.graph.nodes import attributes, op
from onnxfde.graph.protos import NodeProto
from onnxfde.graph.reshapes import asks_other_axes


def transpose(step: Step) -> Passes:
    """The units go where their axis goes."""
    spot = step.spot
    order = list(attributes(step.node).get("perm", reversed(range(spot.rank))))
    return Passes(replace(spot, axis=order.index(spot.axis)))


def squeeze(step: Step) -> Passes:
    """Other axes are removed."""
    spot, axes = step.spot, step.integers("axes", 1)
    gone = {axis % spot.rank for axis in axes or ()}
    if not gone or spot.axis in gone:
        raise NoMatch(f"{step.named} does not say that it removes other axes")
    before = sum(axis < spot.axis for axis in gone)
    return Passes(replace(spot, rank=spot.rank - len(gone), axis=spot.axis - before))


def unsqueeze(step: Step) -> Passes:
    """Axes of length 1 are added."""
    spot, axes = step.spot, step.integers("axes", 1)
    if axes is None:
        raise NoMatch(f"{step.named} has no constant axes")
    rank = spot.rank + len(axes)
    added = {axis % rank for axis in axes}
    kept = [axis for axis in range(rank) if axis not in added]
    return Passes(replace(spot, rank=rank, axis=kept[spot.axis]))


def shape(step: Step) -> None:
    """Nodes may ask for the lengths of other axes."""
    if not asks_other_axes(step.graph, step.node, step.spot.axis):
        raise NoMatch(f"{step.named} asks the number of channels")


def flatten(step: Step) -> Passes:
    """All axes from one on become the last."""
    spot, dims = step.spot, step.graph.shape(step.node.input[0])
    first = attributes(step.node).get("axis", 1)
    first += spot.rank if first < 0 else 0
    if first > spot.axis:
        raise NoMatch(f"{step.named} mixes the channels with the batch")
    lengths = known(step, dims, first)
    outer = math.prod(lengths[: spot.axis - first]) * spot.outer
    inner = math.prod(lengths[spot.axis - first + 1 :]) * spot.inner
    return Passes(Spot(2, 1, outer, inner))


def known(step: Step, dims: tuple[int | str | None, ...] | None, first: int) -> list[int]:
    """The lengths of a value from an axis on; NoMatch if one of them is not known.

    That of the units is in the list, though it is not needed.
    """
    found = [] if dims is None else list(dims[first:])
    lengths = [length for length in found if isinstance(length, int)]
    if dims is None or len(lengths) != len(found):
        raise NoMatch(f"the shape of what {step.named} reads is not known")
    return lengths


@dataclass(frozen=True, eq=False)
class Entry:
    """One entry of the shape that a Reshape asks for, and the constant that it is in."""

    value: int | None
    """None if it is computed."""
    node: NodeProto
    place: int
    at: int


def entries_of(graph: Graph, node: NodeProto, place: int) -> list[Entry] | None:
    """The entries of a constant shape, or of one that a Concat puts together; None if unknown."""
    name = node.input[place]
    found = graph.constant(name)
    if found is not None:
        return [Entry(int(n), node, place, i) for i, n in enumerate(found.values.ravel())]
    maker = graph.producers.get(name)
    if maker is not None and op(maker) in ("Cast", "Identity"):
        return entries_of(graph, maker, 0)
    if maker is not None and op(maker) == "Concat":
        parts = [entries_of(graph, maker, i) for i in range(len(maker.input))]
        return None if None in parts else [e for part in parts if part for e in part]
    dims = graph.shape(name)
    single = dims == (1,) or (maker is not None and op(maker) == "Unsqueeze" and dims is None)
    return [Entry(None, node, place, 0)] if single else None


def reshape(step: Step) -> Passes:
    """The units stay together on one axis of the new shape."""
    spot, dims = step.spot, step.graph.shape(step.node.input[0])
    entries = entries_of(step.graph, step.node, 1) if len(step.node.input) > 1 else None
    if entries is None:
        raise NoMatch(f"the shape of {step.named} is computed")
    stride = math.prod(known(step, dims, spot.axis)[1:]) * spot.inner
    lengths = target_lengths(step, entries)
    behind = 1
    for axis in reversed(range(len(entries))):
        run, length = stride // behind, lengths[axis]
        if stride % behind == 0 and step.may_be_on(axis):
            outer = outer_of(step, run, length)
            if outer:
                return reshaped(step, entries, Spot(len(entries), axis, outer, run))
        if not length:
            break
        behind *= length
    raise NoMatch(f"{step.named} mixes the channels with other axes")


def target_lengths(step: Step, entries: list[Entry]) -> list[int | None]:
    """The lengths that a Reshape asks for; None where they follow from others or are computed."""
    dims = step.graph.shape(step.node.input[0]) or ()
    made = step.graph.shape(step.node.output[0]) or ()
    copies = not attributes(step.node).get("allowzero", 0)
    found: list[int | None] = []
    for axis, entry in enumerate(entries):
        value: int | str | None = entry.value
        if entry.value == 0 and copies:
            value = dims[axis] if axis < len(dims) else None
        elif entry.value is None or entry.value < 0:
            value = made[axis] if len(made) == len(entries) else None
        found.append(value if isinstance(value, int) else None)
    return found


def outer_of(step: Step, run: int, length: int | None) -> int:
    """How often all units come along an axis; 0 if they do not fit it.

    Where the length is not known, the batch is taken to stay apart; readers compare the length.
    """
    if length is not None:
        return 0 if length % (step.units * run) else length // (step.units * run)
    spot, dims = step.spot, step.graph.shape(step.node.input[0]) or ()
    between = dims[1 : spot.axis]
    lengths = [n for n in between if isinstance(n, int)]
    return math.prod(lengths) * spot.outer if len(lengths) == len(between) else 0


def reshaped(step: Step, entries: list[Entry], spot: Spot) -> Passes:
    """The result of a Reshape, with the entry of its shape that counts the units."""
    old = step.spot
    if spot.block > 1 and spot.axis != spot.rank - 1:
        raise NoMatch(f"{step.named} mixes the channels with other axes")
    same = spot.axis == old.axis and spot.block == old.block
    zeros = [axis for axis, entry in enumerate(entries) if entry.value == 0]
    if (old.axis in zeros or spot.axis in zeros) and not same:
        raise NoMatch(f"{step.named} copies the number of channels to another axis")
    return Passes(spot, lengths=named_length(step, 1, spot.axis, spot))


def named_length(step: Step, place: int, axis: int, spot: Spot) -> tuple[Length, ...]:
    """The entry of a shape that says how many units there are; none if it follows from others."""
    entries = entries_of(step.graph, step.node, place) if place < len(step.node.input) else None
    if entries is None or axis >= len(entries) or entries[axis].value is None:
        raise NoMatch(f"the shape of {step.named} is computed")
    entry, wanted = entries[axis], entries[axis].value
    if wanted in (-1, 0):
        return ()
    if wanted != step.units * spot.block:
        raise NoMatch(f"{step.named} changes the number of channels")
    check_used_here(step, entry)
    return (Length(entry.node, entry.place, entry.at, spot.block),)


def check_used_here(step: Step, entry: Entry) -> None:
    """Refuse to change a shape that is put together and read elsewhere, too."""
    graph, node = step.graph, entry.node
    while node is not step.node:
        users = graph.consumers.get(node.output[0], [])
        if graph.uses(node.output[0]) != 1 or node.output[0] in graph.outputs:
            raise NoMatch(f"the shape of {step.named} is used elsewhere, too")
        node = users[0]
