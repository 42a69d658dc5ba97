"""How far each output y′ of a model is from the original's y, by itself.

    floating-point numbers   ‖y′ − y‖ / ‖y − mean y‖       the mean is that over rows
    all others               the share of entries that differ

An output that does not vary by more than its type rounds must be equal up to rounding, and NaN and
infinity must stand at the same places. Values are divided by a power of two first, so that no
square overflows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from onnxfde.errors import VerificationError
from onnxfde.estimates import Estimate, Interval, RowChanges
from onnxfde.numbers import ROUNDOFF, Array, FloatArray
from onnxfde.running.label_scores import scaled
from onnxfde.running.outputs import Output, is_floating

HISTOGRAM_BINS = 24
"""Bars of the histogram of changes. Chosen; not tuned."""
CONSTANT_ROUNDINGS = 4
"""An output that varies by no more than so many roundoffs of its size is constant. Chosen."""
COARSEST = 2.0**-4
"""The unit roundoff of numbers of 8 bits."""
NOT_EQUAL = "is the same for all rows, and the result's differs by more than rounding"
OTHER_PLACES = "NaN or infinity stand at other places"


@dataclass(frozen=True)
class Histogram:
    """How many values lie between each edge and the next."""

    edges: tuple[float, ...]
    """From 0 to the largest value."""
    counts: tuple[int, ...]
    median: float
    """Half of the values are at most this."""


@dataclass(frozen=True, eq=False)
class MeasuredOutput:
    """How far one output is from the original's, and what is told of that."""

    told: OutputChange
    error: Estimate | None = None
    """The relative error: infinite for a constant that changed, None without such numbers."""
    changes: RowChanges | None = None


@dataclass(frozen=True)
class OutputChange:
    """How far one output is from the original's."""

    name: str
    relative_l2: float | None = None
    """None if it is constant, or holds no floating-point numbers."""
    relative_l2_interval: Interval | None = None
    max_abs_error: float | None = None
    mean_abs_error: float | None = None
    mse: float | None = None
    differing_share: float | None = None
    """The share of integers, booleans or texts that differ; None if there are none."""
    left_out: float | None = None
    """The share of values that were not compared, because they are NaN or infinite in the original;
    None if there are none."""
    constant: bool = False
    """Whether it is the same for all rows, up to rounding."""
    fault: str | None = None
    """Why it does not hold, however much change is allowed."""
    uncompared: str | None = None
    """Why it could not be compared."""

    def beyond(self, tolerance: float | None) -> str | None:
        """Why it does not hold within a tolerance; None if it does."""
        if self.uncompared or self.fault:
            return self.fault or f"could not be compared: {self.uncompared}"
        if self.differing_share and self.differing_share > (tolerance or 0.0):
            more = "" if tolerance is None else f", more than the tolerance {tolerance:g}"
            return f"{self.differing_share:.2%} of its entries differ{more}"
        if tolerance is not None and (self.relative_l2 or 0.0) > tolerance:
            return f"the error {self.relative_l2:.3g} exceeds the tolerance {tolerance:g}"
        return None


def measured_output(name: str, before: Output, after: Output) -> MeasuredOutput:
    """Compare one output; of a sequence or map, the entry that changed most.

    VerificationError if it is not finite where the original's is.
    """
    if not before.entries:
        return measured_array(name, before.values, after.values)
    pairs = [(f"{name}{at}", old, after.entries[at]) for at, old in before.entries.items()]
    return max((measured_array(*pair) for pair in pairs), key=badness)


def badness(found: MeasuredOutput) -> tuple[bool, bool, float, float]:
    """Orders outputs by how far they are from the original's."""
    told = found.told
    change = max(told.relative_l2 or 0.0, told.differing_share or 0.0)
    faults = told.fault is not None, told.uncompared is not None
    return *faults, change, told.max_abs_error or 0.0


def measured_array(name: str, old: Array, new: Array) -> MeasuredOutput:
    """Compare one output that is an array."""
    told = OutputChange(name)
    if not old.size:
        return MeasuredOutput(replace(told, uncompared="it holds no values on these inputs"))
    if not is_floating(old):
        return MeasuredOutput(replace(told, differing_share=float(np.mean(old != new))))
    finite = np.isfinite(old)
    if not np.isfinite(new[finite]).all():
        raise VerificationError(
            f"the result gives NaN or infinity in output '{name}' where the original does not"
        )
    if not finite.all():
        told = replace(told, left_out=float(1 - finite.mean()))
        if not np.array_equal(old[~finite], new[~finite], equal_nan=True):
            told = replace(told, fault=OTHER_PLACES)
    roundoff = ROUNDOFF.get(old.dtype.name, COARSEST)
    if not finite.any():
        return MeasuredOutput(replace(told, uncompared="it is not finite on these inputs"))
    return measured_numbers(told, as_rows(old), as_rows(new), roundoff)


def measured_numbers(
    told: OutputChange, old: FloatArray, new: FloatArray, roundoff: float
) -> MeasuredOutput:
    """The changes of floating-point numbers, where those of the original are finite."""
    old, new, scale = scaled(old, new)
    changes, finite = RowChanges.between(old, new), np.isfinite(old)
    change = np.abs(difference(old, new))
    told = replace(
        told,
        max_abs_error=float(change.max()) * scale,
        mean_abs_error=float(change[finite].mean()) * scale,
        mse=float(np.mean(change[finite] ** 2)) * scale * scale,
    )
    rounding = CONSTANT_ROUNDINGS * roundoff
    if float(changes.spread.sum()) <= rounding**2 * changes.size:
        equal = float(changes.change.sum()) <= roundoff * changes.size
        told = replace(told, constant=True, fault=told.fault if equal else NOT_EQUAL)
        return MeasuredOutput(told, Estimate(0.0 if equal else np.inf, len(old)), changes)
    error = changes.error
    told = replace(told, relative_l2=error.value, relative_l2_interval=error.interval)
    return MeasuredOutput(told, error, changes)


def as_rows(values: Array) -> FloatArray:
    """An output as a matrix, whose rows are its first axis."""
    return values.reshape(len(values) if values.ndim else 1, -1).astype(np.float64)


def difference(old: FloatArray, new: FloatArray) -> FloatArray:
    """New − old where the old value is finite, else 0."""
    return np.subtract(new, old, out=np.zeros_like(old), where=np.isfinite(old))


def worst_of(outputs: Sequence[MeasuredOutput]) -> MeasuredOutput | None:
    """The output that changed most; None if none holds floating-point numbers."""
    numbers = [one for one in outputs if one.error is not None]
    if not numbers:
        return None
    return max(numbers, key=lambda o: (o.told.relative_l2 or 0.0, o.told.max_abs_error or 0.0))


def histogram_of(found: RowChanges) -> Histogram | None:
    """How often rows change how much, relative to what a row varies by in the mean."""
    spread = float(found.spread.sum())
    if len(found.change) < 2 or spread <= 0:
        return None
    each = np.sqrt(found.change * (len(found.change) / spread))
    counts, edges = np.histogram(each, HISTOGRAM_BINS, (0.0, max(float(each.max()), 1e-300)))
    middle = float(np.median(each))
    return Histogram(tuple(map(float, edges)), tuple(map(int, counts)), middle)


def largest(parts: Iterable[float | None]) -> float | None:
    """The largest of those that are known."""
    return max((part for part in parts if part is not None), default=None)
