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

from onnxfde.neurons.elimination import eliminate, fit_in_order
from onnxfde.neurons.merge_order import MergeTree
from onnxfde.neurons.selection import CandidateNeurons, Selection
from onnxfde.numbers import FloatArray, Indices
from onnxfde.progress import Progress

FEW_NEURONS_TO_CHOOSE = 1024
"""Up to so many neurons, all nodes of the tree are candidates and all three choices are made; else
elimination is left out where selection is better than the cut already, because it takes as long as
both together."""
SPAN = 2
"""In larger layers the candidates are the nodes of the cuts from this many times the count down to
the count over this. Wider spans gain at most 1 % and take longer (benchmarks/engines.md)."""
SEEN_BY_FLOAT32 = 1e-2
"""Larger layers are compared in float32, unless the error is less than this share of the layer's
norm. The square of it is far above float32's machine epsilon. Chosen; not tuned."""


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
        if self.tree.neurons <= FEW_NEURONS_TO_CHOOSE:
            return self._best(self._compared, self._curve, np.arange(len(self.tree.nodes)), count)
        near = nodes_near(self.tree, count)
        for dtype in (np.float32, np.float64):
            compared = CandidateNeurons.of(
                self.tree.nodes[near], self.rows, self.outgoing, self.total, dtype
            )
            added = compared.select(count, progress=self.progress)
            if added.errors[-1] >= SEEN_BY_FLOAT32 * self.total:
                break
        return self._best(compared, added, near, count)

    def _best(
        self, compared: CandidateNeurons, added: Selection, numbers: Indices, count: int
    ) -> tuple[Indices, float]:
        """The best of the three, given what selection adds to some nodes with these numbers."""
        count_added = min(count, len(added.order))
        cut = np.flatnonzero(np.isin(numbers, nodes_of_cut(self.tree, count)))
        kept, errors = fit_in_order(compared.only(cut))
        found = [
            (added.errors[count_added], added.order[:count_added]), (errors[-1], cut[kept]),
        ]  # fmt: skip
        if self.tree.neurons <= FEW_NEURONS_TO_CHOOSE or errors[-1] < added.errors[count_added]:
            both = np.union1d(cut, added.order[:count])
            left = eliminate(compared.only(both), count, self.progress)
            count_left = min(count, len(left.order))
            found.append((left.errors[count_left], both[left.order[:count_left]]))
        error, chosen = min(found, key=lambda choice: choice[0])
        return np.sort(numbers[chosen]), float(error)

    @cached_property
    def _compared(self) -> CandidateNeurons:
        return CandidateNeurons.of(self.tree.nodes, self.rows, self.outgoing, self.total)

    @cached_property
    def _curve(self) -> Selection:
        return self._compared.select(self.tree.neurons, progress=self.progress)


def nodes_of_cut(tree: MergeTree, count: int) -> Indices:
    """The numbers of the nodes when `count` blocks are left."""
    present = np.zeros(len(tree.nodes), dtype=bool)
    present[: tree.neurons] = True
    joined = tree.joins[: tree.neurons - count]
    present[joined[:, 2]] = True
    present[joined[:, :2]] = False
    return np.flatnonzero(present)


def nodes_near(tree: MergeTree, count: int) -> Indices:
    """The numbers of all nodes in the cuts from `SPAN` times `count` blocks to `count` / `SPAN`."""
    widest = min(SPAN * count, tree.neurons)
    later = tree.joins[tree.neurons - widest : tree.neurons - max(count // SPAN, 1), 2]
    return np.sort(np.concatenate([nodes_of_cut(tree, widest), later]))
