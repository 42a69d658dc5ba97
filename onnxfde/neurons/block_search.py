"""The fewest neurons by merging: one neuron stands for each block of the layer's neurons.

Candidates come from two orders in which neurons can be removed: the merge tree (`merge_order`) and,
for lossless results, the pivoted basis (`pivoted_basis`). Each candidate is built and rounded to
the stored type before it is judged (`problem`).
"""

from __future__ import annotations

import bisect
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from onnxfde.neurons.frontier import Reduced
from onnxfde.neurons.kernels import kernel_scale, mean_square
from onnxfde.neurons.merge_order import MergeTree, merge_tree
from onnxfde.neurons.pivoted_basis import PivotedBasis, pivoted_basis
from onnxfde.neurons.positive_matrices import LARGE
from onnxfde.neurons.problem import Problem
from onnxfde.neurons.refit import refit, ridged_gram
from onnxfde.neurons.tree_curve import TreeCurve
from onnxfde.numbers import Blocks, FloatArray
from onnxfde.progress import Progress

NEARLY_MONOTONE = 8
"""How many counts below the one that a search finds are tried as well, because the error does not
fall with every neuron along the merge tree. Chosen; not tuned."""
FULL_SCAN = 32
"""If that search finds a count up to this one, all smaller counts are tried. Chosen because that
takes little time; not tuned."""

ALWAYS_LOSSLESS = 1024
"""Neurons up to which the fewest without loss are always looked for. Chosen; not tuned."""
NEARLY_LOSSLESS = 1e-4
"""In larger layers they are looked for only if the error found is below this: a layer that could do
without loss with no more neurons would hardly have an error. Chosen; not tuned."""


