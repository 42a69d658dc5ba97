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

from onnxfde.closure import Effort, neighbours_closure, square_closure
from onnxfde.distance import condensed, largest_coefficient, square_gaps_max
from onnxfde.options import Linkage, Norm, Relation
from onnxfde.polynomial import Blocks, FloatArray, Layer

TIE = 1e-12


def partition(
    layer: Layer,
    eps: float,
    relation: Relation = "forward",
    norm: Norm = "sum",
    linkage: Linkage = "closure",
    *,
    erode: bool = False,
    effort: Effort | None = None,
) -> Blocks:
    """Blocks of neurons within ε, by their first member."""
    if layer.neurons < 2:
        return tuple((i,) for i in range(layer.neurons))
    effort = effort or Effort()
    limit = eps + tie(layer, relation)
    if relation == "forward":
        labels = neighbours_closure(
            layer.outgoing.T, limit / 3 if erode else limit, erode, None, effort
        )
    elif norm == "max":
        rows = layer.incoming
        labels = neighbours_closure(
            rows**2, limit, False, lambda i, others: square_gaps_max(rows[i], rows[others]), effort
        )
    else:
        labels = square_closure(layer.incoming, limit, effort)
    components = grouped(labels)
    if linkage == "closure":
        return components
    parts = (within_diameter(layer, block, limit, relation, norm) for block in components)
    return tuple(sorted(part for found in parts for part in found))


def tie(layer: Layer, relation: Relation) -> float:
    """What a distance may exceed ε by."""
    return TIE * max(1.0, largest_coefficient(layer, relation))


def grouped(labels: npt.NDArray[np.intp]) -> Blocks:
    """Positions with equal labels."""
    order = np.argsort(labels, kind="stable")
    cuts = np.flatnonzero(np.diff(labels[order])) + 1
    return tuple(sorted(tuple(block.tolist()) for block in np.split(order, cuts)))


def within_diameter(
    layer: Layer, block: tuple[int, ...], limit: float, relation: Relation, norm: Norm
) -> Blocks:
    """The parts of a component in which every pair is within the limit; two neighbours are."""
    if len(block) <= 2:
        return (block,)
    members = list(block)
    part = Layer(layer.incoming[members], layer.outgoing[:, members], layer.offset)
    found = Dendrogram.of(part, relation, norm, "diameter").cut(limit)
    return tuple(tuple(members[i] for i in piece) for piece in found)


@dataclass(frozen=True, eq=False)
class Dendrogram:
    """All partitions of a (small) layer at once: the threshold at which blocks join."""

    links: FloatArray
    order: npt.NDArray[np.intp]

    @classmethod
    def of(
        cls, layer: Layer, relation: Relation, norm: Norm, linkage: Linkage, *, erode: bool = False
    ) -> Dendrogram:
        """Join the neurons of a layer; ties do not depend on the order they are stored in."""
        from scipy.cluster.hierarchy import linkage as link

        order = np.lexsort([*layer.incoming.T, *layer.outgoing])
        ordered = Layer(layer.incoming[order], layer.outgoing[:, order], layer.offset)
        if layer.neurons < 2:
            return cls(np.zeros((0, 4)), order)
        method = "single" if linkage == "closure" else "complete"
        return cls(link(condensed(ordered, relation, norm, erode), method), order)

    def cut(self, eps: float) -> Blocks:
        """The partition at threshold ε."""
        return self.joined(int(np.sum(self.links[:, 2] <= eps)))

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


def split(distances: FloatArray, size: int, eps: float, linkage: Linkage) -> Blocks:
    """The parts of a block of `size` members at threshold ε, from condensed distances."""
    from scipy.cluster.hierarchy import linkage as link

    links = link(distances, "single" if linkage == "closure" else "complete")
    return Dendrogram(links, np.arange(size)).cut(eps)
