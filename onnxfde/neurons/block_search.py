"""The fewest neurons by merging: one neuron stands for each block of the layer's neurons.

Candidates come from two orders in which neurons can be removed: the merge tree (`merge_order`) and,
for lossless results, the pivoted basis (`pivoted_basis`). Each candidate is built and rounded to
the stored type before it is judged (`problem`).
"""

from __future__ import annotations

import bisect
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from onnxfde.neurons.frontier import Reduced
from onnxfde.neurons.kernels import kernel, kernel_scale, mean_square, tile_slices, unit_rows
from onnxfde.neurons.merge_order import MergeTree, merge_tree
from onnxfde.neurons.pivoted_basis import PivotedBasis, pivoted_basis
from onnxfde.neurons.positive_matrices import LARGE
from onnxfde.neurons.problem import Problem
from onnxfde.neurons.refit import refit, ridged_gram
from onnxfde.neurons.tree_choice import TreeChoice
from onnxfde.neurons.tree_curve import TreeCurve
from onnxfde.numbers import Blocks, FloatArray, Indices
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

COARSE = 64
"""In large layers counts are found up to this part of them, 1.6 %. Chosen; not tuned."""
ROUNDED = 1.01
"""If rounding makes a layer worse than estimated by more than this factor, the cut of the tree is
tried as well. Chosen; not tuned."""


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
        """The fewest nodes of the merge tree, below `limit`, that are acceptable.

        The error is only nearly monotone: a search finds a count, and those just below it are
        tried as well, or all of them when they are few. A larger ε can only give a smaller result.
        """
        allowed = self.problem.worth_building(eps)
        joins = int(np.searchsorted(np.cumsum(self.tree.costs), allowed**2, side="right"))
        guess = min(self.problem.live.neurons - joins, limit)
        at = self._first_within(allowed, guess, limit, self._cut_error)
        if self._chooses(at):
            at = self._first_within(allowed, at - self.curve.width, at, self._best_error)
        back = 0 if self._is_large else NEARLY_MONOTONE
        for count in range(at - back if at > FULL_SCAN else 1, limit):
            if self._error(count) <= allowed:
                candidate = self.candidate(count)
                if self.problem.accepts(candidate, eps):
                    return candidate
        return None

    def _first_within(
        self, allowed: float, at: int, limit: int, error: Callable[[int], float]
    ) -> int:
        """The count at which an error falls below `allowed`; `limit` if none below does.

        It begins at a guess, goes on in steps that double, and then bisects; in large layers up to
        some percent.
        """
        low, high, step = 0, limit, self.curve.width
        while high - low > (1 + high // COARSE if self._is_large else 1):
            if not low < at < high:
                at, step = (low + high) // 2, 0
            if error(at) <= allowed:
                high, at = at, at - step
            else:
                low, at = at, at + step
            step *= 2
        return high

    @property
    def _is_large(self) -> bool:
        """Whether an error takes so long that not all counts around a good one are tried."""
        return self.problem.live.neurons > ALWAYS_LOSSLESS

    def _chooses(self, count: int) -> bool:
        """Whether the best nodes are looked for, and not only those of the cut.

        In large layers not where many neurons are left: there it takes long and gains little.
        """
        return self.refitted and (not self._is_large or 2 * count <= self.problem.live.neurons)

    def _error(self, count: int) -> float:
        return self._best_error(count) if self._chooses(count) else self._cut_error(count)

    def _cut_error(self, count: int) -> float:
        """The error of a cut of the tree, estimated where it is refitted."""
        if self.refitted:
            return self.curve.error(count)
        return self._from_cut(count).error * self.problem.total

    def _best_error(self, count: int) -> float:
        return self._best_nodes(count)[1]

    def _best_nodes(self, count: int) -> tuple[Indices, float]:
        if count not in self._chosen:
            self._chosen[count] = self._choice.best(count)
        return self._chosen[count]

    @cached_property
    def _choice(self) -> TreeChoice:
        original = self.problem.original
        return TreeChoice(self.tree, original.rows, original.layer.outgoing, original.total)

    @cached_property
    def _chosen(self) -> dict[int, tuple[Indices, float]]:
        return {}

    def candidate(self, count: int) -> Reduced:
        """The layer made of `count` nodes of the tree: the best ones, or those of its cut.

        Chosen nodes may need larger weights, which round more; then the cut can be better.
        """
        if count not in self._candidates:
            self._candidates[count] = self._new_candidate(count)
        return self._candidates[count]

    def _new_candidate(self, count: int) -> Reduced:
        if not self._chooses(count):
            return self._from_cut(count)
        nodes, estimate = self._best_nodes(count)
        found = self._from_nodes(nodes, self._homes(nodes))
        if found.error * self.problem.total <= ROUNDED * estimate:
            return found
        return min(found, self._from_cut(count), key=lambda reduced: reduced.error)

    def _from_cut(self, count: int) -> Reduced:
        """The quotient by the merge tree's partition into `count` blocks."""
        return self._from_nodes(*self.tree.cut(count))

    def _homes(self, nodes: Indices) -> Blocks:
        """For each node the neurons that are most like it."""
        rows = unit_rows(self.tree.nodes[nodes])
        likest = [
            np.abs(kernel(self.problem.rows[piece], rows)).argmax(axis=1)
            for piece in tile_slices(len(self.problem.rows))
        ]
        return as_blocks(np.concatenate(likest), len(nodes))

    def _from_nodes(self, nodes: Indices, blocks: Blocks) -> Reduced:
        """The layer with these nodes as neurons; rows that neurons have keep all their digits."""
        problem, rows, same = self.problem, self.tree.nodes[nodes], self._same_row[nodes]
        incoming, kept = problem.metric.unwhiten(rows), same >= 0
        incoming[kept], rows[kept] = problem.live.incoming[same[kept]], problem.rows[same[kept]]
        return self._built(incoming, rows, blocks)

    @cached_property
    def _same_row(self) -> Indices:
        """For each node a neuron whose row all its members have; −1 if they differ."""
        tree, incoming = self.tree, self.problem.live.incoming
        found = np.full(len(tree.nodes), -1)
        found[: tree.neurons] = np.arange(tree.neurons)
        for a, b, joined in tree.joins.tolist():
            first, second = found[a], found[b]
            if min(first, second) >= 0 and np.array_equal(incoming[first], incoming[second]):
                found[joined] = min(first, second)
        return found

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


def as_blocks(home: Indices, count: int) -> Blocks:
    """The numbers of those that have each of `count` homes."""
    order = np.argsort(home, kind="stable")
    ends = np.searchsorted(home[order], np.arange(1, count))
    return tuple(tuple(block.tolist()) for block in np.split(order, ends))
