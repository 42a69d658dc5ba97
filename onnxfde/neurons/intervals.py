"""Intervals, and pairs of a value and its change, that contain the results of exact arithmetic.

    x ∈ X, x′ − x ∈ D  ⇒  f(x) ∈ f(X),  f(x′) − f(x) ∈ f′(X ∪ (X + D))·D ∩ (f(X + D) − f(X))
    x′y′ − xy = x′(y′ − y) + (x′ − x)y,   x′² − x² = 2xδ + δ²,   W(x′) − W(x) = W(x′ − x)

They are computed in float64 and rounded outward: by one floating-point step after each elementary
operation, and by γ_k·(the same sum on absolute values), γ_k = ku/(1 − ku), after a sum of k
products in any order. It is assumed that numpy's functions are accurate to 8u and that single
products do not underflow. An end that is exactly zero stays zero.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from onnxfde.numbers import FloatArray

UNIT = 2.0**-53
"""u, the unit roundoff of float64 (IEEE 754)."""
TINY = float(np.finfo(np.float64).tiny)
"""The smallest normal float64 (IEEE 754), more than any underflow can lose."""
Linear = Callable[[FloatArray], FloatArray]
"""A linear map of arrays, or one that only selects and moves elements."""
Limits = tuple[FloatArray | float, FloatArray | float]
"""The lowest and highest values of an input, of all its elements or of each."""
Box = Mapping[str, Limits]
"""The limits of every input of a model, by name."""


class Uncertified(Exception):  # noqa: N818 - a reason to be shown, not a failure
    """The reason why there is no bound, and the node it is about once that is known."""

    def __init__(self, reason: str, where: str = "") -> None:
        """Put the node before the reason."""
        super().__init__(f"{where}: {reason}" if where else reason)
        self.where = where


def gamma(steps: int) -> float:
    """γ_k: the relative error that k roundings can add up to."""
    return steps * UNIT / (1 - steps * UNIT)


def up(a: FloatArray) -> FloatArray:
    """The next larger numbers; zeros stay."""
    return np.where(a == 0, a, np.nextafter(a, np.inf))


def down(a: FloatArray) -> FloatArray:
    """The next smaller numbers; zeros stay."""
    return np.where(a == 0, a, np.nextafter(a, -np.inf))


@dataclass(frozen=True, eq=False)
class Interval:
    """An array of intervals."""

    low: FloatArray
    high: FloatArray

    @classmethod
    def point(cls, values: FloatArray) -> Interval:
        """Intervals of a single number each."""
        return cls(values, values)

    @classmethod
    def around(cls, mid: FloatArray, rad: FloatArray) -> Interval:
        """All numbers within a distance of the middle."""
        return cls(down(mid - rad), up(mid + rad))

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the array."""
        return self.low.shape

    @property
    def mid(self) -> FloatArray:
        """The middle, rounded."""
        return np.asarray((self.low + self.high) / 2)

    @property
    def rad(self) -> FloatArray:
        """At least the distance from the rounded middle to the farther end."""
        mid = self.mid
        return up(np.maximum(self.high - mid, mid - self.low))

    @property
    def size(self) -> FloatArray:
        """The largest absolute value."""
        return np.maximum(np.abs(self.low), np.abs(self.high))

    @property
    def is_zero(self) -> bool:
        """Whether every interval holds 0 alone."""
        return not (np.any(self.low) or np.any(self.high))

    @property
    def is_point(self) -> bool:
        """Whether every interval is a single number."""
        return bool(np.array_equal(self.low, self.high))

    def mapped(self, move: Linear) -> Interval:
        """The elements rearranged by a map that rounds nothing."""
        return Interval(move(self.low), move(self.high))

    def __neg__(self) -> Interval:
        """−x."""
        return Interval(-self.high, -self.low)

    def __add__(self, other: Interval) -> Interval:
        """All sums."""
        return Interval(down(self.low + other.low), up(self.high + other.high))

    def __sub__(self, other: Interval) -> Interval:
        """All differences."""
        return self + -other

    def __mul__(self, other: Interval) -> Interval:
        """All products."""
        ends = [a * b for a in (self.low, self.high) for b in (other.low, other.high)]
        return Interval(down(np.minimum.reduce(ends)), up(np.maximum.reduce(ends)))

    def meet(self, other: Interval) -> Interval:
        """The intersection, of two intervals that both hold the true value."""
        return Interval(np.maximum(self.low, other.low), np.minimum(self.high, other.high))

    def join(self, other: Interval) -> Interval:
        """The smallest intervals that contain both."""
        return Interval(np.minimum(self.low, other.low), np.maximum(self.high, other.high))

    def widened(self, by: FloatArray | float) -> Interval:
        """Both ends moved outward by `by` and what may underflow; unchanged where `by` is 0."""
        more = by + TINY
        wide = Interval(down(self.low - more), up(self.high + more))
        same = np.broadcast_to(np.asarray(by) == 0, self.shape)
        return Interval(np.where(same, self.low, wide.low), np.where(same, self.high, wide.high))

    def linear(
        self, apply: Linear, absolute: Linear, steps: int, bias: FloatArray | None = None
    ) -> Interval:
        """W x + b: `apply` multiplies by W, `absolute` by |W|, with at most `steps` roundings."""
        slack = 2 * gamma(steps + 4)
        mid = self.mid
        rad = absolute(self.rad * (1 + slack) + slack * np.abs(mid))
        if bias is None:
            return Interval.around(apply(mid), rad)
        return Interval.around(apply(mid) + bias, rad + slack * np.abs(bias))

    def squared(self) -> Interval:
        """All squares."""
        ends = self.low**2, self.high**2
        least = np.where((self.low < 0) & (self.high > 0), 0.0, np.minimum(*ends))
        return Interval(np.maximum(down(least), 0.0), up(np.maximum(*ends)))


