"""What is told of a model beside the original: the errors of each output, and the score.

    equal up to rounding   |y′ − y| ≤ 16·u·(A(x) + |y|)     (u: unit roundoff)

A(x) is the original evaluated on absolute values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from onnxfde.errors import VerificationError
from onnxfde.estimates import Estimate, Interval
from onnxfde.numbers import ROUNDING_STEPS, Array
from onnxfde.running.label_scores import scaled, scores
from onnxfde.running.output_changes import (
    Histogram,
    MeasuredOutput,
    OutputChange,
    as_rows,
    difference,
    histogram_of,
    largest,
    measured_output,
    worst_of,
)
from onnxfde.running.outputs import Output, is_floating
from onnxfde.running.samples import Samples

NONSENSE = 2.0
"""Largest relative L2 that is put down to rounding to 8 bits: twice that of a constant output.
Chosen; not tuned."""
MUCH_WORSE = 5
"""Factor by which one error must exceed another to count as much worse. Chosen; not tuned."""


NO_VALUES = "the outputs hold no values"
NOT_FINITE = "the original's outputs are not finite"


@dataclass(frozen=True)
class Verification:
    """The errors of a model; `unverified` says why they could not be measured."""

    max_abs_error: float | None = None
    """The largest of all outputs."""
    mean_abs_error: float | None = None
    """This and the next two are of the output that changed most."""
    mse: float | None = None
    relative_l2: float | None = None
    relative_l2_interval: Interval | None = None
    """In which it lies for all inputs of this kind, 19 times in 20."""
    samples: int = 0
    source: str = ""
    engine: str = ""
    metric: str | None = None
    metric_before: float | None = None
    metric_before_interval: Interval | None = None
    metric_after: float | None = None
    metric_after_interval: Interval | None = None
    metric_lost: float | None = None
    """Points of accuracy, or percent of the mean squared error."""
    metric_lost_interval: Interval | None = None
    metric_remark: str | None = None
    """What is strange about the labels, if anything is."""
    unverified: str | None = None
    held_out: bool | None = None
    """Whether the result was neither fitted to these rows nor chosen by them; None for random
    inputs, and where nothing is known about it."""
    differing_share: float | None = None
    """The largest share of integers, booleans or texts in an output that differ; None if there are
    none."""
    left_out: float | None = None
    """The largest share of floating-point values in an output that were not compared, because they
    are NaN or infinite in the original; None if there are none."""
    row_changes: Histogram | None = None
    """Of the relative change of single rows, whose mean square is that of `relative_l2`."""
    outputs: tuple[OutputChange, ...] = ()
    """Each output by itself."""

    def beyond(self, tolerance: float | None) -> str | None:
        """Why not every output holds within a tolerance; None if each does."""
        if self.unverified:
            return f"not verified: {self.unverified}"
        faults = [(one.name, why) for one in self.outputs if (why := one.beyond(tolerance))]
        if not faults:
            return None
        more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
        return f"output '{faults[0][0]}': {faults[0][1]}{more}"

    @property
    def rows_wanted(self) -> int | None:
        """How many rows would halve the interval of the error, if it is wide."""
        if self.relative_l2 is None:
            return None
        return Estimate(
            self.relative_l2, self.samples, interval=self.relative_l2_interval
        ).rows_wanted


@dataclass(frozen=True, eq=False)
class Compared:
    """How far a model is from the original, and the outputs of both."""

    verification: Verification
    before: list[Array] = field(default_factory=list)
    after: list[Array] = field(default_factory=list)
    measured: Sequence[MeasuredOutput] = ()


def measure(
    names: Sequence[str],
    before: Sequence[Output],
    after: Sequence[Output],
    samples: Samples,
    engine: str,
) -> Compared:
    """Compare the outputs of two models on the same samples, each by itself."""
    old, new = ([output.values for output in outputs] for outputs in (before, after))
    found = Verification(samples=samples.fed or samples.runs, source=samples.source, engine=engine)
    outputs = [measured_output(*pair) for pair in zip(names, before, after, strict=True)]
    told = tuple(output.told for output in outputs)
    if all(one.uncompared for one in told):
        whose = NO_VALUES if not any(a.size for a in old) else NOT_FINITE
        return Compared(replace(found, unverified=f"{whose} on these inputs"), old, new)
    worst = worst_of(outputs)
    if worst is not None:
        found = replace(
            found,
            mean_abs_error=worst.told.mean_abs_error,
            mse=worst.told.mse,
            relative_l2=worst.told.relative_l2,
            relative_l2_interval=worst.told.relative_l2_interval,
            row_changes=histogram_of(worst.changes) if worst.changes else None,
        )
    found = replace(
        found,
        max_abs_error=largest(one.max_abs_error for one in told),
        differing_share=largest(one.differing_share for one in told),
        left_out=largest(one.left_out for one in told),
        outputs=told,
    )
    return Compared(with_scores(found, old, new, samples.labels), old, new, outputs)


def with_scores(
    found: Verification, before: list[Array], after: list[Array], labels: Array | None
) -> Verification:
    """The same with what labels say, if there are any."""
    score = scores(before, after, labels)
    fields = {"before": score.before, "after": score.after, "lost": score.lost}
    known = {name: one for name, one in fields.items() if one is not None}
    told: dict[str, Any] = {f"metric_{name}": one.value for name, one in known.items()}
    told |= {f"metric_{name}_interval": one.interval for name, one in known.items()}
    return replace(found, metric=score.metric, metric_remark=score.remark, **told)


def require_equal(
    before: list[Array], after: list[Array], magnitude: list[Array] | None, roundoff: float
) -> None:
    """Raise unless outputs are equal up to rounding; if A is not known, up to √u of their size."""
    bounds: Sequence[Array | None] = magnitude or [None] * len(before)
    for old, new, bound in zip(before, after, bounds, strict=True):
        if is_floating(old):
            require_equal_numbers(old, new, bound, roundoff)
        elif share := float(np.mean(old != new)) if old.size else 0.0:
            raise VerificationError(
                f"at ε = 0 the result differs from the original in {share:.2%} of an output that "
                "holds no floating-point numbers (please report this model)"
            )


def require_equal_numbers(old: Array, new: Array, bound: Array | None, roundoff: float) -> None:
    """Raise unless floating-point numbers are equal up to rounding."""
    if not old.size:
        return
    a, b, scale = scaled(as_rows(old), as_rows(new))
    finite, change = np.isfinite(a), np.abs(difference(a, b))
    allowed = None if bound is None else as_rows(bound) / scale
    if allowed is None or not np.isfinite(allowed[finite]).all():
        equal = np.linalg.norm(change) <= np.sqrt(roundoff) * np.linalg.norm(a[finite])
    else:
        allowed = ROUNDING_STEPS * roundoff * (allowed + np.abs(a))
        equal = np.all(change[finite] <= allowed[finite])
    if not equal:
        raise VerificationError(
            f"at ε = 0 the result differs from the original by {float(change.max()) * scale:.3g}, "
            "more than rounding explains (please report this model)"
        )


def require_sense(found: Compared, merged: Verification | None) -> None:
    """Raise if rounding to 8 bits made an output useless.

    That is not the case if merging alone did, or if it varies little compared to its size.
    """
    alone = (merged.relative_l2 or 0.0) if merged else 0.0
    for output in found.measured:
        error, changes = output.told.relative_l2, output.changes
        if error is None or changes is None or error <= max(NONSENSE, MUCH_WORSE * alone):
            continue
        if changes.change.sum() > changes.size / MUCH_WORSE**2:
            raise VerificationError(
                f"--int8 changes the outputs by {error:.3g} times their spread, worse than a "
                "constant; nothing was written, optimize without --int8 (or look at it with "
                "--no-verify)"
            )
