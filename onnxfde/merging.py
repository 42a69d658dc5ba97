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

from collections.abc import Iterator
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
    size = len(rows)
    market = Market.of(rows, outgoing)
    nodes: list[FloatArray] = [market.rows.copy()]
    joins: list[Indices] = []
    ids, heights = np.arange(size), np.zeros(2 * size - 1)
    for first, second, price in market.rounds():
        created = size + len(joins) + np.arange(len(first))
        below = np.maximum(heights[ids[first]], heights[ids[second]])
        heights[created] = np.maximum(price, below)
        joins.extend(np.stack([ids[first], ids[second], created], axis=1))
        nodes.append(market.rows[first])
        ids[first] = created
    order = np.argsort(heights[size:], kind="stable")
    return MergeTree(np.concatenate(nodes), np.array(joins, dtype=np.intp).reshape(-1, 3)[order])


@dataclass(eq=False)
class Market:
    """Neurons looking for the cheapest partner; only what a round changes is computed anew."""

    rows: FloatArray
    weights: FloatArray
    cost: FloatArray
    nearest: Indices
    price: FloatArray

    @classmethod
    def of(cls, rows: FloatArray, outgoing: FloatArray) -> Market:
        """All neurons, as unit rows, with the price of every pair."""
        size = np.linalg.norm(rows, axis=1)
        rows, weights = rows / size[:, None], outgoing.T * size[:, None] ** 2
        everyone = np.arange(len(rows))
        cost = pair_costs(rows, weights, everyone)
        cost = np.minimum(cost, cost.T)
        np.fill_diagonal(cost, np.inf)
        nearest = cost.argmin(axis=1)
        return cls(rows, weights, cost, nearest, cost[everyone, nearest])

    def rounds(self) -> Iterator[tuple[Indices, Indices, FloatArray]]:
        """Pairs that are each other's cheapest partner, cheapest first; the first of each survives.

        When a round is handed out, `rows[first]` already holds what its pairs became.
        """
        everyone = np.arange(len(self.rows))
        for_sale = np.ones(len(self.rows), dtype=bool)
        while for_sale.sum() > 1:
            mutual = for_sale & (self.nearest[self.nearest] == everyone) & (everyone < self.nearest)
            first = everyone[mutual]
            first = first[np.argsort(self.price[first], kind="stable")]
            second, price = self.nearest[first], self.price[first]
            self.rows[first], self.weights[first] = join(self.rows, self.weights, first, second)
            for_sale[second] = False
            self.update(first, second, for_sale)
            yield first, second, price

    def update(self, first: Indices, second: Indices, for_sale: npt.NDArray[np.bool_]) -> None:
        """Put the joined rows in the place of their pairs."""
        fresh = pair_costs(self.rows, self.weights, first)
        fresh[:, ~for_sale] = np.inf
        among = np.minimum(fresh[:, first], fresh[:, first].T)
        np.fill_diagonal(among, np.inf)
        fresh[:, first] = among
        self.cost[second], self.cost[:, second] = np.inf, np.inf
        self.cost[first], self.cost[:, first] = fresh, fresh.T
        offer, best = first[fresh.argmin(axis=0)], fresh.min(axis=0)
        gone = np.isin(self.nearest, np.concatenate([first, second]))
        gone[first] = True
        better = (best < self.price) | ((best == self.price) & (offer < self.nearest))
        self.nearest[better], self.price[better] = offer[better], best[better]
        stale = np.flatnonzero(gone & for_sale)
        self.nearest[stale] = self.cost[stale].argmin(axis=1)
        self.price[stale] = self.cost[stale, self.nearest[stale]]


def pair_costs(rows: FloatArray, weights: FloatArray, some: Indices) -> FloatArray:
    """min(a_i, a_j)(1 − ρ_ij²) between some neurons and all."""
    diagonal = kernel_diagonal(rows)
    contribution = np.einsum("ij,ij->i", weights, weights) * diagonal
    scale = np.sqrt(diagonal)
    scale[scale == 0] = 1.0
    cost = kernel(rows[some], rows)
    cost /= scale[some, None]
    cost /= scale
    np.subtract(1, np.square(cost, out=cost), out=cost)
    np.maximum(cost, 0.0, out=cost)
    cost *= np.minimum(contribution[some, None], contribution)
    return cost


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
