"""Which units of an axis do nothing that the others and an offset cannot do, for all inputs.

    unit_i = c_i everywhere         →  V_i goes, and the offset becomes c + V_i c_i
    unit_i = Σ_k m_ik · unit_k      →  V_i goes, and V_k becomes V_k + m_ik·V_i

Beyond a border units count as 0. So a constant other than 0 stays if a reader's windows reach over
the border: there its share would be missing. A unit is constant if its weights are 0 or, for inputs
in a range that the user gave, if bounds say so, position by position.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from onnxfde.graph.axes import Axis, Reader
from onnxfde.graph.axis_readers import reader_matrix
from onnxfde.graph.axis_rules import (
    RULES,
    batch_normalization,
    copied,
    elementwise,
    float_cast,
)
from onnxfde.graph.edit_axes import weight_type
from onnxfde.graph.find_axes import producer_rows
from onnxfde.graph.model import Graph
from onnxfde.graph.nodes import op
from onnxfde.graph.subgraph import part_behind
from onnxfde.neurons.equal_rows import row_families
from onnxfde.neurons.intervals import Interval
from onnxfde.neurons.linear_map import spanning_rows
from onnxfde.numbers import ROUNDOFF, FloatArray, Indices
from onnxfde.proof.value_bounds import NetworkBounds

LINEAR = {
    *("AveragePool", "GlobalAveragePool", "ReduceMean", "ReduceSum", "Identity", "Dropout"),
    *("Transpose", "Flatten", "Reshape", "Squeeze", "Unsqueeze"),
}
"""Operators f with f(αx + y) = α·f(x) + f(y)."""
SCALE_FREE = {
    *LINEAR,
    *("Relu", "LeakyRelu", "MaxPool", "GlobalMaxPool", "ReduceMax", "Resize", "Upsample"),
}
"""Operators f with f(αx) = α·f(x) for α > 0."""
AT_EVERY_POSITION = {
    name
    for name, rule in RULES.items()
    if rule in (elementwise, copied, float_cast, batch_normalization)
}
"""Operators that do the same at every position."""
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class UnitFacts:
    """What is known of the units of one axis."""

    constant: Mask
    """Which units always have the same values."""
    numbers: tuple[FloatArray, ...]
    """For each reader, these values in its windows: units × numbers in a block."""
    mix: FloatArray
    """m: how units that are no constants are made of those of them that stay."""

    @property
    def kept(self) -> Indices:
        """The units that stay, at least one."""
        kept = np.flatnonzero(np.any(self.mix[~self.constant], axis=0))
        return kept if len(kept) else np.arange(1)

    def kept_in_multiples(self, align: int) -> Indices:
        """The same with as many of the others as it takes to a multiple, or to all."""
        kept = self.kept
        others = np.setdiff1d(np.arange(len(self.mix)), kept)
        return np.sort(np.append(kept, others[: -len(kept) % align]))


def unit_facts(graph: Graph, axis: Axis, bounds: NetworkBounds | None) -> UnitFacts:
    """What is known for all inputs, or for those in the box that `bounds` is about."""
    dtype = weight_type(graph, axis.producer.node)
    constant = unread(graph, axis)
    numbers = [np.zeros(reader.columns.shape) for reader in axis.readers]
    still = weightless(graph, axis)
    for known, about in ((constant_rows(graph, axis, still), still), (bounds, ~constant)):
        if known is not None:
            seen = [window_bounds(known, reader) for reader in axis.readers]
            found = constants(axis, seen, ROUNDOFF[dtype.name]) & about & ~constant
            for own, windows in zip(numbers, seen, strict=True):
                if windows is not None:
                    own[found] = windows.mid[found]
            constant |= found
    return UnitFacts(constant, tuple(numbers), mixture(graph, axis, dtype, constant))


def unread(graph: Graph, axis: Axis) -> Mask:
    """Units whose blocks are 0 in every reader."""
    blocks = [reader_matrix(graph, reader)[:, reader.columns] for reader in axis.readers]
    return np.asarray(np.all([~np.any(block, axis=(0, 2)) for block in blocks], axis=0))


def weightless(graph: Graph, axis: Axis) -> Mask:
    """Units whose weights are all 0, so that they are what their bias is."""
    return np.asarray(~np.any(producer_rows(graph, axis.producer)[0], axis=1))


def constant_rows(graph: Graph, axis: Axis, still: Mask) -> NetworkBounds | None:
    """Bounds of what follows from the biases of units without weights; None if there are none.

    The nodes inside an axis act on each unit by itself, so the other units do not matter: they get
    any interval, and these bounds say nothing about them. Where nothing inside looks at neighbours,
    one position stands for lengths that are not known.
    """
    name, bias = axis.producer.value, producer_rows(graph, axis.producer)[1]
    shape = graph.shape(name)
    if not still.any() or shape is None:
        return None
    inside = {op(inner.node) for inner in axis.inner}
    if not (inside <= AT_EVERY_POSITION or all(isinstance(d, int) for d in shape[1:])):
        return None
    lengths = (1, *(d if isinstance(d, int) else 1 for d in shape[1:]))
    across = [-1 if i == axis.values[name] else 1 for i in range(len(lengths))]
    ends = [np.where(still, bias, end).reshape(across) * np.ones(lengths) for end in (-1.0, 1.0)]
    example = name, np.zeros(lengths, weight_type(graph, axis.producer.node))
    part = part_behind(graph, example, [reader.value for reader in axis.readers])
    return NetworkBounds(part, {name: (ends[0], ends[1])})


def window_bounds(known: NetworkBounds, reader: Reader) -> Interval | None:
    """What a reader sees of each unit in its windows, away from borders: units × block."""
    found = known.of(reader.value)
    if found is None:
        return None
    if op(reader.node) != "Conv":
        wide = found.low.shape[-1]
        low, high = (
            found.low.reshape(-1, wide).min(axis=0),
            found.high.reshape(-1, wide).max(axis=0),
        )
        return Interval(low[reader.columns], high[reader.columns])
    axes = tuple(i for i in range(found.low.ndim) if i != 1)
    ends = (found.low.min(axis=axes), found.high.max(axis=axes))
    low, high = (np.repeat(end[:, None], reader.columns.shape[1], axis=1) for end in ends)
    return Interval(low, high)


def constants(axis: Axis, seen: list[Interval | None], roundoff: float) -> Mask:
    """Which units are constants, up to rounding, that every reader may take into its offset."""
    found = np.ones(axis.units, dtype=bool)
    for reader, windows in zip(axis.readers, seen, strict=True):
        if windows is None:
            return np.zeros(axis.units, dtype=bool)
        zero = (windows.low == 0) & (windows.high == 0)
        point = windows.high - windows.low <= roundoff * np.abs(windows.mid)
        found &= np.all(zero | point & (not reader.padded), axis=1)
    return found


def mixture(graph: Graph, axis: Axis, dtype: np.dtype[Any], constant: Mask) -> FloatArray:
    """How units are made of those that stay: multiples, or sums where nothing bends them.

    A small row counts like a large one: what reads it may be large.
    """
    rows, labels = (
        np.column_stack(producer_rows(graph, axis.producer)),
        inner_parameters(graph, axis),
    )
    kinds = {op(inner.node) for inner in axis.inner}
    bare, free = labels.shape[1] == 0, np.flatnonzero(~constant)
    mix = np.zeros((axis.units, axis.units))
    if bare and kinds <= LINEAR:
        size = np.abs(rows[free]).max(axis=1, initial=0.0)
        size = np.where(size > 0, size, 1.0)
        kept, others, combined = spanning_rows(rows[free] / size[:, None], ROUNDOFF[dtype.name])
        mix[free[kept], free[kept]] = 1.0
        mix[np.ix_(free[others], free[kept])] = combined * size[others, None] / size[kept]
        return mix
    scaled, own = bare and kinds <= SCALE_FREE, None if bare else labels[free]
    with np.errstate(invalid="ignore", divide="ignore"):
        families = row_families(rows[free], dtype, scaled, signed=False, labels=own)
    mix[free, free[families.representatives[families.home]]] = families.factor
    return mix


def inner_parameters(graph: Graph, axis: Axis) -> FloatArray:
    """All numbers that the nodes inside have for each unit: units × numbers."""
    found = [np.zeros((axis.units, 0))]
    for port in (port for inner in axis.inner for port in inner.ports):
        constant = graph.constant(port.node.input[port.place])
        assert constant is not None
        entries = np.moveaxis(constant.array, port.dim, 0)
        blocks = entries.reshape(-1, axis.units, port.run, *entries.shape[1:])
        found.append(np.moveaxis(blocks, 1, 0).reshape(axis.units, -1))
    return np.hstack(found)
