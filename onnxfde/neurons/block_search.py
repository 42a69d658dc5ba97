"""The fewest neurons by merging: one neuron stands for each block of the layer's neurons.

Without loss they are some of the layer's own neurons (`basis_search`); with an error they are nodes
of its merge tree (`tree_search`). Where φ has far fewer numbers than the layer has neurons, the
tree joins those that are left without loss.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

from onnxfde.neurons.basis_search import BasisSearch, without_constants
from onnxfde.neurons.frontier import Reduced, blocks_within
from onnxfde.neurons.kernels import feature_count
from onnxfde.neurons.merge_order import MergeTree
from onnxfde.neurons.problem import Problem
from onnxfde.neurons.tree_search import LARGE_LAYER, TreeSearch
from onnxfde.numbers import FloatArray
from onnxfde.progress import Progress

CROWDED = 8
"""How many neurons there are at least for every number of φ where the tree joins only those that
are left without loss. Chosen; not tuned."""
NEARLY_LOSSLESS = 1e-4
"""In large layers whose φ has more numbers than there are neurons, the fewest neurons without loss
are looked for only if an error is below this: a layer that could do without loss with no more
neurons would hardly have an error. Chosen; not tuned."""


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
        if self._after_lossless is not None:
            fewer = self._after_lossless.within(eps)
            return self._of_all(fewer) if fewer else self.lossless
        best = self.lossless if self._asks_lossless else None
        found = self._nodes.fewest(eps, best.layer.neurons if best else live.neurons) or best
        return self._no_more_than_lossless(found)

    def at_most(self, count: int) -> Reduced | None:
        """The layer with at most this many neurons; fewer when nothing is lost by it."""
        if count >= self.problem.live.neurons:
            return self.lossless
        return self._no_more_than_lossless(self.candidate(count))

    def candidate(self, count: int) -> Reduced:
        """The layer made of `count` nodes of the merge tree, or of fewer where that is as good."""
        if self._after_lossless is None or not self.lossless:
            return self._nodes.candidate(count)
        if count >= self._after_lossless.problem.live.neurons:
            return self.lossless
        return self._of_all(self._after_lossless.candidate(count))

    def _no_more_than_lossless(self, found: Reduced | None) -> Reduced | None:
        """The lossless layer if it is no larger; it cannot be where the error is not near 0."""
        if not self._asks_lossless and found and found.error > NEARLY_LOSSLESS:
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
        if not self._asks_lossless and "lossless" not in self.__dict__:
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
            found = made_of_all(problem, found, again)
        return found

    def _equal(self) -> Reduced | None:
        if self.refitted:
            return BasisSearch(self.problem).found()
        found = self._nodes.fewest(0.0, self.problem.live.neurons)
        return found or without_constants(self.problem)

    def first_rows(self, count: int) -> list[FloatArray]:
        """The blocks of the merge tree, and those of a cut with twice as many."""
        tree = self.tree
        wanted = (count, min(2 * count, tree.neurons))
        return [tree.nodes[tree.cut(many)[0]] for many in wanted]

    @property
    def tree(self) -> MergeTree:
        """The order in which neurons are joined."""
        return (self._after_lossless or self)._nodes.tree

    @cached_property
    def _nodes(self) -> TreeSearch:
        return TreeSearch(self.problem, self.refitted, self.progress)

    @property
    def _asks_lossless(self) -> bool:
        """Whether the fewest without loss are always looked for: also if φ must make some go."""
        return self.problem.live.neurons <= LARGE_LAYER or self.problem.original.few_features

    @cached_property
    def _after_lossless(self) -> BlockSearch | None:
        """The search among the neurons that are left without loss, where these are far fewer."""
        live = self.problem.live
        if live.neurons < CROWDED * feature_count(live.inputs + 1) or not self.refitted:
            return None
        if self.lossless is None or not self.lossless.layer.neurons < live.neurons:
            return None
        return replace(self, problem=replace(self.problem, layer=self.lossless.layer))

    def _of_all(self, found: Reduced) -> Reduced:
        """What was made of the lossless layer, as made of all neurons."""
        return made_of_all(self.problem, self.lossless, found) if self.lossless else found


def made_of_all(problem: Problem, first: Reduced, second: Reduced) -> Reduced:
    """What was made of `first`, which was made of the problem's layer, as made of that layer."""
    return problem.reduced(second.layer, blocks_within(first.blocks, second.blocks))
