"""Numbers that were measured on rows: a ratio of sums over them, and how far it can be trusted.

    R = Σ top / Σ bottom            d = top − R·bottom
    s = ‖d‖ / Σ bottom, its standard error;  √(n/(n − 1)) times that in the interval of n rows
    95 % interval   R·exp(±t·s/R)   t: Student's quantile for ν = ¾ · 2n/(κ − 1) degrees of freedom

The few rows with a large loss that most choices of rows do not have make a mean look smaller and
surer than it is. They enlarge R and s alike, so s/R is steadier than s; and κ = n·Σ d⁴/(Σ d²)²
tells how little is known of s itself (Satterthwaite). A mean of numbers of both signs is R ± t·s.
On other rows R is likely to be at most

    R + (z + λ(1 + 2z²)/6) · s · √(1 + rows / other rows)                      (Johnson's t)
    λ = Σ (d / ‖d‖)³                                                   skewness / √rows

The relative error of values y′ beside y is a root:  e² = Σ ‖y′ − y‖² / Σ ‖y − mean y‖²  over rows.
The interval of a share is Wilson's; that of a difference of two shares of the same rows counts half
a row more in each of its four cells (Agresti and Min 2005).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from statistics import NormalDist

import numpy as np

from onnxfde.numbers import FloatArray

Interval = tuple[float, float]
TAIL = 0.025
"""What may lie beyond each end of an interval."""
Z = NormalDist().inv_cdf(1 - TAIL)
CAUTION = 1.65
"""z: how many standard errors are added. Chosen: other rows agree 19 times in 20, if losses are
about normally distributed; not tuned."""
SURE = 0.75
"""The share of its degrees of freedom that a standard error is taken to have: κ of few rows is too
small. Chosen on 94 outputs of benchmarks/limits, with other rows: 1 holds 92.9 %, 0.75 93.4 %."""
CONSTANT = 1e-12
"""Values whose spread is this share of their size, or less, count as constant: thousands of
float64's roundoffs. Chosen; not tuned."""
WIDE = 0.5
"""An interval that is wider than this share of its number calls for more rows. Chosen."""


@dataclass(frozen=True)
class Estimate:
    """A number measured on rows."""

    value: float
    rows: int
    error: float = 0.0
    """Its standard error."""
    lean: float = 0.0
    """λ: how much of it comes from few rows."""
    interval: Interval | None = None
    """In which the value on all rows of this kind lies 19 times in 20; None for a single row."""
    caution: float = CAUTION
    """z: how many standard errors are added for other rows."""

    @classmethod
    def ratio(cls, top: FloatArray, bottom: FloatArray) -> Estimate:
        """Σ top / Σ bottom."""
        whole = float(bottom.sum())
        ratio = float(top.sum()) / whole
        left = top - ratio * bottom
        size = float(np.linalg.norm(left))
        lean = float(np.sum((left / size) ** 3)) if size else 0.0
        found = cls(ratio, len(top), size / whole, lean)
        return replace(found, interval=ratio_interval(found, left, signed=bool(top.min() < 0)))

    @classmethod
    def mean(cls, values: FloatArray) -> Estimate:
        """The mean of one number of each row."""
        return cls.ratio(values, np.ones(len(values)))

    @property
    def root(self) -> Estimate:
        """The square root."""
        value = math.sqrt(max(self.value, 0.0))
        ends = self.interval and tuple(math.sqrt(max(end, 0.0)) for end in self.interval)
        low_high = (ends[0], ends[1]) if ends else None
        error = self.error / (2 * value) if value else 0.0
        return replace(self, value=value, error=error, interval=low_high)

    def scaled(self, factor: float, shift: float = 0.0) -> Estimate:
        """The same number in another unit, factor > 0."""
        ends = self.interval
        return replace(
            self,
            value=factor * self.value + shift,
            error=factor * self.error,
            interval=ends and (factor * ends[0] + shift, factor * ends[1] + shift),
        )

    @property
    def rows_wanted(self) -> int | None:
        """How many rows would halve the interval; None where it is narrow already."""
        if self.interval is None or not self.value > 0:
            return None
        low, high = self.interval
        return 4 * self.rows if high - low > WIDE * self.value else None

    def expected(self, other_rows: int) -> float:
        """What it is likely to be at most on other rows."""
        more = math.sqrt(1 + self.rows / max(other_rows, 1))
        steps = self.caution + max(self.lean, 0.0) * (1 + 2 * self.caution**2) / 6
        return self.value + steps * self.error * more


def interval_text(interval: Interval | None, form: Callable[[float], str] = "{:.2g}".format) -> str:
    """An interval behind a number; nothing where none is known.

    >>> interval_text((0.0381, 0.0612)), interval_text(None)
    (' (0.038–0.061)', '')
    """
    if interval is None or not all(map(math.isfinite, interval)):
        return ""
    low, high = map(form, interval)
    return f" ({low} to {high})" if interval[0] < 0 else f" ({low}–{high})"


