"""The fewest neurons when U′ and V′ are chosen together.

    Σ_r V′_kr u′_r u′_rᵀ ≈ Q_k   for all outputs k, in the metric

The fewest neurons within ε are found by trying counts (`count_search`, `count_trials`); for a given
count several layers are made and the best is taken (`free_attempts`). Where nothing may be lost
there are two ways, each of which can be the better one: a basis of the original neurons
(`block_search`), and eigenvectors of the outputs (`completed_square`).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from onnxfde.deadline import Deadline
from onnxfde.neurons.completed_square import eigen_neurons
from onnxfde.neurons.count_search import CountSearch
from onnxfde.neurons.count_trials import CountTrials
from onnxfde.neurons.free_attempts import FreeAttempts
from onnxfde.neurons.free_layers import FreeLayers
from onnxfde.neurons.frontier import Reduced
from onnxfde.neurons.merge_search import MergeSearch
from onnxfde.neurons.problem import Problem
from onnxfde.neurons.refit import refit
from onnxfde.neurons.search_meter import SearchMeter
from onnxfde.progress import Progress

MOST_EIGEN = 1e10
"""Outputs × inputs³ up to which eigenvectors of all outputs are computed, 1 to 2 s on one core.
Chosen; not tuned."""
POLISHING_WORK = 1e9
"""Multiplications up to which the error is lowered further at the count that a search found, where
descents end as soon as they are within ε, or where Levenberg–Marquardt is used: a few seconds on
one core at most, mostly far less. Chosen; not tuned."""
TIE = 1.05
"""A lossless layer is preferred to one whose measured error is smaller by at most this factor.
Chosen; not tuned."""


@dataclass(frozen=True, eq=False)
class FreeSearch:
    """The frontier of a layer when its neurons are chosen freely."""

    problem: Problem
    blocks: MergeSearch
    progress: Progress = field(default_factory=Progress)
    deadline: Deadline = field(default_factory=Deadline)
    """When to stop and take the best found so far."""

    def within(self, eps: float) -> Reduced | None:
        """The fewest neurons within ε, or None when that is all of them."""
        problem, kept = self.problem, [self.lossless] if self.lossless else []
        if eps >= problem.floor and problem.live.neurons:
            merged = self.blocks.within(eps)
            self.progress.say("trying counts")
            found = (merged, *self._polished(self._counts.within(eps, merged) or merged))
            kept += [r for r in found if r and problem.expected_error(r) <= eps]
            if self.meter.cut and merged and not kept:
                return merged
        return min(kept, key=lambda r: (r.layer.neurons, *problem.rank(r)), default=None)

    def at_most(self, count: int) -> Reduced | None:
        """The layer with at most this many neurons; fewer when nothing is lost by it."""
        problem, known = self.problem, self.lossless
        enough = known is not None and known.layer.neurons <= count
        if count >= problem.live.neurons or (enough and problem.inherited_error < problem.floor):
            return known
        self.meter.plan(1, self._attempts.most_steps(count))
        best = min(self._attempts.at(count), key=problem.rank)
        self.meter.finish(best.layer.neurons, problem.layer.neurons)
        if known and enough and problem.measured_error(known) <= TIE * problem.measured_error(best):
            return known
        return best

    def smallest_eps(self) -> float:
        """An ε at which a neuron can go: that of the cheapest merge."""
        problem, count = self.problem, self.problem.live.neurons - 1
        if count < 1:
            return 0.0
        return max(problem.floor, problem.expected_error(self.blocks.candidate(count)))

    @property
    def neurons_lossless(self) -> int:
        """The fewest neurons that are equal up to rounding."""
        return self.lossless.layer.neurons if self.lossless else self.problem.layer.neurons

    @cached_property
    def lossless(self) -> Reduced | None:
        """The fewest neurons that are equal up to rounding: originals, or eigenvectors."""
        problem, found = self.problem, self.blocks.lossless
        live = problem.live
        if not problem.squares:
            return found
        work = live.outputs * live.inputs**3
        if not live.neurons or work > MOST_EIGEN or not np.isfinite(problem.rows).all():
            return found
        most = found.layer.neurons if found else live.neurons
        rows = eigen_neurons(problem.rows, live.outgoing, most)
        if not 0 < len(rows) < most:
            return found
        nothing = np.zeros((live.outputs, len(rows)))
        start = replace(live, incoming=problem.metric.unwhiten(rows), outgoing=nothing)
        reduced = problem.stored(refit(problem.original, start, problem.roundoff), ())
        return reduced if reduced.layer.finite and problem.accepts(reduced, 0.0) else found

    @property
    def remark(self) -> str | None:
        """Why the last search ended before its time, if it did."""
        return self.meter.remark

    @property
    def cut(self) -> bool:
        """Whether the deadline ended the last search."""
        return self.meter.cut

    def _polished(self, found: Reduced | None) -> list[Reduced]:
        """What a search found and, if that takes little work, all attempts at its count."""
        if found is None:
            return []
        count = found.layer.neurons
        quick = self._layers.is_small(count) or self._attempts.most_work(count) <= POLISHING_WORK
        return [found, *self._attempts.at(count)] if quick and not self.meter.cut else [found]

    @cached_property
    def meter(self) -> SearchMeter:
        """Reports how far the search is, and knows whether the deadline has ended it."""
        return SearchMeter(self.progress, self.deadline)

    @cached_property
    def _layers(self) -> FreeLayers:
        return FreeLayers(self.problem)

    @cached_property
    def _attempts(self) -> FreeAttempts:
        return FreeAttempts(self._layers, self.blocks, self.meter)

    @cached_property
    def _counts(self) -> CountSearch:
        top = self.lossless.layer.neurons if self.lossless else self.problem.live.neurons
        return CountSearch(CountTrials.planned(self._layers, self.blocks, self.meter, top), top)
