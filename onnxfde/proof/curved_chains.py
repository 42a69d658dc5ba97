"""Chains of affine maps with any activations between them, and how far another chain can be.

    h_1 = F_1 x,  h_{j+1} = F_{j+1} σ_j(h_j),  and the same with F′, which may have fewer neurons

Layer by layer, the ranges of h′_j, the distance of each h_i from the neuron that stands for it, and
the ranges of all other h_i are bounded as forms in the layers before, down to the input
(`difference_forms`). The last forms are the outputs' change, F′s′ − F s, and the outputs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt

from onnxfde.neurons.intervals import Interval, gamma
from onnxfde.numbers import FloatArray, Indices
from onnxfde.proof.affine_bounds import OUTWARD, Map, affine_change
from onnxfde.proof.difference_forms import (
    FEW_STEPS,
    BoundedNeurons,
    Form,
    PairedLayer,
    as_row,
    back_through,
    input_range,
    paired_layer,
    row,
)
from onnxfde.proof.hidden_functions import HiddenFunction
from onnxfde.proof.neuron_pairs import PROBES, NeuronPairs, found_pairs
from onnxfde.proof.polynomial_change import polynomial_change

MOST_LINE_WORK = 6e10
"""Multiplications that following forms back may take: six seconds at 1e10 per second; if it would
be more, they are followed through fewer layers. Chosen; not tuned."""
WORK_FACTOR = 3
"""How often the forms of a layer are followed back: for the neurons of each network, and for their
distance."""
MOST_FORM_CHUNK = 4_000_000
"""Entries of the forms that are followed at once, 32 MB in float64. Chosen; not tuned."""
CLOSE = 1e-6
"""How far, relatively, a neuron may be from its partner for its range to be taken from that one.
Chosen to save work; not tuned."""


@dataclass(frozen=True, eq=False)
class CurvedChain:
    """Affine maps, the functions between them, and the values of probes."""

    maps: tuple[Map, ...]
    functions: tuple[HiddenFunction, ...]

    @property
    def widths(self) -> tuple[int, ...]:
        """How many neurons each layer has, without the outputs."""
        return tuple(len(f.weight) for f in self.maps[:-1])

    def work(self, reach: int) -> float:
        """About how many multiplications following the forms of each map back takes."""
        sizes = [f.weight.size for f in self.maps]
        rows = [len(f.weight) for f in self.maps]
        return float(
            sum(rows[j] * sum(sizes[max(0, j - reach) : j]) for j in range(1, len(self.maps)))
        )


def curved_change(
    before: CurvedChain, after: CurvedChain, same: tuple[bool, ...], x: Interval, shift: Interval
) -> tuple[Interval, Interval]:
    """The range of a chain over rows of intervals, and of the change to another one."""
    value, change = forward_change(before, after, same, x, shift)
    still = all(same) and shift.is_zero
    other = nothing_of(before) if still else after
    equal = tuple(part and not still for part in same)
    forms = ChainForms(before, other, equal, hull(x), hull(shift))
    forms.follow_all()
    close, moved = forms.outputs()
    value = value.meet(spread(close, value))
    if still:
        return value, change
    if len(before.functions) == 1 and shift.is_zero:
        layers = [(c.maps[0], c.functions[0], c.maps[1]) for c in (before, after)]
        found = polynomial_change(layers[0], layers[1], hull(x))
        moved = moved if found is None else moved.meet(found)
    return value, change.meet(spread(moved, value))


def nothing_of(chain: CurvedChain) -> CurvedChain:
    """A chain without neurons, beside one that is not compared with anything."""
    wide = [chain.maps[0].weight.shape[1], *(0 for _ in chain.functions)]
    rows = [*(0 for _ in chain.functions), len(chain.maps[-1].weight)]
    maps = tuple(Map(np.zeros((m, n)), np.zeros(m)) for m, n in zip(rows, wide, strict=True))
    empty = tuple(
        HiddenFunction(f.activation, tuple(p[:0] for p in f.unit_parameters))
        for f in chain.functions
    )
    return CurvedChain(maps, empty)


def hull(x: Interval) -> Interval:
    """One interval per column that holds those of all rows."""
    return Interval(x.low.min(axis=0), x.high.max(axis=0))


def spread(x: Interval, like: Interval) -> Interval:
    """One row as every row."""
    return Interval(np.broadcast_to(x.low, like.shape), np.broadcast_to(x.high, like.shape))


def forward_change(
    before: CurvedChain, after: CurvedChain, same: tuple[bool, ...], x: Interval, shift: Interval
) -> tuple[Interval, Interval]:
    """The same from layer to layer: values, and changes as long as neurons stay what they are."""
    change: Interval | None = shift
    other = x + shift
    for j, (f, g) in enumerate(zip(before.maps, after.maps, strict=True)):
        if change is not None and len(f.weight) == len(g.weight):
            value, change = affine_change(f, g, x, change, same[j])
        else:
            value, change = f(x), None
        other = g(other)
        if j == len(before.functions):
            break
        function, off = before.functions[j], np.zeros(value.shape)
        if change is not None and not change.is_zero:
            off = off + function.change_of_deviation(value.join(value + change), change)
        fits = all(
            np.array_equal(a, b)
            for a, b in zip(
                function.unit_parameters, after.functions[j].unit_parameters, strict=True
            )
        )
        change = None if change is None or not fits else function.curve.change(value, change)
        change = None if change is None else change.widened(off)
        x, other = function.range(value), after.functions[j].range(other)
    apart = other - value
    return value, apart if change is None else change.meet(apart)


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows of a map with a factor each; None: no rows at all, but as many zeros."""

    index: Indices
    factor: FloatArray | None

    @classmethod
    def all_of(cls, index: Indices) -> Rows:
        """These rows as they are."""
        return cls(index, np.ones(len(index)))

    def part(self, rows: slice) -> Rows:
        """Some of the rows."""
        return Rows(self.index[rows], None if self.factor is None else self.factor[rows])


