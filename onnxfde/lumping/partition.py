"""Partitions of a layer's neurons under a pairwise threshold (the paper's Definition 1).

`closure` puts i and j into one block if a chain of neurons, each within ε of the next, leads from
one to the other. `diameter` keeps every pair of a block within ε (complete linkage cut at ε).
Inputs and outputs stay singletons, so refining the hidden layer once is enough.

Two neurons are within ε if  distance ≤ ε + 1e-12·max(1, largest coefficient involved),  because
exact ties in decimals are not ties in binary.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from onnxfde.lumping.closure import Effort, Nearness, neighbours_closure, square_closure
from onnxfde.lumping.distance import (
    inner_coefficients,
    square_gaps_max,
    tie_tolerances,
    tolerant_distances,
)
from onnxfde.neurons.layer import Layer
from onnxfde.neurons.polynomial_activations import SQUARE
from onnxfde.numbers import Blocks, FloatArray, Indices
from onnxfde.options import Linkage, Norm, Relation

TIED_BITS = 33
"""Distances that agree to this many bits (1e-10) count as tied in complete linkage. Chosen well
above float64 rounding and below any difference that matters; not tuned."""


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
    """Blocks of neurons within ε, ordered by their first members."""
    if layer.neurons < 2:
        return tuple((i,) for i in range(layer.neurons))
    effort = effort or Effort()
    slack = tie_tolerances(layer, relation)
    if relation == "forward":
        near = Nearness(eps / 3, slack / 3) if erode else Nearness(eps, slack)
        labels = neighbours_closure(layer.outgoing.T, near, erode, None, effort)
    elif layer.activation != SQUARE:
        inner, near = inner_coefficients(layer), Nearness(eps, slack)
        labels = neighbours_closure(inner, near, norm == "sum", None, effort)
    elif norm == "max":
        rows = layer.incoming
        labels = neighbours_closure(
            rows**2,
            Nearness(eps, slack),
            False,
            lambda i, others: square_gaps_max(rows[i], rows[others]),
            effort,
        )
    else:
        labels = square_closure(layer.incoming, Nearness(eps, slack), effort)
    components = blocks_by_label(labels)
    if linkage == "closure":
        return components
    parts: list[tuple[int, ...]] = []
    for block in components:
        parts.extend(within_diameter(layer, block, eps, relation, norm, erode))
        effort.evaluated += len(block) * (len(block) - 1) // 2
    return tuple(sorted(parts))


def blocks_by_label(labels: Indices) -> Blocks:
    """Positions with equal labels."""
    order = np.argsort(labels, kind="stable")
    cuts = np.flatnonzero(np.diff(labels[order])) + 1
    return tuple(sorted(tuple(block.tolist()) for block in np.split(order, cuts)))


def within_diameter(
    layer: Layer, block: tuple[int, ...], eps: float, relation: Relation, norm: Norm, erode: bool
) -> Blocks:
    """The parts of a component of a layer in which every pair is within ε."""
    members = list(block)
    distances = tolerant_distances(layer.only(members), relation, norm, erode)
    found = diameter_parts(distances, len(block), eps)
    return tuple(tuple(members[i] for i in piece) for piece in found)


def split_block(distances: FloatArray, size: int, eps: float, linkage: Linkage) -> Blocks:
    """The parts of a block of `size` members at threshold ε, from condensed distances."""
    components = Dendrogram.from_distances(distances, size, "closure").cut(eps)
    if linkage == "closure":
        return components
    from scipy.spatial.distance import squareform

    square = squareform(distances)
    parts: list[tuple[int, ...]] = []
    for block in components:
        inner = squareform(square[np.ix_(block, block)])
        parts.extend(
            tuple(block[i] for i in piece) for piece in diameter_parts(inner, len(block), eps)
        )
    return tuple(sorted(parts))


def diameter_parts(distances: FloatArray, size: int, eps: float) -> Blocks:
    """Complete linkage cut at ε; distances that differ only by rounding count as tied."""
    if size <= 2:
        return (tuple(range(size)),)
    mantissa, exponent = np.frexp(distances)
    coarse = np.ldexp(np.round(np.ldexp(mantissa, TIED_BITS)), exponent - TIED_BITS)
    beyond = np.nextafter(eps, np.inf)
    coarse = np.where(distances <= eps, np.minimum(coarse, eps), np.maximum(coarse, beyond))
    return Dendrogram.from_distances(coarse, size, "diameter").cut(eps)


@dataclass(frozen=True, eq=False)
class Dendrogram:
    """All partitions of a (small) layer at once: the threshold at which blocks join."""

    links: FloatArray
    order: Indices

    @classmethod
    def of(
        cls, layer: Layer, relation: Relation, norm: Norm, linkage: Linkage, *, erode: bool = False
    ) -> Dendrogram:
        """Join the neurons of a layer."""
        return cls.from_distances(
            tolerant_distances(layer, relation, norm, erode), layer.neurons, linkage
        )

    @classmethod
    def from_distances(cls, distances: FloatArray, size: int, linkage: Linkage) -> Dendrogram:
        """Join members with these condensed distances; ties depend on the distances alone."""
        if size < 2:
            return cls(np.zeros((0, 4)), np.arange(size))
        from scipy.cluster.hierarchy import linkage as link
        from scipy.spatial.distance import squareform

        if linkage == "closure":
            return cls(link(distances, "single"), np.arange(size))
        square = squareform(distances)
        order = np.lexsort(np.sort(square, axis=1).T)
        return cls(link(squareform(square[np.ix_(order, order)]), "complete"), order)

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
        """The partition after the first `merges` joins, ordered by the blocks' first members."""
        size = len(self.order)
        members: dict[int, list[int]] = {i: [int(self.order[i])] for i in range(size)}
        for step, (a, b, _, _) in enumerate(self.links[:merges]):
            members[size + step] = members.pop(int(a)) + members.pop(int(b))
        return tuple(sorted(tuple(sorted(block)) for block in members.values()))