@dataclass(frozen=True, eq=False)
class Pair:
    """A value of the original, its change in the result, and A, computed on absolute values."""

    value: Interval
    change: Interval
    size: FloatArray

    @classmethod
    def same(cls, value: Interval) -> Pair:
        """A value that did not change."""
        return cls(value, Interval.point(np.zeros(value.shape)), value.size)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the value."""
        return self.value.shape

    @property
    def other(self) -> Interval:
        """The value of the result."""
        return self.value if self.change.is_zero else self.value + self.change

    def mapped(self, move: Linear) -> Pair:
        """The elements selected and moved, not computed with."""
        return Pair(self.value.mapped(move), self.change.mapped(move), move(self.size))

    def __neg__(self) -> Pair:
        """−x."""
        return Pair(-self.value, -self.change, self.size)

    def __add__(self, other: Pair) -> Pair:
        """Sums, x + y."""
        return Pair(self.value + other.value, self.change + other.change, self.size + other.size)

    def __mul__(self, other: Pair) -> Pair:
        """Products, x·y of any two values."""
        change = self.other * other.change + self.change * other.value
        swapped = self.value * other.change + self.change * other.other
        return Pair(self.value * other.value, change.meet(swapped), self.size * other.size)

    def squared(self) -> Pair:
        """x²."""
        return Pair(self.value.squared(), square_change(self.value, self.change), self.size**2)

    def linear(
        self, apply: Linear, absolute: Linear, steps: int, bias: FloatArray | None = None
    ) -> Pair:
        """W x + b with the same W and b in both models."""
        size = absolute(self.size)
        return Pair(
            self.value.linear(apply, absolute, steps, bias),
            self.change.linear(apply, absolute, steps),
            size if bias is None else size + np.abs(bias),
        )


def square_change(value: Interval, change: Interval) -> Interval:
    """The range of (x + δ)² − x² = δ(2x + δ): extreme at the corners, or least at δ = −x."""
    if change.is_zero:
        return change
    least, most = [], []
    for x in (value.low, value.high):
        ends = [end * (2 * x + end) for end in (change.low, change.high)]
        vertex = np.clip(-x, change.low, change.high)
        least.append(np.minimum(np.minimum(*ends), vertex * (2 * x + vertex)))
        most.append(np.maximum(*ends))
    slack = gamma(4) * change.size * (2 * value.size + change.size)
    return Interval(np.minimum(*least), np.maximum(*most)).widened(slack)
