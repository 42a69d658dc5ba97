"""Bounds on affine maps and on a layer of squares, over rows of intervals.

    y = W x + b,   y′(x + δ) − y(x) = W′δ + (W′ − W)x + b′ − b

Maps can be composed. The composed weights are then off by at most γ_k·(the same composition on
absolute values); a `Map` keeps that composition as `size`, and k as `steps`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from onnxfde.neurons.intervals import Interval, gamma, square_change
from onnxfde.neurons.layer import Layer
from onnxfde.numbers import FloatArray

OUTWARD = 1.001
"""A factor on every margin, which is itself rounded. Chosen: γ_k stays below 0.001 for any k up to
8e12, more operations than a margin is ever made of; not tuned."""


@dataclass(frozen=True, eq=False)
class Map:
    """y = W x + b, whose weights are the result of `steps` roundings."""

    weight: FloatArray
    bias: FloatArray
    steps: int = 0
    composed: tuple[FloatArray, FloatArray] | None = None
    """|W|, |b| as composed of absolute values; None where nothing was composed."""

    @property
    def size(self) -> tuple[FloatArray, FloatArray]:
        """|W|, |b| as composed of absolute values, without cancellation."""
        return self.composed or (np.abs(self.weight), np.abs(self.bias))

    @property
    def finite(self) -> bool:
        """Whether every weight is a finite number."""
        return all(np.isfinite(a).all() for a in (self.weight, self.bias, *self.size))

    def then(self, after: Map) -> Map:
        """This map followed by another one."""
        (w, b), (v, c) = self.size, after.size
        return Map(
            after.weight @ self.weight,
            after.weight @ self.bias + after.bias,
            self.steps + after.steps + len(self.weight) + 2,
            (v @ w, v @ b + c),
        )

    def scaled(self, scale: FloatArray, shift: FloatArray) -> Map:
        """This map, then a factor and a term for each output."""
        (w, b), factor = self.size, np.abs(scale)
        exact = np.all(scale == 1) and not np.any(self.bias)
        return Map(
            scale[:, None] * self.weight,
            scale * self.bias + shift,
            self.steps + (0 if exact else 3),
            (factor[:, None] * w, factor * b + np.abs(shift)),
        )

    def preceded(self, scale: FloatArray, shift: FloatArray) -> Map:
        """A factor and a term for each input, then this map."""
        w, b = self.size
        return Map(
            self.weight * scale,
            self.bias + self.weight @ shift,
            self.steps + self.weight.shape[1] + 3,
            (w * np.abs(scale), b + w @ np.abs(shift)),
        )

    def magnitude(self, x: FloatArray) -> FloatArray:
        """|W| x + |b| for rows x of absolute values."""
        return np.asarray(x @ self.size[0].T + self.size[1])

    def __call__(self, x: Interval) -> Interval:
        """The range of W x + b over rows of intervals."""
        rounding = gamma(self.steps) * OUTWARD * self.magnitude(x.size) if self.steps else 0.0
        return linear(self.weight, x, self.bias).widened(rounding)


def linear(weight: FloatArray, x: Interval, bias: FloatArray | None = None) -> Interval:
    """The range of W x (+ b) over rows of intervals, for weights without rounding errors."""
    absolute = np.abs(weight)
    steps = weight.shape[1] + 1
    return x.linear(lambda a: a @ weight.T, lambda a: a @ absolute.T, steps, bias)


def affine_change(
    before: Map, after: Map, x: Interval, shift: Interval, same: bool
) -> tuple[Interval, Interval]:
    """The range of an affine map, and of the change to another one: W′δ + (W′ − W)x + b′ − b."""
    change = linear(after.weight, shift)
    if after.steps and not shift.is_zero:
        change = change.widened(gamma(after.steps) * OUTWARD * (shift.size @ after.size[0].T))
    if not same:
        gap = linear(after.weight - before.weight, x, after.bias - before.bias)
        for f in (before, after):
            gap = gap.widened(gamma(f.steps + 1) * OUTWARD * f.magnitude(x.size))
        change = change + gap
    return before(x), change


Squares = tuple[Map, Map]
"""A layer of squares: the map before them and the map after them."""


def squares(layer: Layer) -> Squares:
    """A layer with its stored weights."""
    first = Map(layer.incoming[:, :-1], layer.incoming[:, -1])
    return first, Map(layer.outgoing, layer.offset)


def layer_range(layer: Squares, x: Interval) -> Interval:
    """The range of a layer, from the range of each neuron."""
    return layer[1](layer[0](x).squared())


def layer_shift(layer: Squares, x: Interval, shift: Interval) -> Interval:
    """The range of o(x + δ) − o(x), from the range of each neuron."""
    first, second = layer
    if shift.is_zero:
        return Interval.point(np.zeros((len(x.low), len(second.weight))))
    hidden, change = first(x), affine_change(first, first, x, shift, same=True)[1]
    squared = square_change(hidden, change)
    rounding = gamma(second.steps) * OUTWARD * (squared.size @ second.size[0].T)
    return linear(second.weight, squared).widened(rounding)


def layer_magnitude(layer: Squares, x: FloatArray) -> FloatArray:
    """A: the layer on absolute values, for rows x of absolute values."""
    first, second = layer
    return second.magnitude(first.magnitude(x) ** 2)