@dataclass(eq=False)
class ChainForms:
    """Two chains over a box of inputs, followed layer by layer."""

    before: CurvedChain
    after: CurvedChain
    same: tuple[bool, ...]
    x: Interval
    shift: Interval
    layers: list[PairedLayer] = field(default_factory=list)

    def follow_all(self) -> None:
        """All layers, from the first to the last."""
        rng = np.random.default_rng(0)
        old = self.x.low + rng.random((PROBES, self.x.low.size)) * (self.x.high - self.x.low)
        new = old + self.shift.mid
        for j, function in enumerate(self.before.functions):
            f, g = self.before.maps[j], self.after.maps[j]
            old, new = old @ f.weight.T + f.bias, new @ g.weight.T + g.bias
            self.layers.append(self.followed(j, old, new))
            old, new = function.value(old), self.after.functions[j].value(new)

    def followed(self, j: int, old: FloatArray, new: FloatArray) -> PairedLayer:
        """A layer, given the hidden values of both networks at the probes."""
        function, other = self.before.functions[j], self.after.functions[j]
        after = BoundedNeurons.over(other, self.own_range(j, new_side=True))
        if self.shift.is_zero and all(self.same[: j + 1]):
            still = Interval.point(np.zeros(len(self.after.maps[j].weight)))
            pairs = NeuronPairs.same(len(still.low))
            return paired_layer(function, after, after, pairs, still)
        pairs = found_pairs(old, new, function, other)
        gap = self.gaps(j, pairs)
        before = BoundedNeurons.over(function, self.hidden_range(j, after, pairs, gap))
        return paired_layer(function, before, after, pairs, gap)

    def outputs(self) -> tuple[Interval, Interval]:
        """The range of the outputs, and of their change."""
        j = len(self.layers)
        rows = np.arange(len(self.before.maps[-1].weight))
        minus = Rows(rows, -np.ones(len(rows)))
        return self.own_range(j, new_side=False), self.bounded(j, minus, Rows.all_of(rows))

    def own_range(self, j: int, new_side: bool, rows: Indices | None = None) -> Interval:
        """The range of what map j makes of one network, or of some rows of it."""
        f = (self.after if new_side else self.before).maps[j]
        rows = np.arange(len(f.weight)) if rows is None else rows
        taken, none = Rows.all_of(rows), Rows(np.zeros(len(rows), np.intp), None)
        found = self.bounded(j, none, taken) if new_side else self.bounded(j, taken, none)
        plain = row(f(as_row(self.read(j)[new_side])))
        return found.meet(Interval(plain.low[rows], plain.high[rows]))

    def hidden_range(
        self, j: int, after: BoundedNeurons, pairs: NeuronPairs, gap: Interval
    ) -> Interval:
        """The ranges of the original's neurons: those of their partners, or else their own."""
        found = row(self.before.maps[j](as_row(self.read(j)[0])))
        if after.hidden.low.size:
            partner = Interval(after.hidden.low[pairs.partner], after.hidden.high[pairs.partner])
            found = found.meet(partner * Interval.point(pairs.factor) + gap)
        close = (pairs.factor != 0) & (gap.size <= CLOSE * found.size)
        rest = np.flatnonzero(~close)
        if not len(rest):
            return found
        closer = self.own_range(j, new_side=False, rows=rest)
        low, high = found.low.copy(), found.high.copy()
        low[rest] = np.maximum(low[rest], closer.low)
        high[rest] = np.minimum(high[rest], closer.high)
        return Interval(low, high)

    def gaps(self, j: int, pairs: NeuronPairs) -> Interval:
        """e_i = h_i − β·h′_r of all neurons."""
        if not len(self.after.maps[j].weight):
            return row(self.before.maps[j](as_row(self.read(j)[0])))
        rows = np.arange(len(pairs.factor))
        found = self.bounded(j, Rows.all_of(rows), Rows(pairs.partner, -pairs.factor))
        same = self.equal_rows(j, pairs)
        return Interval(np.where(same, 0.0, found.low), np.where(same, 0.0, found.high))

    def equal_rows(self, j: int, pairs: NeuronPairs) -> npt.NDArray[np.bool_]:
        """Which neurons of the first layer have the very row of their partner."""
        f, g = self.before.maps[j], self.after.maps[j]
        if j or f.steps or g.steps or not self.shift.is_zero:
            return np.zeros(len(f.weight), dtype=bool)
        same = np.all(f.weight == g.weight[pairs.partner], axis=1)
        return np.asarray(same & (f.bias == g.bias[pairs.partner]) & (pairs.factor == 1))

    def read(self, j: int) -> tuple[Interval, Interval]:
        """The ranges of what map j reads in both networks."""
        if j == 0:
            return self.x, self.x + self.shift
        return self.layers[j - 1].before.made, self.layers[j - 1].after.made

    def bounded(self, j: int, old: Rows, new: Rows) -> Interval:
        """The range of sums of a row of map j of the original and one of the other network."""
        step = max(1, MOST_FORM_CHUNK // max(1, *self.widest))
        parts = [
            self.form_range(self.form(j, old.part(rows), new.part(rows)), j)
            for rows in slices(len(old.index), step)
        ]
        if not parts:
            return Interval.point(np.zeros(0))
        return Interval(
            np.concatenate([p.low for p in parts]), np.concatenate([p.high for p in parts])
        )

    @property
    def widest(self) -> list[int]:
        """The numbers of columns of all forms."""
        return [f.weight.shape[1] for chain in (self.before, self.after) for f in chain.maps]

    def form(self, j: int, old: Rows, new: Rows) -> Form:
        """Sums of rows of map j of both networks, as forms in what it reads."""
        weights, rest, rounding = [], Interval.point(np.zeros(len(old.index))), 0.0
        maps = self.before.maps[j], self.after.maps[j]
        for f, rows, read in zip(maps, (old, new), self.read(j), strict=True):
            if rows.factor is None:
                weights.append(np.zeros((len(rows.index), f.weight.shape[1])))
                continue
            weights.append(rows.factor[:, None] * f.weight[rows.index])
            rest = rest + Interval.point(rows.factor * f.bias[rows.index])
            size = f.magnitude(as_row(read).size)[0][rows.index]
            rounding = rounding + gamma(f.steps + FEW_STEPS) * np.abs(rows.factor) * size
        return Form(weights[0], weights[1], rest.widened(rounding * OUTWARD))

    def form_range(self, form: Form, j: int) -> Interval:
        """The range of forms in what map j reads, followed back as far as that is affordable."""
        found: Interval | None = None
        for i in reversed(range(j)):
            layer, maps = self.layers[i], (self.before.maps[i], self.after.maps[i])
            form = layer.before_activation(form)
            here = layer.range(form)
            found = here if found is None else found.meet(here)
            if j - i > self.reach:
                return found
            read, other = self.read(i)
            form = back_through(form, maps, (read.size, other.size))
        here = input_range(form, self.x, self.shift)
        return here if found is None else found.meet(here)

    @cached_property
    def reach(self) -> int:
        """Through how many layers forms are followed back."""
        depth = len(self.before.functions)
        costs = [WORK_FACTOR * (self.before.work(k) + self.after.work(k)) for k in range(depth + 1)]
        return max(k for k, cost in enumerate(costs) if k == 0 or cost <= MOST_LINE_WORK)


def slices(count: int, step: int) -> Iterator[slice]:
    """Consecutive slices of at most `step`."""
    yield from (slice(i, i + step) for i in range(0, count, step))
