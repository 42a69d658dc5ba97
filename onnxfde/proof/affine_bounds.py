"""Affine maps, and squares between them, over rows of intervals.

    y = W x + b,   y′(x + δ) − y(x) = W′δ + (W′ − W)x + b′ − b

Maps may be composed: the rounding of the composed weights is at most γ_k·(the same composition on
absolute values), which a `Map` carries along as `size`, with k as `steps`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from onnxfde.neurons.intervals import Interval, gamma, square_change
from onnxfde.neurons.layer import Layer
from onnxfde.numbers import FloatArray

FINAL = 1.001
"""Covers the rounding of a margin itself."""


@dataclass(frozen=True, eq=False)
class Map:
    """y = W x + b, after this many roundings of the weights."""

    weight: FloatArray
    bias: FloatArray
    steps: int = 0
    composed: tuple[FloatArray, FloatArray] | None = None
    """|W|, |b| before any cancellation, where there was some."""

    @property
    def size(self) -> tuple[FloatArray, FloatArray]:
        """|W|, |b| before any cancellation."""
        return self.composed or (np.abs(self.weight), np.abs(self.bias))

    @property
    def finite(self) -> bool:
        """Whether every weight is a number."""
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
        """This map followed by factors and terms."""
        (w, b), factor = self.size, np.abs(scale)
        return Map(
            scale[:, None] * self.weight,
            scale * self.bias + shift,
            self.steps + 3,
            (factor[:, None] * w, factor * b + np.abs(shift)),
        )

    def preceded(self, scale: FloatArray, shift: FloatArray) -> Map:
        """Factors and terms followed by this map."""
        w, b = self.size
        return Map(
            self.weight * scale,
            self.bias + self.weight @ shift,
            self.steps + self.weight.shape[1] + 3,
            (w * np.abs(scale), b + w @ np.abs(shift)),
        )

    def magnitude(self, x: FloatArray) -> FloatArray:
        """|W| x + |b| for rows of absolute values."""
        return np.asarray(x @ self.size[0].T + self.size[1])

    def __call__(self, x: Interval) -> Interval:
        """All values over rows of intervals."""
        rounding = gamma(self.steps) * FINAL * self.magnitude(x.size) if self.steps else 0.0
        return linear(self.weight, x, self.bias).widened(rounding)


def linear(weight: FloatArray, x: Interval, bias: FloatArray | None = None) -> Interval:
    """W x (+ b) over rows of intervals."""
    absolute = np.abs(weight)
    steps = weight.shape[1] + 1
    return x.linear(lambda a: a @ weight.T, lambda a: a @ absolute.T, steps, bias)


def affine_change(
    before: Map, after: Map, x: Interval, shift: Interval, same: bool
) -> tuple[Interval, Interval]:
    """The range of an affine map, and of the change to another one: W′δ + (W′ − W)x + b′ − b."""
    change = linear(after.weight, shift)
    if after.steps and not shift.is_zero:
        change = change.widened(gamma(after.steps) * FINAL * (shift.size @ after.size[0].T))
    if not same:
        gap = linear(after.weight - before.weight, x, after.bias - before.bias)
        for f in (before, after):
            gap = gap.widened(gamma(f.steps + 1) * FINAL * f.magnitude(x.size))
        change = change + gap
    return before(x), change


Squares = tuple[Map, Map]
"""A layer of squares: the map before them and the map behind them."""


def squares(layer: Layer) -> Squares:
    """A layer whose arrays are what is stored."""
    first = Map(layer.incoming[:, :-1], layer.incoming[:, -1])
    return first, Map(layer.outgoing, layer.offset)


def through(layer: Squares, x: Interval) -> Interval:
    """The range of a layer neuron by neuron."""
    return layer[1](layer[0](x).squared())


def moved(layer: Squares, x: Interval, shift: Interval) -> Interval:
    """o(x + δ) − o(x) neuron by neuron."""
    first, second = layer
    if shift.is_zero:
        return Interval.point(np.zeros((len(x.low), len(second.weight))))
    hidden, change = first(x), affine_change(first, first, x, shift, same=True)[1]
    squared = square_change(hidden, change)
    rounding = gamma(second.steps) * FINAL * (squared.size @ second.size[0].T)
    return linear(second.weight, squared).widened(rounding)


def magnitude(layer: Squares, x: FloatArray) -> FloatArray:
    """A: the layer on absolute values, for rows of absolute values."""
    first, second = layer
    return second.magnitude(first.magnitude(x) ** 2)
