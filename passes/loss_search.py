"""The fewest parameters with a loss of the whole model that is allowed.

    counts of least cost with √Σ ê_i² ≤ budget  →  merged  →  loss, and each layer's own error
    →  ê_i that know these errors (`corrected_curve`), and a budget by the loss  →  counts …

The first time, dense layers have as few neurons as a search finds within the error that their
curve plans; the curve is that of a quick method, and says how errors are best spread. A loss is
decided with some caution (`estimates`), so that rows never used before agree.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from onnxfde.errors import DataError, VerificationError
from onnxfde.estimates import Estimate
from onnxfde.graph.find_axes import is_plain_dense
from onnxfde.graph.model import Graph
from onnxfde.limits import GoalKind
from onnxfde.neurons.corrected_curve import corrected_curve
from onnxfde.neurons.spending import Spending
from onnxfde.numbers import FloatArray, Indices
from onnxfde.passes.goal_outcome import GoalOutcome, spent
from onnxfde.passes.goal_search import GoalSearch
from onnxfde.passes.result import PassResult
from onnxfde.running.input_source import DATA_ROWS, InputSource
from onnxfde.running.paired_losses import drop_loss, error_losses
from onnxfde.running.run_size import sized_to_compare
from onnxfde.running.side_by_side import SideBySide

MOST_TRIES = 4
"""How often a network is merged in search of a loss at most, if one of them is good enough. Chosen:
a target then costs at most about three times as much as one ε; not tuned."""
QUICK_TRIES = 8
"""The same where all layers are dense and only refitted, which takes a moment. Chosen."""
NEAR_ENOUGH = 0.98
"""A loss of this share of what is allowed is not worth another try. Raised from 0.96 after a
first run of benchmarks/targets, in which results were larger than they had to be."""
AIMS = (0.99, 0.99, 0.95, 0.85, 0.7)
"""The share of the allowed loss that is aimed at after so many tries that all lost too much: a
search near the limit should not end with nothing. The first was raised from 0.98 with the last."""
FIRST_DROP_BUDGET = 0.1
"""The error of the outputs with which a search for a drop begins. Chosen."""
LARGEST_STEP = 3.0
"""By which factor a budget changes at most between two tries. Chosen."""
SHORTER = 0.97
"""By which factor a budget falls that leads to what was tried in vain. Chosen."""
FAR_APART = math.log(1.2)
"""Logarithms of errors that differ by more tell how a loss grows; what is left is noise. Chosen."""
LEAST_GROWTH = 0.25
"""The least power of a budget with which a loss is taken to grow. Chosen."""
FAR_OFF = 2.0
"""How many times too much the first try has to lose for its layers to be looked at one by one.
Chosen."""
DESTROYED = 4.0
"""From how many times too much on the errors of layers behind others say little. Chosen."""
MOST_ALONE = 4
"""How many layers are looked at one by one at most: those that were to give most. Chosen."""
BLAME = (1 / 30, 1000.0)
"""By which factor such a look changes what a layer's curve says, at least and at most. Chosen."""
ALL_ROWS = 10**9
"""So many rows that their mean is that of all."""
FEWEST_ROWS_FOR_LOSS = 200
"""Rows of data without which a loss cannot be aimed at: 128 to fit to, 32 to choose by. Chosen."""


@dataclass(frozen=True, eq=False)
class Attempt:
    """A network, how many units it has, and what it loses."""

    counts: Indices
    result: PassResult
    loss: Estimate | None = None
    worst: float = 0.0
    """What it is likely to lose at most on other rows."""
    alone: int | None = None
    """The place of the layer whose part in a try was looked at, all others being whole."""

    @property
    def value(self) -> float:
        """What it loses on the rows to choose by."""
        return self.loss.value if self.loss else 0.0


