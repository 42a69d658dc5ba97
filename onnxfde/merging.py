"""Two orders in which a layer's neurons can go, both on whitened rows in a canonical order.

*Merge tree*: join the pair with the least  min(a_i, a_j)(1 − ρ_ij²),  a_i = ‖V_i‖² K_ii, ρ the
normalised kernel: what the weaker neuron contributes beyond the stronger one. All pairs that are
each other's nearest join in one round, and the joins are sorted by cost afterwards: a round costs
one matrix product, and the order is close to that of joining one pair at a time.

*Pivoted basis*: a Cholesky factorisation K = LLᵀ of the contributions, largest residual first. The
first k neurons span what k neurons of the layer can; refitted to them the error is exactly
‖V L[:, k:]‖. At the rank of K it is 0: the layer without its linear dependencies.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from onnxfde.metric import kernel, kernel_diagonal
from onnxfde.polynomial import Blocks, FloatArray, Layer

Indices = npt.NDArray[np.intp]


def canonical(layer: Layer) -> tuple[Layer, Indices]:
    """The layer with sign, power-of-two scale and order of its neurons fixed, and that order."""
    size = np.abs(layer.incoming).sum(axis=1)
    exponent = np.frexp(size)[1]
    first = np.argmax(layer.incoming != 0, axis=1)
    sign = np.sign(layer.incoming[np.arange(layer.neurons), first])
    incoming = np.ldexp(layer.incoming, -exponent[:, None]) * sign[:, None]
    outgoing = np.ldexp(layer.outgoing, 2 * exponent)
    order = np.lexsort([*outgoing, *incoming.T])
    return Layer(incoming[order], outgoing[:, order], layer.offset), order


@dataclass(frozen=True, eq=False)
class MergeTree:
    """Unit rows for every block that ever exists, and the joins from the cheapest on."""

    nodes: FloatArray
    joins: Indices

    @property
    def neurons(self) -> int:
        """How many neurons the tree starts from."""
        return len(self.joins) + 1

    def cut(self, count: int) -> tuple[FloatArray, Blocks]:
        """The rows of `count` blocks and the neurons in each."""
        size = self.neurons
        members: dict[int, tuple[int, ...]] = {i: (i,) for i in range(size)}
        for a, b, joined in self.joins[: size - count]:
            members[int(joined)] = members.pop(int(a)) + members.pop(int(b))
        ordered = sorted(members.items(), key=lambda item: min(item[1]))
        return self.nodes[[node for node, _ in ordered]], tuple(block for _, block in ordered)


def merge_tree(rows: FloatArray, outgoing: FloatArray) -> MergeTree:
    """Join whitened rows in rounds of mutual nearest neighbours until one is left."""
    size = np.linalg.norm(rows, axis=1)
    rows, weights = rows / size[:, None], outgoing.T * size[:, None] ** 2
    nodes, ids = [rows], np.arange(len(rows))
    heights = [np.zeros(len(rows))]
    joins: list[Indices] = []
    while len(rows) > 1:
        first, second, cost = nearest_pairs(rows, weights)
        joined, joined_weights = join(rows, weights, first, second)
        known = np.concatenate(heights)
        created = len(known) + np.arange(len(first))
        joins.append(np.stack([ids[first], ids[second], created], axis=1))
        heights.append(np.maximum.reduce([cost, known[ids[first]], known[ids[second]]]))
        nodes.append(joined)
        rows[first], weights[first], ids[first] = joined, joined_weights, created
        keep = np.ones(len(rows), dtype=bool)
        keep[second] = False
        rows, weights, ids = rows[keep], weights[keep], ids[keep]
    every = np.concatenate(joins) if joins else np.zeros((0, 3), dtype=np.intp)
    by_height = np.argsort(np.concatenate(heights)[every[:, 2]], kind="stable")
    return MergeTree(np.concatenate(nodes), every[by_height])


def nearest_pairs(rows: FloatArray, weights: FloatArray) -> tuple[Indices, Indices, FloatArray]:
    """Pairs that are each other's cheapest join, cheapest first, with their costs."""
    gram = kernel(rows, rows)
    diagonal = np.diag(gram).copy()
    contribution = np.einsum("ij,ij->i", weights, weights) * diagonal
    scale = np.sqrt(diagonal)
    scale[scale == 0] = 1.0
    cost = 1 - (gram / scale[:, None] / scale) ** 2
    cost = np.maximum(np.minimum(cost, cost.T), 0.0)
    cost *= np.minimum.outer(contribution, contribution)
    np.fill_diagonal(cost, np.inf)
    nearest = cost.argmin(axis=1)
    everyone = np.arange(len(rows))
    first = everyone[(nearest[nearest] == everyone) & (everyone < nearest)]
    price = cost[first, nearest[first]]
    by_price = np.argsort(price, kind="stable")
    first = first[by_price]
    return first, nearest[first], price[by_price]


