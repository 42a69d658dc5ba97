"""The fewest neurons when U′ and V′ are chosen together.

    Σ_r V′_kr u′_r u′_rᵀ ≈ Q_k   for all outputs k, in the metric

The fewest neurons within ε are found by bisection over counts; for each count several layers are
made (`free_attempts`), and any of them may do. Where nothing may be lost there are two ways, each
of which can be the better one: a basis of the original neurons (`block_search`), and eigenvectors
of the outputs (`completed_square`).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from onnxfde.neurons.block_search import BlockSearch
from onnxfde.neurons.completed_square import eigen_neurons
from onnxfde.neurons.free_attempts import FreeAttempts
from onnxfde.neurons.frontier import Reduced
from onnxfde.neurons.problem import Problem
from onnxfde.neurons.refit import refit
from onnxfde.progress import Progress

MOST_EIGEN = 1e10
"""Outputs × inputs³ up to which eigenvectors of all outputs are computed, 1 to 2 s on one core.
Chosen; not tuned."""
TIE = 1.05
"""A lossless layer is preferred to one whose measured error is smaller by at most this factor.
Chosen; not tuned."""


@dataclass(frozen=True, eq=False)
class FreeSearch:
    """The frontier of a layer when its neurons are chosen freely."""

    problem: Problem
    blocks: BlockSearch
    progress: Progress = field(default_factory=Progress)

    def within(self, eps: float) -> Reduced | None:
        """The fewest neurons within ε, or None when that is all of them."""
        problem, kept = self.problem, [self.lossless] if self.lossless else []
        if eps >= problem.floor and problem.live.neurons:
            found = (self.blocks.within(eps), self._bisected(eps))
            kept += [r for r in found if r and problem.expected_error(r) <= eps]
        return min(kept, key=lambda r: (r.layer.neurons, *problem.rank(r)), default=None)

    def at_most(self, count: int) -> Reduced | None:
        """The layer with at most this many neurons; fewer when nothing is lost by it."""
        problem, known = self.problem, self.lossless
        enough = known is not None and known.layer.neurons <= count
        if count >= problem.live.neurons or (enough and problem.inherited_error < problem.floor):
            return known
        best = min(self._attempts.at(count), key=problem.rank)
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

    @cached_property
    def _attempts(self) -> FreeAttempts:
        return FreeAttempts(self.problem, self.blocks, self.progress)

    def _bisected(self, eps: float) -> Reduced | None:
        """The fewest neurons within ε by bisection.

        A count is good if any attempt at it is within ε. Attempts are remembered, so that a larger
        ε never leaves more neurons.
        """
        high = self.lossless.layer.neurons if self.lossless else self.problem.live.neurons
        low, tried, fewest = 0, 0, None
        while high - low > 1:
            count, left = (low + high) // 2, (high - low - 1).bit_length()
            self._attempts.meter.start(tried, tried + left)
            if self._reaches(count, eps):
                high = fewest = count
            else:
                low = count
            tried += 1
        return None if fewest is None else min(self._attempts.at(fewest), key=self.problem.rank)

    def _reaches(self, count: int, eps: float) -> bool:
        """Whether some attempt at this count is within ε."""
        problem = self.problem
        if problem.evidence is None and (problem.lower_bound(count) or 0.0) > eps:
            return False
        return any(problem.expected_error(found) <= eps for found in self._attempts.at(count))