@dataclass(frozen=True, eq=False)
class LossSearch:
    """Looks for the fewest parameters with a loss that is allowed."""

    kind: GoalKind
    limit: float
    search: GoalSearch
    chooser: LossChooser

    def result(self) -> tuple[PassResult, GoalOutcome]:
        """The smallest network found, without loss if no other is good enough."""
        if not self.search.axes:
            return self.search.lossless, GoalOutcome(self.kind, self.limit, 0.0, 0)
        tried = list(self.attempts())
        best = self.best(tried)
        if best.result is self.search.lossless and max(self.spending.steps) > 1:
            self.search.context.progress.note(
                f"note: large layers get smaller by {max(self.spending.steps)} channels at a time; "
                "--align 1 allows smaller steps"
            )
        steps = spent(self.search, self.corrected(tried), best.counts)
        return best.result, GoalOutcome(self.kind, self.limit, best.value, len(tried), steps)

    @cached_property
    def spending(self) -> Spending:
        """The errors of counts by the curves, and what they cost."""
        return self.search.spending("params")

    def attempts(self) -> Iterator[Attempt]:
        """Networks that come closer and closer to what is allowed."""
        tried = list[Attempt]()
        counts: Indices | None = self.first_counts
        while counts is not None:
            tried.append(self.attempt(counts, len(whole_tries(tried))))
            yield tried[-1]
            near = NEAR_ENOUGH * self.limit <= tried[-1].worst <= self.limit
            if near or len(whole_tries(tried)) >= self.most_tries(tried):
                return
            if len(tried) == 1 and tried[0].worst > FAR_OFF * self.limit:
                tried += (looks := list(self.each_alone(counts)))
                yield from looks
            counts = self.next_counts(tried)

    def each_alone(self, counts: Indices) -> Iterator[Attempt]:
        """One layer after the other with so few units, all others whole, if there are several."""
        whole, cost = self.spending.whole, self.spending.cost
        places = np.arange(len(whole))
        cuts = {int(i): np.where(places == i, counts, whole) for i in places[counts < whole]}
        for place in sorted(cuts, key=lambda i: cost(cuts[i]))[: MOST_ALONE * (len(cuts) > 1)]:
            found = self.seen(self.search.merged(cuts[place]), self.search.curves[place].axis.name)
            yield replace(found, alone=place)

    def most_tries(self, tried: Sequence[Attempt]) -> int:
        """One more as long as none is good enough."""
        return max(self.usual_tries, len(AIMS) if self.in_vain(tried) else 0)

    @cached_property
    def usual_tries(self) -> int:
        """How many tries there are, by what they cost."""
        dense = all(is_plain_dense(axis) for axis in self.search.axes)
        quick = dense and self.search.merge.quotient == "refit"
        return QUICK_TRIES if quick else MOST_TRIES

    def in_vain(self, tried: Sequence[Attempt]) -> int:
        """How many tries there were if none of them is good enough."""
        found = whole_tries(tried)
        return 0 if any(a.worst <= self.limit for a in found) else len(found)

    @property
    def first_counts(self) -> Indices | None:
        """What the curves allow, or the smallest step, which may lose less than they say."""
        allowed, whole = self.spending.within(self.first_budget), self.spending.whole
        if (allowed < whole).any():
            return allowed
        step = self.spending.under(self.spending.cost(whole) - 1)
        return step if (step < whole).any() else None

    @property
    def first_budget(self) -> float:
        """The error of the outputs that the first try may have by the curves."""
        return self.limit if self.kind == "error" else FIRST_DROP_BUDGET

    def attempt(self, counts: Indices, number: int) -> Attempt:
        """A network with so many units, and what it loses."""
        share = 1 / max(self.usual_tries - number, 1)
        return self.seen(self.search.merged(counts, share, by_error=not number), number + 1)

    def seen(self, result: PassResult, what: int | str) -> Attempt:
        """What a network loses, which is a try by its number, or the part of one that is named."""
        loss, worst = self.chooser.judged(result.graph)
        found = Attempt(self.search.counts_of(result), result, loss, worst)
        name = f"try {what}" if isinstance(what, int) else f"of these, '{what}' alone"
        self.search.context.progress.note(
            f"note: {name}: {self.spending.cost(found.counts):,.0f} parameters lose "
            f"{found.value:.3g}, on other rows up to {worst:.3g}; {self.limit:g} is allowed"
        )
        return found

    def best(self, tried: Sequence[Attempt]) -> Attempt:
        """The smallest of those that are good enough, or the network without loss."""
        nothing = Attempt(self.spending.whole, self.search.lossless)
        good = [nothing, *(a for a in tried if a.worst <= self.limit)]
        return min(good, key=lambda a: self.spending.cost(a.counts))

    def corrected(self, tried: Sequence[Attempt]) -> Spending:
        """Curves that know the errors of the layers that were found, and what each does alone.

        Behind a layer that is destroyed, the errors of others say little.
        """
        allowed = DESTROYED * self.limit
        believed = [a for a in tried if a.alone is not None or a.worst <= allowed]
        curves = []
        for place, curve in enumerate(self.search.curves):
            found = {}
            for attempt in believed:
                errors = self.search.own_errors(attempt.result)
                if curve.axis.name in errors:
                    found[int(attempt.counts[place])] = errors[curve.axis.name]
            curves.append(corrected_curve(curve.network, curve.local, found))
        spending = replace(self.spending, curves=curves)
        return replace(spending, curves=self.blamed(spending, tried))

    def blamed(self, spending: Spending, tried: Sequence[Attempt]) -> Sequence[FloatArray]:
        """Curves times what a layer lost alone, of what all together lost by their curves."""
        curves, first = list(spending.curves), spending.error(tried[0].counts)
        usual = tried[0].value / first if first else 0.0
        for attempt in tried:
            if attempt.alone is None or usual <= 0:
                continue
            curve = curves[attempt.alone]
            if error := float(curve[attempt.counts[attempt.alone]]):
                factor = attempt.value / error / usual
                curves[attempt.alone] = curve * np.clip(factor, *BLAME)
        return curves

    def next_counts(self, tried: Sequence[Attempt]) -> Indices | None:
        """The counts to try next; None if there are none that are fewer and may be good enough."""
        spending = self.corrected(tried)
        known = {tuple(attempt.counts) for attempt in tried}
        whole = whole_tries(tried)
        errors = [spending.error(attempt.counts) for attempt in whole]
        wanted = AIMS[min(self.in_vain(tried), len(AIMS) - 1)] * self.limit
        budget = next_budget(errors, [a.worst for a in whole], wanted)
        least = self.spending.cost(self.best(tried).counts)
        while spending.cost(counts := spending.within(budget)) < least:
            if tuple(counts) not in known:
                return counts
            if not spending.error(counts):
                return None
            budget *= SHORTER
        return None


