"""The fewest nodes of a layer's merge tree that are close enough to all of its neurons.

Nodes are those of a cut of the tree (`tree_curve`), or the best ones that can be found
(`tree_choice`). Each candidate is built and rounded to the stored type before it is judged
(`problem`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from onnxfde.neurons.frontier import Reduced
from onnxfde.neurons.kernels import kernel, tile_slices, unit_rows
from onnxfde.neurons.merge_order import MergeTree, merge_tree
from onnxfde.neurons.problem import Problem
from onnxfde.neurons.quotient_layer import quotient_layer
from onnxfde.neurons.tree_choice import TreeChoice
from onnxfde.neurons.tree_curve import TreeCurve
from onnxfde.numbers import Blocks, Indices
from onnxfde.progress import Progress

NEARLY_MONOTONE = 8
"""How many counts below the one that a search finds are tried as well, because the error does not
fall with every neuron along the merge tree. Chosen; not tuned."""
FULL_SCAN = 32
"""If that search finds a count up to this one, all smaller counts are tried. Chosen because that
takes little time; not tuned."""

LARGE_LAYER = 1024
"""Neurons above which errors take so long that not all counts around a good one are tried. Chosen;
not tuned."""
MOST_CHOSEN = 0.9
"""The share of the neurons up to which the best nodes are looked for. Chosen; not tuned."""
MOST_CHOSEN_OF_MANY = 0.5
"""The same in large layers. Chosen; not tuned."""
COARSE = 64
"""In large layers counts are found up to this part of them, 1.6 %. Chosen; not tuned."""
ROUNDED = 1.01
"""If rounding makes a layer worse than estimated by more than this factor, the cut of the tree is
tried as well. Chosen; not tuned."""


@dataclass(frozen=True, eq=False)
class TreeSearch:
    """Layers made of nodes of a layer's merge tree."""

    problem: Problem
    refitted: bool = True
    """Whether outgoing weights are refitted, or only projected."""
    progress: Progress = field(default_factory=Progress)

    @cached_property
    def tree(self) -> MergeTree:
        """The order in which neurons are joined."""
        self.progress.say("joining neurons")
        return merge_tree(self.problem.rows, self.problem.live.outgoing, self.progress)

    @cached_property
    def curve(self) -> TreeCurve:
        """The errors of its cuts."""
        return TreeCurve(self.problem.original, self.tree)

    def fewest(self, eps: float, limit: int) -> Reduced | None:
        """The fewest nodes of the merge tree, below `limit`, that are acceptable.

        The error is only nearly monotone: a search finds a count, and those just below it are
        tried as well, or all of them when they are few. A larger ε can only give a smaller result.
        """
        allowed = self.problem.worth_building(eps)
        joins = int(np.searchsorted(np.cumsum(self.tree.costs), allowed**2, side="right"))
        guess = min(self.problem.live.neurons - joins, limit)
        at = self._first_within(allowed, guess, limit, self._cut_error)
        if self._chooses(at):
            coarse = 1 + at // COARSE if self._is_large else 1
            step = self.curve.width
            at = self._first_within(allowed, at - step, at, self._best_error, coarse)
        for count in range(self._first_tried(at), limit):
            if self._error(count) <= allowed:
                candidate = self.candidate(count)
                if self.problem.accepts(candidate, eps):
                    return candidate
        return None

    def _first_within(
        self,
        allowed: float,
        at: int,
        limit: int,
        error: Callable[[int], float],
        nearness: int = 1,
    ) -> int:
        """The count at which an error falls below `allowed`; `limit` if none below does.

        It begins at a guess, goes on in steps that double, and then bisects, up to
        `nearness`.
        """
        low, high, step = 0, limit, self.curve.width
        while high - low > nearness:
            if not low < at < high:
                at, step = (low + high) // 2, 0
            if error(at) <= allowed:
                high, at = at, at - step
            else:
                low, at = at, at + step
            step *= 2
        return high

    def _first_tried(self, count: int) -> int:
        """Where to begin if the error falls below what is allowed at this count."""
        if count <= FULL_SCAN:
            return 1
        return count if self._is_large else count - NEARLY_MONOTONE

    @property
    def _is_large(self) -> bool:
        return self.problem.live.neurons > LARGE_LAYER

    def _tell(self, phase: str) -> None:
        """Say what takes long in large layers."""
        if self._is_large:
            self.progress.say(phase)

    def _chooses(self, count: int) -> bool:
        """Whether the best nodes are looked for, and not only those of the cut.

        Not where nearly all neurons are left, or half of them in large layers: there it takes long
        and gains little (benchmarks/engines.md).
        """
        most = MOST_CHOSEN_OF_MANY if self._is_large else MOST_CHOSEN
        return self.refitted and count <= most * self.problem.live.neurons

    def _error(self, count: int) -> float:
        return self._best_error(count) if self._chooses(count) else self._cut_error(count)

    def _cut_error(self, count: int) -> float:
        """The error of a cut of the tree, estimated where it is refitted."""
        self._tell(f"trying {count:,} neurons")
        if self.refitted:
            return self.curve.error(count)
        return self._from_cut(count).error * self.problem.total

    def _best_error(self, count: int) -> float:
        self._tell(f"choosing {count:,} neurons")
        return self._choice.best(count)[1]

    @cached_property
    def _choice(self) -> TreeChoice:
        original = self.problem.original
        known = original.rows, original.layer.outgoing, original.total
        return TreeChoice(self.tree, *known, self.progress)

    def candidate(self, count: int) -> Reduced:
        """The layer made of `count` nodes of the tree: the best ones, or those of its cut.

        Chosen nodes may need larger weights, which round more; then the cut can be better.
        """
        if count not in self._candidates:
            self._candidates[count] = self._new_candidate(count)
        return self._candidates[count]

    def _new_candidate(self, count: int) -> Reduced:
        self._tell(f"fitting {count:,} neurons")
        if not self._chooses(count):
            return self._from_cut(count)
        nodes, estimate = self._choice.best(count)
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
        problem, same = self.problem, self._same_row[nodes]
        incoming, kept = problem.metric.unwhiten(self.tree.nodes[nodes]), same >= 0
        incoming[kept] = problem.live.incoming[same[kept]]
        return quotient_layer(problem, incoming, blocks, self.refitted)

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


def as_blocks(home: Indices, count: int) -> Blocks:
    """The numbers of those that have each of `count` homes."""
    order = np.argsort(home, kind="stable")
    ends = np.searchsorted(home[order], np.arange(1, count))
    return tuple(tuple(block.tolist()) for block in np.split(order, ends))