def ratio_interval(found: Estimate, left: FloatArray, signed: bool = False) -> Interval | None:
    """The interval of a ratio, of which these parts of its top are not explained by its bottom.

    None if there is one row only.
    """
    rows = found.rows
    if rows < 2:
        return None
    from scipy.special import stdtrit

    error = found.error * math.sqrt(rows / (rows - 1))
    step = float(stdtrit(degrees_of_freedom(left), 1 - TAIL)) * error
    if signed or not found.value > 0:
        return found.value - step, found.value + step
    factor = math.exp(step / found.value)
    return found.value / factor, found.value * factor


def degrees_of_freedom(left: FloatArray) -> float:
    """How many normally distributed numbers would tell a standard error as well as these do.

    >>> round(degrees_of_freedom(np.array([-1.0, 1.0] * 30))), round(
    ...     degrees_of_freedom(np.array([59.0] + [-1.0] * 59)), 2
    ... )
    (59, 1.58)
    """
    rows, squared = len(left), left**2
    size = float(squared.sum())
    if not size:
        return rows - 1.0
    spread = rows * float(np.square(squared / size).sum()) - 1
    return min(max(SURE * 2 * rows / max(spread, 1.0), 1.0), rows - 1.0)


def share_interval(share: float, rows: int) -> Interval | None:
    """Wilson's interval of a share of independent rows.

    >>> [round(end, 3) for end in share_interval(1.0, 120)]
    [0.969, 1.0]
    """
    if not rows:
        return None
    centre, total = share + Z**2 / (2 * rows), 1 + Z**2 / rows
    half = Z * math.sqrt(share * (1 - share) / rows + (Z / (2 * rows)) ** 2)
    return max((centre - half) / total, 0.0), min((centre + half) / total, 1.0)


def paired_interval(lost: int, won: int, rows: int) -> Interval:
    """The interval of a difference of two shares of the same rows: those lost less those won.

    >>> [round(end, 4) for end in paired_interval(0, 0, 120)]
    [-0.0161, 0.0161]
    """
    total, change = rows + 2, lost - won
    half = Z * math.sqrt(max(lost + won + 1 - change**2 / total, 0.0)) / total
    return max(change / total - half, -1.0), min(change / total + half, 1.0)


@dataclass(frozen=True, eq=False)
class RowChanges:
    """Of each row, the square of its change and of how far it is from the mean of all rows."""

    change: FloatArray
    spread: FloatArray
    size: float
    """The sum of the squares of all values."""

    @classmethod
    def between(cls, before: FloatArray, after: FloatArray, rows_each: int = 1) -> RowChanges:
        """Those of two matrices, in which a sample has one row or several.

        What is not finite in the original is left out. A single row is compared with the mean of
        its own values.
        """
        finite = np.isfinite(before)
        if finite.all():
            mean = before.mean(axis=0 if len(before) > 1 else None)
            far, size = before - mean, before
            with np.errstate(over="ignore", invalid="ignore"):
                change = after - before
        else:
            size = np.where(finite, before, 0.0)
            counts = finite.sum(axis=0) if len(before) > 1 else finite.sum()
            mean = size.sum(axis=0 if len(before) > 1 else None) / np.maximum(counts, 1)
            far = np.where(finite, size - mean, 0.0)
            change = np.subtract(after, before, out=np.zeros_like(size), where=finite)
        return cls(squares(change, rows_each), squares(far, rows_each), float(np.vdot(size, size)))

    @property
    def varies(self) -> bool:
        """Whether the original's values differ by more than float64's rounding."""
        return float(self.spread.sum()) > CONSTANT**2 * self.size

    @property
    def relative_to(self) -> FloatArray:
        """What changes are relative to: of what does not vary, its size."""
        if self.varies:
            return self.spread
        return np.full(len(self.change), (self.size or 1.0) / max(len(self.change), 1))

    @property
    def value(self) -> float:
        """The relative error; infinite if a value is not finite."""
        found = math.sqrt(self.change.sum() / self.relative_to.sum())
        return found if math.isfinite(found) else math.inf

    @property
    def error(self) -> Estimate:
        """The same, and how far it can be trusted."""
        if not math.isfinite(self.value):
            return Estimate(math.inf, len(self.change))
        return Estimate.ratio(self.change, self.relative_to).root


def squares(values: FloatArray, rows_each: int) -> FloatArray:
    """The sum of squares of every so many rows."""
    with np.errstate(over="ignore", invalid="ignore"):
        rows = np.einsum("ij,ij->i", values, values)
    return np.asarray(rows if rows_each == 1 else rows.reshape(-1, rows_each).sum(axis=1))


def relative_error(before: FloatArray, after: FloatArray, rows_each: int = 1) -> Estimate:
    """‖after − before‖ / ‖before − mean‖ over rows; infinite if a value is not finite."""
    return RowChanges.between(before, after, rows_each).error
