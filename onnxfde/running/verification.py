"""How far apart the outputs y and y′ of two models are.

    relative L2            ‖y′ − y‖ / ‖y − mean y‖          (none if y is constant)
    equal up to rounding   |y′ − y| ≤ 16·u·(A(x) + |y|)     (u: unit roundoff)

A(x) is the original evaluated on absolute values. Floating-point outputs are divided by a power of
two first, so that no square overflows. All other outputs are compared for equality.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from onnxfde.errors import VerificationError
from onnxfde.numbers import ROUNDING_STEPS, Array, FloatArray
from onnxfde.running.label_scores import scaled, scores
from onnxfde.running.outputs import is_floating
from onnxfde.running.samples import Samples

HISTOGRAM_BINS = 24
"""Bars of the histogram of changes. Chosen; not tuned."""
NONSENSE = 2.0
"""Largest relative L2 that is put down to rounding to 8 bits: twice that of a constant output.
Chosen; not tuned."""
MUCH_WORSE = 5
"""Factor by which one error must exceed another to count as much worse. Chosen; not tuned."""


@dataclass(frozen=True)
class Histogram:
    """How many values lie between each edge and the next."""

    edges: tuple[float, ...]
    """From 0 to the largest value."""
    counts: tuple[int, ...]
    median: float
    """Half of the values are at most this."""


@dataclass(frozen=True)
class Verification:
    """The errors of a model; `unverified` says why they could not be measured."""

    max_abs_error: float | None = None
    mean_abs_error: float | None = None
    mse: float | None = None
    relative_l2: float | None = None
    samples: int = 0
    source: str = ""
    engine: str = ""
    metric: str | None = None
    metric_before: float | None = None
    metric_after: float | None = None
    metric_remark: str | None = None
    """What is strange about the labels, if anything is."""
    unverified: str | None = None
    held_out: bool | None = None
    """Whether the result was neither fitted to these rows nor chosen by them; None for random
    inputs, and where nothing is known about it."""
    differing_share: float | None = None
    """The share of integers, booleans and texts in the outputs that differ; None if there are
    none."""
    left_out: float | None = None
    """The share of floating-point values that were not compared, because they are NaN or infinite
    in the original; None if there are none."""
    row_changes: Histogram | None = None
    """Of the relative change of single rows, whose mean square is that of `relative_l2`."""

    @property
    def has_passed(self) -> bool:
        """Whether models were compared and, if only equality counts, are equal."""
        return self.unverified is None and not (self.max_abs_error is None and self.differing_share)


def measure(before: list[Array], after: list[Array], samples: Samples, engine: str) -> Verification:
    """Errors over all floating-point outputs together, where those of the original are finite."""
    rows = samples.fed or samples.runs
    found = Verification(samples=rows, source=samples.source, engine=engine)
    share = differing_share(before, after)
    old, new, scale = scaled(flat(before), flat(after))
    finite = np.isfinite(old)
    if not old.size and share is None:
        return replace(found, unverified="the outputs hold no values on these inputs")
    if old.size and not finite.any():
        return replace(found, unverified="the original's outputs are not finite on these inputs")
    if not np.isfinite(new[finite]).all():
        raise VerificationError("the result gives NaN or infinity where the original does not")
    score = scores(before, after, samples.labels)
    found = replace(
        found,
        metric=score.metric,
        metric_before=score.before,
        metric_after=score.after,
        metric_remark=score.remark,
        differing_share=share,
    )
    if not old.size:
        return found
    change = difference(old, new)
    spread = float(np.linalg.norm(deviations(before, scale)))
    return replace(
        found,
        max_abs_error=float(np.abs(change).max()) * scale,
        mean_abs_error=float(np.abs(change[finite]).mean()) * scale,
        mse=float(np.mean(change[finite] ** 2)) * scale * scale,
        relative_l2=float(np.linalg.norm(change)) / spread if spread > 0 else None,
        left_out=None if finite.all() else float(1 - finite.mean()),
        row_changes=row_changes(change, spread),
    )


def row_changes(change: FloatArray, spread: float) -> Histogram | None:
    """How often rows change how much, relative to what a row varies by in the mean."""
    if len(change) < 2 or spread <= 0:
        return None
    found = np.linalg.norm(change, axis=1) * (np.sqrt(len(change)) / spread)
    counts, edges = np.histogram(found, HISTOGRAM_BINS, (0.0, max(float(found.max()), 1e-300)))
    middle = float(np.median(found))
    return Histogram(tuple(map(float, edges)), tuple(map(int, counts)), middle)


def differing_share(before: list[Array], after: list[Array]) -> float | None:
    """The share of values that differ in the outputs without floating-point numbers."""
    pairs = [(a, b) for a, b in zip(before, after, strict=True) if not is_floating(a)]
    total = sum(a.size for a, _ in pairs)
    return sum(int(np.sum(a != b)) for a, b in pairs) / total if total else None


def difference(old: FloatArray, new: FloatArray) -> FloatArray:
    """New − old where the old value is finite, else 0."""
    return np.subtract(new, old, out=np.zeros_like(old), where=np.isfinite(old))


def centred(a: FloatArray, finite: npt.NDArray[np.bool_]) -> FloatArray:
    """Deviations from each column's mean, or the overall mean of a single row; 0 if not finite."""
    a = np.where(finite, a, 0.0)
    if len(a) == 1:
        return np.where(finite, a - a.sum() / finite.sum(), 0.0)
    mean = a.sum(axis=0) / np.maximum(finite.sum(axis=0), 1)
    return np.where(finite, a - mean, 0.0)


