"""Linear forms in the neurons of two networks, followed back through a layer.

    A·s + B·s′ + rest,     s = σ(h), h = F x,  s′ = σ(h′), h′ = F′ x′

A neuron i of the original that a neuron r of the other network stands for, h_i = β·h′_r + e_i, is

    s_i = σ(β h′_r) + m·e_i + ρ_i = κ·s′_r + λ·h′_r + constant + m·e_i + ρ_i

where m is the middle of σ's slopes, |ρ_i| at most half their spread times |e_i|, and κ = β^degree;
λ and the constant come from a reflection. Every other neuron lies between two parallel lines,
s = a·h + [low, high]. What is left is a form in h and h′, and so in what the layer reads:

    (A∘m)·h + (…)·h′ + rest′  =  (A∘m)·F x + (…)·F′ x′ + rest″

If neurons were merged exactly the weights of all s′_r cancel up to rounding, and so does what
their lines leave open. All sums are widened by γ_k times the same sum on absolute values.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from onnxfde.neurons.intervals import Interval, gamma
from onnxfde.numbers import FloatArray
from onnxfde.proof.affine_bounds import OUTWARD, Map, linear
from onnxfde.proof.hidden_functions import HiddenFunction
from onnxfde.proof.line_bounds import Lines, lines_around
from onnxfde.proof.neuron_pairs import NeuronPairs

FEW_STEPS = 12
"""More roundings than a coefficient goes through beside the sums it is part of."""
TRACKED = 1e-9
"""How large e_i must be, relative to h_i, for its dependence on the input to be followed: below,
all that matters is that it is small. Chosen; not tuned."""


@dataclass(frozen=True, eq=False)
class Form:
    """A·s + B·s′ + rest: one row per form."""

    old: FloatArray
    new: FloatArray
    rest: Interval

    def part(self, rows: slice) -> Form:
        """Some of the forms."""
        rest = Interval(self.rest.low[rows], self.rest.high[rows])
        return Form(self.old[rows], self.new[rows], rest)


@dataclass(frozen=True, eq=False)
class BoundedNeurons:
    """The neurons of one layer of one network: ranges before and after the activation, lines."""

    hidden: Interval
    made: Interval
    lines: Lines

    @classmethod
    def over(cls, function: HiddenFunction, hidden: Interval) -> BoundedNeurons:
        """The neurons of which these are the ranges."""
        lines = lines_around(function.curve, hidden)
        off = function.deviation(hidden)
        found = Lines(lines.slope, lines.rest.widened(off) if off else lines.rest)
        return cls(hidden, function.range(hidden), found)

    @property
    def line_size(self) -> FloatArray:
        """|s| + |a·h|, at most."""
        return self.made.size + np.abs(self.lines.slope) * self.hidden.size


@dataclass(frozen=True, eq=False)
class PairedLayer:
    """A layer in both networks, and what each neuron of the original is made of.

    s_i = gain·s′_r + tilt·h′_r + own·h_i + rest,  r the partner of i
    """

    before: BoundedNeurons
    after: BoundedNeurons
    pairs: NeuronPairs
    gap: Interval
    """e_i = h_i − β·h′_r, or h_i itself where β = 0."""
    gain: FloatArray
    tilt: FloatArray
    own: FloatArray
    rest: Interval
    size: FloatArray
    """The terms of s_i on absolute values."""

    @property
    def steps(self) -> int:
        """Roundings of a sum over all neurons with the same partner."""
        taken = self.pairs.partner[self.pairs.factor != 0]
        return int(np.bincount(taken, minlength=1).max()) + FEW_STEPS

    def gathered(self, a: FloatArray) -> FloatArray:
        """Columns that belong to neurons of the original, added up for each partner."""
        found = np.zeros((len(a), self.after.hidden.low.size))
        if a.size and found.size and a.any():
            order = np.argsort(self.pairs.partner, kind="stable")
            first = np.unique(self.pairs.partner[order], return_index=True)
            found[:, first[0]] = np.add.reduceat(a[:, order], first[1], axis=1)
        return found

    def before_activation(self, form: Form) -> Form:
        """The form in h and h′."""
        a, lines = form.old, self.after.lines
        weight = form.new + self.gathered(a * self.gain)
        rest = form.rest + row(linear(a, as_row(self.rest)))
        rest = rest + row(linear(weight, as_row(lines.rest)))
        rounding = np.abs(a) @ self.size + np.abs(form.new) @ self.after.line_size
        rest = rest.widened(gamma(self.steps) * OUTWARD * rounding)
        return Form(a * self.own, weight * lines.slope + self.gathered(a * self.tilt), rest)

    def range(self, form: Form) -> Interval:
        """The range of a form in h and h′."""
        factor, other = self.pairs.factor, self.after.hidden
        partners = other.size[self.pairs.partner] if other.low.size else 0.0
        weight = form.new + self.gathered(form.old * factor)
        found = form.rest + row(linear(form.old, as_row(self.gap)))
        found = found + row(linear(weight, as_row(other)))
        rounding = np.abs(form.old) @ (np.abs(factor) * partners) + np.abs(form.new) @ other.size
        return found.widened(gamma(self.steps) * OUTWARD * rounding)


def paired_layer(
    function: HiddenFunction,
    before: BoundedNeurons,
    after: BoundedNeurons,
    pairs: NeuronPairs,
    gap: Interval,
) -> PairedLayer:
    """What each neuron of the original is made of: of its partner, if that is closer than lines."""
    own, rest = tracked(function, before, after, pairs, gap)
    far = (rest.high - rest.low) > (before.lines.rest.high - before.lines.rest.low)
    alone = (pairs.factor == 0) | far
    factor = np.where(alone, 0.0, pairs.factor)
    gain, line, constant = reflected(function, factor)
    if function.spelled is not None:
        off = function.deviation(before.hidden) + np.abs(gain) * function.deviation(after.hidden)
        little = function.change_of_deviation(hull_of(before.hidden, after.hidden), gap)
        rest = rest.widened(np.where(factor == 1, little, off))
    rest = Interval.point(constant) + rest if np.any(constant) else rest
    own = np.where(alone, before.lines.slope, own)
    lines = before.lines.rest
    partner = pairs.partner
    reach = after.hidden.size[partner] if after.hidden.low.size else np.zeros(len(factor))
    made = after.line_size[partner] if after.hidden.low.size else np.zeros(len(factor))
    moved = np.where(alone, 0.0, own * factor)
    size = (np.abs(line) + np.abs(moved)) * reach + np.abs(gain) * made
    return PairedLayer(
        before,
        after,
        NeuronPairs(partner, factor),
        chosen(alone, before.hidden, gap),
        gain,
        line - moved,
        own,
        chosen(alone, lines, rest),
        size + np.abs(own) * before.hidden.size + before.made.size,
    )


def tracked(
    function: HiddenFunction,
    before: BoundedNeurons,
    after: BoundedNeurons,
    pairs: NeuronPairs,
    gap: Interval,
) -> tuple[FloatArray, Interval]:
    """The mean slope m and ρ of each neuron with a partner; m is 0 where e_i is tiny."""
    count, curve = len(pairs.factor), function.curve
    if not after.hidden.low.size:
        return np.zeros(count), Interval.point(np.zeros(count))
    partner = Interval(after.hidden.low[pairs.partner], after.hidden.high[pairs.partner])
    start = partner * Interval.point(pairs.factor)
    change = curve.change(start, gap)
    slopes = curve.slope(start.join(before.hidden))
    reach = slopes.rad * gap.size * OUTWARD
    follow = (gap.size > TRACKED * before.hidden.size) & np.isfinite(slopes.mid)
    follow &= not curve.jumps
    rest = chosen(follow, Interval(-reach, reach), change)
    return np.where(follow, slopes.mid, 0.0), rest


def reflected(
    function: HiddenFunction, factor: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """σ(β·t) = gain·σ(t) + line·t + constant."""
    activation, zero = function.activation, np.zeros_like(factor)
    gain = np.abs(factor) ** (activation.degree or 1) * (factor != 0)
    if activation.reflection is None:
        return gain, zero, zero
    negative = factor < 0
    sign, line, constant = activation.reflection
    return (
        np.where(negative, sign * gain, gain),
        np.where(negative, line * np.abs(factor), zero),
        np.where(negative, constant, zero),
    )


def back_through(form: Form, maps: tuple[Map, Map], read: tuple[FloatArray, FloatArray]) -> Form:
    """A form in h and h′ as one in what the maps read, of which the sizes are given."""
    weights, rest = [], form.rest
    for a, f, size in zip((form.old, form.new), maps, read, strict=True):
        weights.append(a @ f.weight if a.any() else np.zeros((len(a), f.weight.shape[1])))
        if not a.any():
            continue
        steps = a.shape[1] + f.steps + FEW_STEPS
        rounding = gamma(steps) * OUTWARD * (np.abs(a) @ f.magnitude(size[None])[0])
        rest = (rest + Interval.point(a @ f.bias)).widened(rounding)
    return Form(weights[0], weights[1], rest)


def input_range(form: Form, x: Interval, shift: Interval) -> Interval:
    """The range of a form in x and x′ = x + δ."""
    found = form.rest + row(linear(form.old + form.new, as_row(x)))
    rounding = (np.abs(form.old) + np.abs(form.new)) @ x.size
    found = found.widened(gamma(FEW_STEPS) * OUTWARD * rounding)
    return found if shift.is_zero else found + row(linear(form.new, as_row(shift)))


def hull_of(*parts: Interval) -> Interval:
    """One interval that holds all of some."""
    full = [part for part in parts if part.low.size]
    low, high = min(p.low.min() for p in full), max(p.high.max() for p in full)
    return Interval(np.asarray(low), np.asarray(high))


def chosen(first: npt.NDArray[np.bool_], a: Interval, b: Interval) -> Interval:
    """The one interval where a condition holds, the other one elsewhere."""
    return Interval(np.where(first, a.low, b.low), np.where(first, a.high, b.high))


def as_row(x: Interval) -> Interval:
    """One row of intervals."""
    return Interval(x.low[None], x.high[None])


def row(x: Interval) -> Interval:
    """The only row."""
    return Interval(x.low[0], x.high[0])
