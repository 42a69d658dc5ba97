"""The best nodes of a merge tree to build a layer from, when outgoing weights are refitted.

Three choices of `count` nodes are compared: a cut of the tree; the nodes that `selection` adds one
after the other; and what `elimination` leaves of these two together. None is best everywhere: the
cut is beaten where few neurons stay, selection where many do. Elimination from both is mostly
best, but not where nodes are nearly dependent (benchmarks/engines.md).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from onnxfde.neurons.candidates import CandidateNeurons, few_features
from onnxfde.neurons.elimination import eliminate
from onnxfde.neurons.merge_order import MergeTree
from onnxfde.neurons.selection import Selection, select
from onnxfde.numbers import FloatArray, Indices
from onnxfde.progress import Progress

FEW_TO_CHOOSE_FROM = 1024
"""Up to so many neurons, all nodes of the tree are candidates and all three choices are made. In
larger layers elimination is left out where selection is better than the cut already: it took longer
than selection (1.9 against 1.3 products W Wᵀ at 512-4096-512 and a quarter of the neurons)."""
SPAN = 2
"""In larger layers the candidates are the nodes of the cuts from this many times the count down to
the count over this. With a quarter of 512-4096-512 (random weights, a tenth near-duplicates), cuts
from 3 times the count to a quarter of it gave 0.9 % less error in 1.5 times the time, and all nodes
1.2 % less in about twice the time."""
SEEN_BY_FLOAT32 = 0.03
"""Larger layers are compared in float32, unless the error is less than this share of the layer's
norm: its square is 10,000 times float32's machine epsilon. Chosen; not tuned."""


@dataclass(frozen=True, eq=False)
class TreeChoice:
    """The nodes of a merge tree, and the layer to be built from some of them."""

    tree: MergeTree
    rows: FloatArray
    """The layer, whitened."""
    outgoing: FloatArray
    total: float
    """The norm of the layer."""
    progress: Progress = field(default_factory=Progress)

    def best(self, count: int) -> tuple[Indices, float]:
        """The numbers of at most `count` nodes, and the error of the layer built from them."""
        if count not in self._found:
            self._found[count] = self._best(count)
        return self._found[count]

    @cached_property
    def _found(self) -> dict[int, tuple[Indices, float]]:
        return {}

    def _best(self, count: int) -> tuple[Indices, float]:
        if self._few:
            near, certain = np.arange(len(self.tree.nodes)), np.empty(0, dtype=np.intp)
            compared, added = self._compared, self._curve
        else:
            near, certain = nodes_near(self.tree, count)
            compared, added = self._compared_near(near, certain, count)
        cut = np.flatnonzero(np.isin(near, nodes_of_cut(self.tree, count)))
        chosen, error = self._best_of(compared, added, cut)
        return np.sort(np.concatenate([certain, near[chosen]])), error

    def _best_of(
        self, compared: CandidateNeurons, added: Selection, cut: Indices
    ) -> tuple[Indices, float]:
        """The best of the three: numbers of candidates, as many as in the cut."""
        first = added.order[: len(cut)]
        choices = [(float(added.errors[len(first)]), first)]
        if len(first) < len(cut):
            return choices[0][1], choices[0][0]  # all others are combinations of these
        kept, errors = compared.only(cut).fit_in_order()
        choices.append((float(errors[-1]), cut[kept]))
        if self._few or choices[1][0] < choices[0][0]:
            both = np.union1d(cut, first)
            left = eliminate(compared.only(both), len(cut), self.progress)
            count = min(len(cut), len(left.order))
            choices.append((float(left.errors[count]), both[left.order[:count]]))
        error, chosen = min(choices, key=lambda choice: choice[0])
        return chosen, error

    @property
    def _few(self) -> bool:
        """Whether to compare all nodes: they are few, or have few features."""
        count, width = self.tree.nodes.shape
        return self.tree.neurons <= FEW_TO_CHOOSE_FROM or few_features(count, width)

    @cached_property
    def _compared(self) -> CandidateNeurons:
        return CandidateNeurons.of(self.tree.nodes, self.rows, self.outgoing, self.total)

    @cached_property
    def _curve(self) -> Selection:
        return select(self._compared, self.tree.neurons, progress=self.progress)

    def _compared_near(
        self, near: Indices, certain: Indices, count: int
    ) -> tuple[CandidateNeurons, Selection]:
        """Candidates beside those that are certain, and the order in which they are added."""
        for dtype in (np.float32, np.float64):
            compared, given = (
                CandidateNeurons.of(
                    self.tree.nodes[some], self.rows, self.outgoing, self.total, dtype
                )
                for some in (near, certain)
            )
            compared = compared.beside(given)
            added = select(compared, count - len(certain), progress=self.progress)
            if added.errors[-1] >= SEEN_BY_FLOAT32 * self.total:
                break
        return compared, added


def nodes_of_cut(tree: MergeTree, count: int) -> Indices:
    """The numbers of the nodes when `count` blocks are left."""
    present = np.zeros(len(tree.nodes), dtype=bool)
    present[: tree.neurons] = True
    joined = tree.joins[: tree.neurons - count]
    present[joined[:, 2]] = True
    present[joined[:, :2]] = False
    return np.flatnonzero(present)


def nodes_near(tree: MergeTree, count: int) -> tuple[Indices, Indices]:
    """The numbers of nodes in some cuts around `count`: those in only some, and those in all.

    The cuts go from `SPAN` times `count` down to `count` over `SPAN`, or as far down as up.
    """
    most = min(SPAN * count, tree.neurons)
    least = max(count // SPAN, 2 * count - most, 1)
    first, last = nodes_of_cut(tree, most), nodes_of_cut(tree, least)
    between = tree.joins[tree.neurons - most : tree.neurons - least, 2]
    certain = np.intersect1d(first, last)
    return np.setdiff1d(np.union1d(first, between), certain), certain
