"""The fewest neurons of any activation by elimination: some of the layer's own, refitted.

    G = G_data/‖F_data‖² + α G_gauss/‖F_gauss‖²,     α = 0.1; without data G_gauss alone

Neurons are dropped one after the other (`elimination`); the outgoing weights of those that are left
are the best for the same sum, and the offset leaves no mean error on the data, or in the metric.
"""

from __future__ import annotations

import bisect
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from onnxfde.neurons.elimination import eliminate
from onnxfde.neurons.free_layers import FreeLayers
from onnxfde.neurons.frontier import Reduced
from onnxfde.neurons.given_candidates import GivenCandidates
from onnxfde.neurons.held_out import Evidence
from onnxfde.neurons.objective import best_outgoing
from onnxfde.neurons.problem import Problem
from onnxfde.neurons.selection import Selection
from onnxfde.neurons.structural_merge import structural_merge
from onnxfde.numbers import FloatArray
from onnxfde.progress import Progress

PRIOR = 0.1
"""α, the weight of the Gaussian picture beside data. Taken from prototypes; not tuned."""
ELIMINATION_PRODUCTS = 1e11
"""Rows × neurons² of the Gram matrix on data, 5 to 10 s on one core; where there are more rows,
some are left out. Chosen; not tuned."""


@dataclass(frozen=True, eq=False)
class EliminationSearch:
    """The frontier of a layer by leaving out neurons."""

    problem: Problem
    progress: Progress = field(default_factory=Progress)

    def within(self, eps: float) -> Reduced | None:
        """The fewest neurons within ε, or None when that is all of them."""
        if eps < self.problem.floor or not self.problem.live.neurons:
            return self.lossless
        top = self.lossless.layer.neurons if self.lossless else self.problem.live.neurons
        counts = range(1, top)

        def passes(count: int) -> bool:
            return self.problem.expected_error(self.candidate(count)) <= eps

        at = bisect.bisect_left(counts, True, key=passes)
        return self.candidate(counts[at]) if at < len(counts) else self.lossless

    def at_most(self, count: int) -> Reduced | None:
        """The layer with at most this many neurons; fewer when nothing is lost by it."""
        known = self.lossless
        if count >= self.problem.live.neurons or (known and known.layer.neurons <= count):
            return known
        return self.candidate(count)

    def smallest_eps(self) -> float:
        """The smallest ε at which a neuron can go."""
        count = self.problem.live.neurons - 1
        return self.problem.expected_error(self.candidate(count)) if count > 0 else 0.0

    @property
    def neurons_lossless(self) -> int:
        """The fewest neurons that are equal for all inputs."""
        return self.lossless.layer.neurons if self.lossless else self.problem.layer.neurons

    @cached_property
    def lossless(self) -> Reduced | None:
        """The fewest neurons that are equal for all inputs, or None when that is all of them."""
        return structural_merge(self.problem)

    def candidate(self, count: int) -> Reduced:
        """The layer that this many of the neurons make, or fewer if the others depend on them."""
        if count not in self._made:
            self._made[count] = self._candidate(count)
        return self._made[count]

    def first_rows(self, count: int) -> list[FloatArray]:
        """The neurons that elimination leaves."""
        return [self.problem.rows[self._kept(count)]]

    @cached_property
    def _made(self) -> dict[int, Reduced]:
        return {}

    def _kept(self, count: int) -> FloatArray:
        """Which neurons are left; where too few are independent, the next best."""
        order = self._order.order
        if len(order) < count:
            others = np.setdiff1d(np.arange(self.problem.live.neurons), order)
            order = np.concatenate([order, others])
        return np.asarray(np.sort(order[:count]))

    def _candidate(self, count: int) -> Reduced:
        kept, problem = self._kept(count), self.problem
        gram, target = self._products
        some = gram[np.ix_(kept, kept)]
        ridge = self._layers.ridge * np.diagonal(some)
        outgoing = best_outgoing(some, target[:, kept], ridge)
        start = replace(problem.live.only(kept), outgoing=outgoing)
        return self._layers.centred(problem.evened(start), self._evidence)

    @cached_property
    def _layers(self) -> FreeLayers:
        return FreeLayers(self.problem)

    @cached_property
    def _evidence(self) -> Evidence | None:
        """The rows that neurons are fitted to."""
        evidence, live = self.problem.evidence, self.problem.live
        if evidence is None:
            return None
        most = max(int(ELIMINATION_PRODUCTS / live.neurons**2), 1)
        return evidence.fitted.some(most)

    @cached_property
    def _products(self) -> tuple[FloatArray, FloatArray]:
        """G and T of the layer's own neurons."""
        problem, own = self.problem, self.problem.rows
        total = problem.total or 1.0
        gram = problem.kernel.gram(own, own) / total**2
        target = problem.live.outgoing @ gram
        if self._evidence is None:
            return gram, target
        seen = self._evidence.hidden_view(problem.live)
        weight = 1 / (seen.target.total or 1.0) ** 2
        return weight * seen.gram + PRIOR * gram, weight * seen.overlap + PRIOR * target

    @cached_property
    def _order(self) -> Selection:
        gram, target = self._products
        total = 1.0 if self._evidence is None else float(np.sqrt(1 + PRIOR))
        return eliminate(GivenCandidates.of(gram, target, total), 1, self.progress)