def join(
    rows: FloatArray, weights: FloatArray, first: Indices, second: Indices
) -> tuple[FloatArray, FloatArray]:
    """The unit row each pair shares (top eigenvector of Σ ‖V_i‖ u_i u_iᵀ), and its weights."""
    a, b = rows[first], rows[second]
    size_a = np.linalg.norm(weights[first], axis=1)
    size_b = np.linalg.norm(weights[second], axis=1)
    mixed = np.sqrt(size_a * size_b) * np.einsum("ij,ij->i", a, b)
    angle = np.arctan2(2 * mixed, size_a - size_b) / 2
    shared = (np.cos(angle) * np.sqrt(size_a))[:, None] * a
    shared += (np.sin(angle) * np.sqrt(size_b))[:, None] * b
    length = np.linalg.norm(shared, axis=1)
    shared = np.where(length[:, None] > 0, shared / np.where(length == 0, 1, length)[:, None], a)
    along_a = np.einsum("ij,ij->i", a, shared) ** 2
    along_b = np.einsum("ij,ij->i", b, shared) ** 2
    return shared, weights[first] * along_a[:, None] + weights[second] * along_b[:, None]


@dataclass(frozen=True, eq=False)
class PivotedBasis:
    """Neurons from the most to the least independent, and the error of keeping the first k."""

    order: Indices
    errors: FloatArray
    rows: FloatArray

    def cut(self, count: int) -> tuple[Indices, Blocks]:
        """The neurons to keep, and the block of each: those most correlated with it."""
        kept = np.sort(self.order[:count])
        scale = np.sqrt(kernel_diagonal(self.rows))
        scale[scale == 0] = 1.0
        likeness = np.abs(kernel(self.rows, self.rows[kept])) / scale[:, None] / scale[kept]
        likeness[kept, np.arange(count)] = np.inf
        home = likeness.argmax(axis=1)
        blocks = (np.flatnonzero(home == i) for i in range(count))
        return kept, tuple(tuple(int(j) for j in block) for block in blocks)


def pivoted_basis(rows: FloatArray, outgoing: FloatArray) -> PivotedBasis:
    """Order whitened neurons by what each contributes beyond those before it."""
    from scipy.linalg.lapack import dpstrf

    size = np.linalg.norm(outgoing, axis=0)
    gram = kernel(rows, rows) * size[:, None] * size
    total = np.trace(gram)
    factor, pivots, rank, _ = dpstrf(gram / (total or 1.0), lower=1, tol=-1.0)
    order = pivots.astype(np.intp) - 1
    factor = np.tril(factor)
    factor[:, rank:] = 0.0
    direction = outgoing / np.where(size == 0, 1.0, size)
    per_column = ((direction[:, order] @ factor) ** 2).sum(axis=0)
    tail = np.concatenate([np.cumsum(per_column[::-1])[::-1], [0.0]])
    return PivotedBasis(order, np.sqrt(tail * total), rows)
