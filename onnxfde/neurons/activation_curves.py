"""Activation functions as curves: their range and the range of their slope over an interval.

    f(x′) − f(x) = f′(ξ)(x′ − x),  ξ between x and x′

A curve is monotone between the points where it may turn, which it lists. For softmax
p_i′ − p_i = p_i(1 − p_i)·(δ_i − a mean of the other δ), which is at most a quarter of the spread
(maximum − minimum) of δ, as p(1 − p) ≤ 1/4.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from onnxfde.neurons.activation_functions import (
    error_function,
    error_function_slope,
    hard_swish,
    logistic,
    logistic_slope,
    softplus,
    tanh_slope,
)
from onnxfde.neurons.intervals import UNIT, Interval, Pair
from onnxfde.numbers import FloatArray

FUNCTION_STEPS = 8
"""The relative error of numpy's exp, tanh, … in units of u: 8u are 4 units in the last place. An
assumption about the math library; not measured."""
Function = Callable[[FloatArray], FloatArray]


Ends = tuple[FloatArray, FloatArray]
"""The least and the largest value on an interval."""


@dataclass(frozen=True, eq=False)
class Curve:
    """A function of one variable, the bounds of its slope, and where it may turn."""

    function: Function
    slopes: Callable[[FloatArray, FloatArray], Ends]
    """The least and the largest slope between two points, jumps aside."""
    turns: tuple[float, ...] = ()
    smooth: bool = False
    terms: Function | None = None
    """The terms of a sum that may cancel, on absolute values, if the function computes one."""
    kinks: tuple[float, ...] = ()
    """Where the slope may jump."""
    jumps: tuple[tuple[float, float], ...] = ()
    """Where the function jumps, and by how much; at the place itself it has not jumped yet."""
    extremes: Callable[[FloatArray, FloatArray], Ends] | None = None
    """The least and largest value between two points, of a function with countless turns."""

    def range(self, x: Interval) -> Interval:
        """The range of the function over an interval."""
        if self.extremes is not None:
            found = Interval(*self.extremes(x.low, x.high))
        else:
            ends = [self.function(x.low), self.function(x.high)]
            ends += [self.function(np.clip(turn, x.low, x.high)) for turn in self.turns]
            found = Interval(np.minimum.reduce(ends), np.maximum.reduce(ends))
        most = found.size if self.terms is None else found.size + self.terms(x.size)
        return found.widened(FUNCTION_STEPS * UNIT * most)

    def slope(self, x: Interval) -> Interval:
        """The range of the slope over an interval, jumps aside."""
        found = Interval(*self.slopes(x.low, x.high))
        if not self.smooth:
            return found
        return found.widened(2 * FUNCTION_STEPS * UNIT * np.maximum(found.size, 1.0))

    def change(self, value: Interval, change: Interval) -> Interval:
        """The range of f(x + δ) − f(x)."""
        other = value if change.is_zero else value + change
        found = self.slope(value.join(other)) * change
        for place, height in self.jumps:
            found = found + jump_change(place, value, other, change) * point(height)
        return found.meet(self.range(other) - self.range(value))

    def __call__(self, x: Pair) -> Pair:
        """The curve applied to a value and its change."""
        value, slope = self.range(x.value), self.slope(x.value.join(x.other))
        return Pair(value, self.change(x.value, x.change), slope.size * x.size + value.size)


def point(value: float) -> Interval:
    """One number as an interval."""
    return Interval.point(np.asarray(value))


def jump_change(place: float, value: Interval, other: Interval, change: Interval) -> Interval:
    """The range of [x + δ > place] − [x > place]."""
    up = (value.low <= place) & (other.high > place) & (change.high > 0)
    down = (value.high > place) & (other.low <= place) & (change.low < 0)
    return Interval(np.where(down, -1.0, 0.0), np.where(up, 1.0, 0.0))


def smooth_curve(
    function: Function,
    slope: Function,
    turns: tuple[float, ...] = (),
    bends: tuple[float, ...] = (),
    terms: Function | None = None,
) -> Curve:
    """A function whose slope is continuous and monotone between its bends."""

    def slopes(low: FloatArray, high: FloatArray) -> Ends:
        ends = [slope(low), slope(high), *(slope(np.clip(bend, low, high)) for bend in bends)]
        return np.minimum.reduce(ends), np.maximum.reduce(ends)

    return Curve(function, slopes, turns, smooth=True, terms=terms)


def broken(left: float | FloatArray, right: float) -> Curve:
    """Two half-lines: left·x below 0 and right·x above."""

    def slopes(low: FloatArray, high: FloatArray) -> Ends:
        first, last = np.where(low < 0, left, right), np.where(high > 0, right, left)
        return np.minimum(first, last), np.maximum(first, last)

    return Curve(lambda x: np.where(x < 0, left * x, right * x), slopes, (0.0,), kinks=(0.0,))


def bell(function: Function, slope: Function) -> Curve:
    """An increasing function whose slope is even, largest at 0, and falls on both sides."""

    def slopes(low: FloatArray, high: FloatArray) -> Ends:
        nearest, farthest = np.clip(0.0, low, high), np.maximum(np.abs(low), np.abs(high))
        return np.maximum(slope(farthest), 0.0), slope(nearest)

    return Curve(function, slopes, smooth=True)


def clipped(least: float, most: float, slope: float = 1.0, shift: float = 0.0) -> Curve:
    """slope·x + shift, clipped to two limits."""
    exact = slope == 1.0 and shift == 0.0

    def function(x: FloatArray) -> FloatArray:
        return np.minimum(np.maximum(slope * x + shift, least), most)

    def slopes(low: FloatArray, high: FloatArray) -> Ends:
        ends = slope * low + shift, slope * high + shift
        slack = 0.0 if exact else FUNCTION_STEPS * UNIT * (sum(map(np.abs, ends)) + abs(shift))
        lower, upper = np.minimum(*ends) - slack, np.maximum(*ends) + slack
        always, never = (lower >= least) & (upper <= most), (upper <= least) | (lower >= most)
        first, last = np.where(always, slope, 0.0), np.where(never, 0.0, slope)
        return np.minimum(first, last), np.maximum(first, last)

    def terms(size: FloatArray) -> FloatArray:
        return abs(slope) * size + abs(shift)

    places = [(limit - shift) / slope for limit in (least, most)] if slope else []
    kinks = tuple(sorted(k for k in places if np.isfinite(k)))
    return Curve(function, slopes, smooth=not exact, terms=None if exact else terms, kinks=kinks)


def elu_curve(alpha: float) -> Curve:
    """alpha·(eˣ − 1) below 0, x above."""

    def function(x: FloatArray) -> FloatArray:
        return np.where(x < 0, alpha * np.expm1(np.minimum(x, 0.0)), x)

    def slopes(low: FloatArray, high: FloatArray) -> Ends:
        first = alpha * np.exp(np.minimum(low, 0.0))
        last = alpha * np.exp(np.minimum(high, 0.0))
        least, most = np.minimum(first, last), np.maximum(first, last)
        least = np.where(high > 0, np.minimum(least, 1.0), least)
        most = np.where(high > 0, np.maximum(most, 1.0), most)
        above = low >= 0
        return np.where(above, 1.0, least), np.where(above, 1.0, most)

    return Curve(function, slopes, (0.0,), smooth=True, kinks=(0.0,))


def hard_swish_curve() -> Curve:
    """x·(x/6 + ½), the factor clipped to [0, 1]."""

    def slopes(low: FloatArray, high: FloatArray) -> Ends:
        first, last = (np.clip(end, -3.0, 3.0) / 3 + 0.5 for end in (low, high))
        least = np.where(high > 3, np.minimum(first, 1.0), first)
        most = np.where(low < -3, np.maximum(last, 0.0), last)
        off, on = high <= -3, low >= 3
        return np.where(off, 0.0, np.where(on, 1.0, least)), np.where(
            off, 0.0, np.where(on, 1.0, most)
        )

    return Curve(hard_swish, slopes, (-1.5,), smooth=True, terms=np.abs, kinks=(-3.0, 3.0))


def threshold_curve(place: float) -> Curve:
    """X above the place, else 0."""

    def slopes(low: FloatArray, high: FloatArray) -> Ends:
        return np.where(low >= place, 1.0, 0.0), np.where(high > place, 1.0, 0.0)

    behind = float(np.nextafter(place, np.inf))
    return Curve(
        lambda x: np.where(x > place, x, 0.0),
        slopes,
        (place, behind),
        kinks=(place,),
        jumps=((place, place),),
    )


def scaled_curve(curve: Curve, factor: float) -> Curve:
    """The function times a constant."""

    def scaled(ends: Ends) -> Ends:
        low, high = factor * ends[0], factor * ends[1]
        return (low, high) if factor >= 0 else (high, low)

    terms, extremes = curve.terms, curve.extremes
    return Curve(
        lambda x: factor * curve.function(x),
        lambda low, high: scaled(curve.slopes(low, high)),
        curve.turns,
        smooth=True,
        terms=None if terms is None else lambda size: abs(factor) * terms(size),
        kinks=curve.kinks,
        jumps=tuple((place, factor * height) for place, height in curve.jumps),
        extremes=None if extremes is None else lambda low, high: scaled(extremes(low, high)),
    )


def wave_range(low: FloatArray, high: FloatArray, first: float) -> Ends:
    """The range of a sine whose first crest is at `first`, but for the ends of the interval."""
    slack = 4 * FUNCTION_STEPS * UNIT * (1 + np.maximum(np.abs(low), np.abs(high)))

    def reaches(place: float) -> FloatArray:
        turn = np.ceil((low - slack - place) / (2 * np.pi)) * (2 * np.pi) + place
        return np.asarray(turn <= high + slack)

    return np.where(reaches(first + np.pi), -1.0, 1.0), np.where(reaches(first), 1.0, -1.0)


def sine_curve() -> Curve:
    """The sine, whose slope is the cosine."""

    def between(function: Function, first: float) -> Callable[[FloatArray, FloatArray], Ends]:
        def ends(low: FloatArray, high: FloatArray) -> Ends:
            least, most = wave_range(low, high, first)
            values = function(low), function(high)
            return np.minimum(least, np.minimum(*values)), np.maximum(most, np.maximum(*values))

        return ends

    return Curve(np.sin, between(np.cos, 0.0), smooth=True, extremes=between(np.sin, np.pi / 2))


RELU_CURVE, ABS_CURVE = broken(0.0, 1.0), broken(-1.0, 1.0)
SIGMOID_CURVE = bell(logistic, logistic_slope)
TANH_CURVE = bell(lambda x: np.asarray(np.tanh(x)), tanh_slope)
ERF_CURVE = bell(error_function, error_function_slope)
SOFTPLUS_CURVE = smooth_curve(softplus, logistic)


def softmax(x: Pair, axes: tuple[int, ...]) -> Pair:
    """Softmax over some axes."""
    most = np.max(x.change.high, axis=axes, keepdims=True)
    least = np.min(x.change.low, axis=axes, keepdims=True)
    spread = np.minimum((most - least) * (0.25 + FUNCTION_STEPS * UNIT), 1.0)
    ones = np.ones(x.shape)
    size = np.max(x.size, axis=axes, keepdims=True) * ones + 1.0
    change = Interval(-spread * ones, spread * ones)
    return Pair(Interval(np.zeros(x.shape), ones), change, size)