def deviations(outputs: list[Array], scale: float) -> FloatArray:
    """Floating-point outputs / scale less their means over the samples, laid out as by `flat`.

    Outputs with different numbers of rows have means of their own.
    """
    parts = matrices(outputs)
    together = [np.hstack(parts)] if len({len(p) for p in parts}) == 1 else parts
    return one_matrix([centred(part / scale, np.isfinite(part)) for part in together])


def flat(outputs: list[Array]) -> FloatArray:
    """Floating-point outputs as one matrix, one row per sample."""
    return one_matrix(matrices(outputs))


def matrices(outputs: list[Array]) -> list[FloatArray]:
    """Each floating-point output as a matrix, whose rows are its first axis."""
    floats = [a for a in outputs if is_floating(a)]
    return [a.reshape(len(a) if a.ndim else 1, -1).astype(np.float64) for a in floats]


def one_matrix(parts: list[FloatArray]) -> FloatArray:
    """Matrices side by side; as a single row if they have different numbers of rows."""
    if len({len(part) for part in parts}) > 1:
        parts = [part.reshape(1, -1) for part in parts]
    return np.hstack(parts) if parts else np.zeros((0, 0))


def require_equal(
    before: list[Array], after: list[Array], magnitude: list[Array] | None, roundoff: float
) -> None:
    """Raise unless outputs are equal up to rounding; if A is not known, up to √u of their size."""
    if share := differing_share(before, after):
        raise VerificationError(
            f"at ε = 0 the result differs from the original in {share:.2%} of its outputs that are "
            "no floating-point numbers (please report this model)"
        )
    old, new, scale = scaled(flat(before), flat(after))
    finite = np.isfinite(old)
    change = np.abs(difference(old, new))
    bound = None if magnitude is None else flat(magnitude) / scale
    if bound is None or not np.isfinite(bound[finite]).all():
        equal = np.linalg.norm(change) <= np.sqrt(roundoff) * np.linalg.norm(old[finite])
    else:
        allowed = ROUNDING_STEPS * roundoff * (bound + np.abs(old))
        equal = np.all(change[finite] <= allowed[finite])
    if not equal:
        worst = float(change.max()) * scale
        raise VerificationError(
            f"at ε = 0 the result differs from the original by {worst:.3g}, more than rounding "
            "explains (please report this model)"
        )


def require_sense(
    found: Verification, merged: Verification | None, before: list[Array], after: list[Array]
) -> None:
    """Raise if rounding to 8 bits made a model useless.

    That is not the case if merging alone did, or if the outputs vary little compared to their size.
    """
    error = found.relative_l2
    alone = (merged.relative_l2 or 0.0) if merged else 0.0
    if error is None or error <= max(NONSENSE, MUCH_WORSE * alone):
        return
    old, new, _ = scaled(flat(before), flat(after))
    size = np.linalg.norm(old[np.isfinite(old)])
    if np.linalg.norm(difference(old, new)) > size / MUCH_WORSE:
        raise VerificationError(
            f"--int8 changes the outputs by {error:.3g} times their spread, worse than a constant; "
            "nothing was written, optimize without --int8 (or look at it with --no-verify)"
        )