@dataclass(frozen=True, eq=False)
class BlockSearch:
    """The frontier of a layer by merging blocks of neurons."""

    problem: Problem
    refitted: bool = True
    """Whether outgoing weights are refitted, or only projected (quotient `single`)."""
    progress: Progress = field(default_factory=Progress)

    def within(self, eps: float) -> Reduced | None:
        """The fewest neurons within ε, or None when that is all of them."""
        live = self.problem.live
        if eps < self.problem.floor or not live.neurons:
            return self.lossless
        best = self.lossless if live.neurons <= ALWAYS_LOSSLESS else None
        found = self._from_tree(eps, best.layer.neurons if best else live.neurons) or best
        return self._no_more_than_lossless(found)

    def at_most(self, count: int) -> Reduced | None:
        """The layer with at most this many neurons; fewer when nothing is lost by it."""
        if count >= self.problem.live.neurons:
            return self.lossless
        return self._no_more_than_lossless(self.candidate(count))

    def _no_more_than_lossless(self, found: Reduced | None) -> Reduced | None:
        """The lossless layer if it is no larger; it cannot be where the error is not near 0."""
        if self.problem.live.neurons > ALWAYS_LOSSLESS and found and found.error > NEARLY_LOSSLESS:
            return found
        lossless = self.lossless
        smaller = lossless and (not found or lossless.layer.neurons <= found.layer.neurons)
        return lossless if smaller else found

    def smallest_eps(self) -> float:
        """The smallest ε at which a neuron can go."""
        count = self.problem.live.neurons - 1
        return self.candidate(count).error if count > 0 else 0.0

    @property
    def neurons_lossless(self) -> int | None:
        """The fewest neurons that are equal up to rounding; None if nothing asked for them."""
        if self.problem.live.neurons > ALWAYS_LOSSLESS and "lossless" not in self.__dict__:
            return None
        return self.lossless.layer.neurons if self.lossless else self.problem.layer.neurons

    @cached_property
    def lossless(self) -> Reduced | None:
        """The fewest neurons that are equal up to rounding; a second search finds no fewer."""
        problem = self.problem
        if not problem.live.neurons:
            return problem.constant()
        found = self._equal()
        while found is not None:
            again = replace(self, problem=replace(problem, layer=found.layer))._equal()
            if again is None or not again.layer.neurons or not problem.accepts(again, 0.0):
                break
            joined = tuple(
                tuple(sorted(i for b in block for i in found.blocks[b])) for block in again.blocks
            )
            found = problem.reduced(again.layer, joined)
        return found

    def _equal(self) -> Reduced | None:
        if not self.refitted:
            return self._from_tree(0.0, self.problem.live.neurons) or self._without_constants()
        return self._from_basis() if self._dependent() else self._without_constants()

    @cached_property
    def tree(self) -> MergeTree:
        """The order in which neurons are joined."""
        return merge_tree(self.problem.rows, self.problem.live.outgoing, self.progress)

    @cached_property
    def curve(self) -> TreeCurve:
        """The errors of its cuts."""
        return TreeCurve(self.problem.original, self.tree)

    @cached_property
    def _basis(self) -> PivotedBasis:
        return pivoted_basis(self.problem.rows, self.problem.live.outgoing)

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
        tried = range(max(shortest, 1), self.problem.live.neurons)

        def equal(count: int) -> bool:
            return self.problem.accepts(self._basis_candidate(count), 0.0)

        at = 0
        if tried and not equal(tried[0]):
            at = bisect.bisect_left(tried, True, lo=1, key=equal)
        return self._basis_candidate(tried[at]) if at < len(tried) else self._without_constants()

    def _without_constants(self) -> Reduced | None:
        """The layer without dead and constant neurons; None if it has none."""
        live = self.problem.live
        if live.neurons == self.problem.layer.neurons:
            return None
        blocks = tuple((i,) for i in range(live.neurons))
        return self._built(live.incoming, self.problem.rows, blocks)

    def _basis_candidate(self, count: int) -> Reduced:
        kept, blocks = self._basis.cut(count)
        incoming, rows = self.problem.live.incoming[kept], self.problem.rows[kept]
        return self._built(incoming, rows, blocks, exact=True)

    def _from_tree(self, eps: float, limit: int) -> Reduced | None:
        """The fewest blocks of the merge tree, below `limit`, that are acceptable.

        The error along the tree is only nearly monotone: a search finds a count, and those just
        below it are tried as well, or all of them when they are few. A larger ε can only give a
        smaller result.
        """
        allowed = self.problem.worth_building(eps)
        at = self._first_within(allowed, limit)
        for count in range(at - NEARLY_MONOTONE if at > FULL_SCAN else 1, limit):
            if self._tree_error(count) <= allowed:
                candidate = self.candidate(count)
                if self.problem.accepts(candidate, eps):
                    return candidate
        return None

    def _first_within(self, allowed: float, limit: int) -> int:
        """The count at which the tree's error falls below `allowed`; `limit` if none below does.

        It begins where the costs of all joins add up to that, goes on in steps that double, and
        then bisects.
        """
        joins = int(np.searchsorted(np.cumsum(self.tree.costs), allowed**2, side="right"))
        at, step = min(self.problem.live.neurons - joins, limit), self.curve.width
        low, high = 0, limit
        while high - low > 1:
            if low < at < high:
                if self._tree_error(at) <= allowed:
                    high, at = at, at - step
                else:
                    low, at = at, at + step
                step *= 2
            else:
                at, step = (low + high) // 2, 0
        return high

    def candidate(self, count: int) -> Reduced:
        """The quotient by the merge tree's partition into `count` blocks.

        A block of equal neurons, or of one, keeps their row to the last digit.
        """
        if count not in self._candidates:
            nodes, blocks = self.tree.cut(count)
            own, incoming = self.problem.live.incoming, self.problem.metric.unwhiten(nodes)
            for i, block in enumerate(blocks):
                if (own[list(block)] == own[block[0]]).all():
                    incoming[i], nodes[i] = own[block[0]], self.problem.rows[block[0]]
            self._candidates[count] = self._built(incoming, nodes, blocks)
        return self._candidates[count]

    @cached_property
    def _candidates(self) -> dict[int, Reduced]:
        return {}

    def _built(
        self, incoming: FloatArray, rows: FloatArray, blocks: Blocks, exact: bool = False
    ) -> Reduced:
        """The quotient with these neurons, as it will read back from the file."""
        problem, live = self.problem, self.problem.live
        fitted = replace(live, incoming=incoming, outgoing=self._projected(rows, blocks))
        if self.refitted and len(blocks) < live.neurons:
            fitted = refit(problem.original, fitted, problem.roundoff if exact else None)
        named = tuple(tuple(sorted(int(problem.numbers[i]) for i in block)) for block in blocks)
        return problem.stored(fitted, named)

    def _projected(self, rows: FloatArray, blocks: Blocks) -> FloatArray:
        """Outgoing weights of each block: its members' squares projected onto its row's square."""
        live = self.problem.live
        home = np.empty(live.neurons, dtype=np.intp)
        for i, block in enumerate(blocks):
            home[list(block)] = i
        length = mean_square(rows)[home]
        along = np.einsum("ij,ij->i", self.problem.rows, rows[home])
        along /= np.where(length == 0, 1.0, length)
        outgoing = np.zeros((len(blocks), live.outputs))
        np.add.at(outgoing, home, (live.outgoing * along**2).T)
        return outgoing.T

    def _tree_error(self, count: int) -> float:
        """The error of `count` blocks of the tree, estimated where they are refitted."""
        if self.refitted:
            return self.curve.error(count)
        return self.candidate(count).error * self.problem.total