def whole_tries(tried: Sequence[Attempt]) -> list[Attempt]:
    """Those that are not only a look at one layer."""
    return [attempt for attempt in tried if attempt.alone is None]


@dataclass(frozen=True, eq=False)
class LossChooser:
    """Measures what networks lose on rows that are kept for choosing, and on those fitted to."""

    kind: str
    kept: SideBySide
    fitted: SideBySide
    verdict_rows: int

    @classmethod
    def of(cls, kind: str, limit: float, original: Graph, inputs: InputSource) -> LossChooser:
        """DataError if there is too little data, or labels do not fit."""
        given = inputs.data.rows if inputs.data else 0
        judging = inputs.verdict.rows if inputs.verdict else 0
        if given + judging < FEWEST_ROWS_FOR_LOSS or inputs.data is None or not judging:
            raise DataError(
                f"--max-{kind} needs rows to fit to, to choose by and to judge by: give at least "
                f"{FEWEST_ROWS_FOR_LOSS} rows of --data, not {given + judging}"
            )
        fit, choose = inputs.data.parts
        kept, fitted = (
            SideBySide(original, sized_to_compare(rows, original), clock=inputs.clock)
            for rows in (choose, fit.some(DATA_ROWS))
        )
        found = cls(kind, kept, fitted, judging)
        _, least = found.judged(original)
        if least > limit:
            needed = math.ceil((given + judging) * least / limit)
            raise DataError(
                f"--max-{kind} {limit:g} cannot be shown with {given + judging:,} rows: even a "
                f"model that changes none of them may lose {least:.2g} points on others; give "
                f"about {needed:,} rows of --data, or allow more"
            )
        return found

    def judged(self, graph: Graph) -> tuple[Estimate, float]:
        """What a network loses, and what it is likely to lose at most on other rows.

        On rows that it was fitted to it loses less, but of these there are more: if they tell of a
        larger loss of all rows, then those to choose by lack the rows with a large one.
        """
        kept, fitted = self.losses(self.kept, graph), self.losses(self.fitted, graph)
        worst = max(
            *(loss.expected(self.verdict_rows) for loss in kept),
            *(loss.expected(ALL_ROWS) for loss in fitted),
        )
        return max(kept, key=lambda loss: loss.value), worst

    def losses(self, rows: SideBySide, graph: Graph) -> list[Estimate]:
        """What a network loses on some rows, in each output where the error is limited."""
        found = rows.compare(graph)
        if found.verification.unverified:
            reason = found.verification.unverified
            raise VerificationError(f"--max-{self.kind} cannot be measured: {reason}")
        if self.kind == "error":
            return error_losses(found.measured)
        labels = None if isinstance(rows.samples, str) else rows.samples.labels
        return [drop_loss(found.before, found.after, labels)]


def next_budget(errors: Sequence[float], losses: Sequence[float], wanted: float) -> float:
    """The error that leads to a loss, from the errors and losses of what was tried.

    Between two tries losses are a power of errors. Below all of them their common power goes on, if
    they are far enough apart to tell it, else it is 1, as it is above them.
    """
    order = np.lexsort((losses, errors))
    least = np.finfo(np.float64).tiny
    x = np.log(np.maximum(np.asarray(errors)[order], least))
    y = np.log(np.maximum(np.maximum.accumulate(np.asarray(losses)[order]), least))
    aim, most = math.log(wanted), math.log(LARGEST_STEP)
    if aim > y[-1]:
        return math.exp(x[-1] + min(aim - y[-1], most))
    if aim >= y[0]:
        return math.exp(np.interp(aim, y, x))
    apart = x[-1] - x[0]
    power = (y[-1] - y[0]) / apart if apart > FAR_APART else 1.0
    return math.exp(x[0] + max((aim - y[0]) / min(max(power, LEAST_GROWTH), 1.0), -most))
