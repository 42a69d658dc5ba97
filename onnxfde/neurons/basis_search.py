"""The fewest of a layer's own neurons that are equal to all of them up to rounding.

Neurons are ordered from the most to the least independent (`pivoted_basis`); the shortest prefix
that does is taken. It is built and rounded to the stored type before it is judged (`problem`).
"""

from __future__ import annotations

import bisect
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from onnxfde.neurons.frontier import Reduced
from onnxfde.neurons.kernels import feature_count, kernel_scale
from onnxfde.neurons.pivoted_basis import PivotedBasis, pivoted_basis
from onnxfde.neurons.positive_matrices import LARGE
from onnxfde.neurons.problem import Problem
from onnxfde.neurons.quotient_layer import quotient_layer
from onnxfde.neurons.refit import ridged_gram


@dataclass(frozen=True, eq=False)
class BasisSearch:
    """Some neurons of a layer that can stand for all."""

    problem: Problem

    def found(self) -> Reduced | None:
        """The fewest neurons, or None when that is all of them."""
        return self._from_basis() if self._dependent() else without_constants(self.problem)

    @cached_property
    def _basis(self) -> PivotedBasis:
        problem = self.problem
        return pivoted_basis(problem.rows, problem.live.outgoing, problem.worth_building(0.0))

    def _dependent(self) -> bool:
        """Whether the others could replace some neuron up to rounding, where that is quick to see.

        Without neuron i, and refitted, the layer's error is ‖V_i‖ / √[K⁻¹]_ii.
        """
        live, original = self.problem.live, self.problem.original
        if live.neurons >= LARGE or original.few_features:
            return True
        if len(np.unique(live.incoming, axis=0)) < live.neurons:
            return True
        inverse = np.linalg.inv(ridged_gram(original.rows))
        alone = np.linalg.norm(live.outgoing, axis=0) * kernel_scale(original.rows)
        allowed = self.problem.worth_building(0.0)
        return bool(np.any(alone <= allowed * np.sqrt(np.abs(np.diag(inverse)))))

    def _from_basis(self) -> Reduced | None:
        """The shortest prefix of the pivoted basis that is equal up to rounding."""
        shortest = int(np.argmax(self._basis.errors <= self.problem.worth_building(0.0)))
        live, few = self.problem.live, self.problem.original.few_features
        most = min(live.neurons, feature_count(live.inputs + 1) + 1) if few else live.neurons
        tried = range(max(shortest, 1), most)

        def equal(count: int) -> bool:
            return self.problem.accepts(self._basis_candidate(count), 0.0)

        at = 0
        if tried and not equal(tried[0]):
            at = bisect.bisect_left(tried, True, lo=1, key=equal)
        return (
            self._basis_candidate(tried[at]) if at < len(tried) else without_constants(self.problem)
        )

    def _basis_candidate(self, count: int) -> Reduced:
        kept, blocks = self._basis.cut(count)
        return quotient_layer(self.problem, self.problem.live.incoming[kept], blocks, exact=True)


def without_constants(problem: Problem) -> Reduced | None:
    """The layer without dead and constant neurons; None if it has none."""
    live = problem.live
    if live.neurons == problem.layer.neurons:
        return None
    return quotient_layer(problem, live.incoming, tuple((i,) for i in range(live.neurons)))
