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

from onnxfde.neurons.intervals import UNIT, Interval, Pair
from onnxfde.numbers import FloatArray

FUNCTION_STEPS = 8
"""The relative error of numpy's exp, tanh, … in units of u: 8u are 4 units in the last place. An
assumption about the math library; not measured."""
Function = Callable[[FloatArray], FloatArray]


@dataclass(frozen=True, eq=False)
class Curve:
    """A function of one variable, the bounds of its slope, and where it may turn."""

    function: Function
    slopes: Callable[[FloatArray, FloatArray], tuple[FloatArray, FloatArray]]
    turns: tuple[float, ...] = ()
    smooth: bool = False
    terms: Function | None = None
    """The terms of a sum that may cancel, on absolute values, if the function computes one."""

    def range(self, x: Interval) -> Interval:
        """The range of the function over an interval."""
        ends = [self.function(x.low), self.function(x.high)]
        ends += [self.function(np.clip(turn, x.low, x.high)) for turn in self.turns]
        found = Interval(np.minimum.reduce(ends), np.maximum.reduce(ends))
        most = found.size if self.terms is None else found.size + self.terms(x.size)
        return found.widened(FUNCTION_STEPS * UNIT * most)

    def slope(self, x: Interval) -> Interval:
        """The range of the slope over an interval."""
        found = Interval(*self.slopes(x.low, x.high))
        if not self.smooth:
            return found
        return found.widened(2 * FUNCTION_STEPS * UNIT * np.maximum(found.size, 1.0))

    def __call__(self, x: Pair) -> Pair:
        """The curve applied to a value and its change."""
        value, slope = self.range(x.value), self.slope(x.value.join(x.other))
        change = (slope * x.change).meet(self.range(x.other) - value)
        return Pair(value, change, slope.size * x.size + value.size)


def broken(left: float, right: float) -> Curve:
    """Two half-lines: left·x below 0 and right·x above."""

    def slopes(low: FloatArray, high: FloatArray) -> tuple[FloatArray, FloatArray]:
        first, last = np.where(low < 0, left, right), np.where(high > 0, right, left)
        return np.minimum(first, last), np.maximum(first, last)

    return Curve(lambda x: np.where(x < 0, left * x, right * x), slopes, (0.0,))


def bell(function: Function, slope: Function) -> Curve:
    """An increasing function whose slope is even, largest at 0, and falls on both sides."""

    def slopes(low: FloatArray, high: FloatArray) -> tuple[FloatArray, FloatArray]:
        nearest, farthest = np.clip(0.0, low, high), np.maximum(np.abs(low), np.abs(high))
        return np.maximum(slope(farthest), 0.0), slope(nearest)

    return Curve(function, slopes, smooth=True)


def clipped(least: float, most: float, slope: float = 1.0, shift: float = 0.0) -> Curve:
    """slope·x + shift, clipped to two limits."""

    def function(x: FloatArray) -> FloatArray:
        return np.minimum(np.maximum(slope * x + shift, least), most)

    def slopes(low: FloatArray, high: FloatArray) -> tuple[FloatArray, FloatArray]:
        ends = slope * low + shift, slope * high + shift
        slack = FUNCTION_STEPS * UNIT * (np.abs(ends[0]) + np.abs(ends[1]) + abs(shift))
        lower, upper = np.minimum(*ends) - slack, np.maximum(*ends) + slack
        always, never = (lower > least) & (upper < most), (upper < least) | (lower > most)
        first, last = np.where(always, slope, 0.0), np.where(never, 0.0, slope)
        return np.minimum(first, last), np.maximum(first, last)

    def terms(size: FloatArray) -> FloatArray:
        return abs(slope) * size + abs(shift)

    exact = slope == 1.0 and shift == 0.0
    return Curve(function, slopes, smooth=not exact, terms=None if exact else terms)


def elu_curve(alpha: float) -> Curve:
    """alpha·(eˣ − 1) below 0, x above."""

    def function(x: FloatArray) -> FloatArray:
        return np.where(x < 0, alpha * np.expm1(np.minimum(x, 0.0)), x)

    def slopes(low: FloatArray, high: FloatArray) -> tuple[FloatArray, FloatArray]:
        first = alpha * np.exp(np.minimum(low, 0.0))
        last = alpha * np.exp(np.minimum(high, 0.0))
        least, most = np.minimum(first, last), np.maximum(first, last)
        least = np.where(high >= 0, np.minimum(least, 1.0), least)
        most = np.where(high >= 0, np.maximum(most, 1.0), most)
        above = low > 0
        return np.where(above, 1.0, least), np.where(above, 1.0, most)

    return Curve(function, slopes, (0.0,), smooth=True)


def logistic(x: FloatArray) -> FloatArray:
    """1/(1 + e⁻ˣ), accurate to a few roundings on both sides of 0."""
    falling = np.exp(-np.abs(x))
    return np.asarray(np.where(x >= 0, 1.0, falling) / (1.0 + falling))


def logistic_slope(x: FloatArray) -> FloatArray:
    """The slope of the logistic function."""
    return logistic(x) * logistic(-x)


def error_function(x: FloatArray) -> FloatArray:
    """The error function, element by element."""
    from scipy.special import erf

    return np.asarray(erf(x))


RELU_CURVE, ABS_CURVE = broken(0.0, 1.0), broken(-1.0, 1.0)
SIGMOID_CURVE = bell(logistic, logistic_slope)
TANH_CURVE = bell(lambda x: np.asarray(np.tanh(x)), lambda x: 4 * logistic_slope(2 * x))
ERF_CURVE = bell(error_function, lambda x: np.asarray(2 / np.sqrt(np.pi) * np.exp(-(x**2))))
SOFTPLUS_CURVE = Curve(
    lambda x: np.logaddexp(0.0, x), lambda low, high: (logistic(low), logistic(high)), smooth=True
)


def softmax(x: Pair, axes: tuple[int, ...]) -> Pair:
    """Softmax over some axes."""
    most = np.max(x.change.high, axis=axes, keepdims=True)
    least = np.min(x.change.low, axis=axes, keepdims=True)
    spread = np.minimum((most - least) * (0.25 + FUNCTION_STEPS * UNIT), 1.0)
    ones = np.ones(x.shape)
    size = np.max(x.size, axis=axes, keepdims=True) * ones + 1.0
    change = Interval(-spread * ones, spread * ones)
    return Pair(Interval(np.zeros(x.shape), ones), change, size)
