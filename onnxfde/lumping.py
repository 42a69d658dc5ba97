"""Partitions of a layer's neurons under a pairwise threshold (the paper's Definition 1).

`closure` joins i and j when a chain of neurons, each within ε of the next, leads from one to the
other. `diameter` keeps every pair of a block within ε (complete linkage cut at ε). Inputs and
outputs stay singletons, so one refinement of the hidden layer is already stable.

A distance decides as  distance ≤ ε + 1e-12·max(1, largest coefficient involved),  because exact
ties in decimals are not ties in binary.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from onnxfde.distance import condensed, largest_coefficient
from onnxfde.options import Linkage, Norm, Relation
from onnxfde.polynomial import Blocks, FloatArray, Layer

TIE = 1e-12


@dataclass(frozen=True, eq=False)
class Dendrogram:
    """All partitions of a layer at once: the threshold at which blocks join."""

    links: FloatArray
    order: npt.NDArray[np.intp]
    slack: float

    @classmethod
    def of(cls, layer: Layer, relation: Relation, norm: Norm, linkage: Linkage) -> Dendrogram:
        """Join the neurons of a layer; ties do not depend on the order they are stored in."""
        from scipy.cluster.hierarchy import linkage as link

        order = np.lexsort([*layer.incoming.T, *layer.outgoing])
        ordered = Layer(layer.incoming[order], layer.outgoing[:, order], layer.offset)
        slack = TIE * max(1.0, largest_coefficient(layer, relation))
        if layer.neurons < 2:
            return cls(np.zeros((0, 4)), order, slack)
        method = "single" if linkage == "closure" else "complete"
        return cls(link(condensed(ordered, relation, norm), method), order, slack)

    def cut(self, eps: float) -> Blocks:
        """The partition at threshold ε."""
        return self.joined(int(np.sum(self.links[:, 2] <= eps + self.slack)))

    def at_most(self, count: int) -> Blocks:
        """The finest partition with at most this many blocks."""
        return self.joined(max(len(self.order) - count, 0))

    def threshold(self) -> float | None:
        """The smallest ε that joins anything."""
        return float(self.links[0, 2]) if len(self.links) else None

    def joined(self, merges: int) -> Blocks:
        """The partition after the first `merges` joins, blocks by their first member."""
        size = len(self.order)
        members: dict[int, list[int]] = {i: [int(self.order[i])] for i in range(size)}
        for step, (a, b, _, _) in enumerate(self.links[:merges]):
            members[size + step] = members.pop(int(a)) + members.pop(int(b))
        return tuple(sorted(tuple(sorted(block)) for block in members.values()))
