"""Two orders in which a layer's neurons can go, both on whitened rows in a canonical order.

*Merge tree*: join the pair with the least  min(a_i, a_j)(1 − ρ_ij²),  a_i = ‖V_i‖² K_ii, ρ the
normalised kernel: what the weaker neuron contributes beyond the stronger one. A round joins a few
percent of the pairs at once, the cheapest, and the joins are sorted by cost afterwards: O(log n)
rounds, together about two matrix products, in an order close to that of one join at a time.

*Pivoted basis*: a Cholesky factorisation K = LLᵀ of the contributions, largest residual first. The
first k neurons span what k neurons of the layer can; refitted to them the error is exactly
‖V L[:, k:]‖. At the rank of K it is 0: the layer without its linear dependencies.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from onnxfde.neurons.kernels import kernel, kernel_diagonal, kernel_scale
from onnxfde.neurons.layer import Layer
from onnxfde.numbers import Blocks, FloatArray
from onnxfde.progress import Progress

Indices = npt.NDArray[np.intp]

SHARE, LAST_SHARE, LAST = 0.05, 0.02, 512
TABLE = 16_384
TILE = 512
COMPACT = 0.75


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
        for a, b, joined in self.joins[: size - count].tolist():
            members[joined] = members.pop(a) + members.pop(b)
        ordered = sorted(members.items(), key=lambda item: min(item[1]))
        return self.nodes[[node for node, _ in ordered]], tuple(block for _, block in ordered)


def merge_tree(
    rows: FloatArray,
    outgoing: FloatArray,
    progress: Progress | None = None,
    share: float | None = None,
) -> MergeTree:
    """Join whitened rows, a share of the cheapest pairs in each round, until one is left."""
    size = len(rows)
    market = Market.of(rows, outgoing)
    nodes: list[FloatArray] = [market.rows.copy()]
    joins: list[Indices] = []
    ids, heights = np.arange(size), np.zeros(2 * size - 1)
    while len(joins) < size - 1:
        left = size - len(joins)
        kept, gone, price = market.round(share_of(left, size) if share is None else share)
        created = size + len(joins) + np.arange(len(kept))
        below = np.maximum(heights[ids[kept]], heights[ids[gone]])
        heights[created] = np.maximum(price, below)
        joins.extend(np.stack([ids[kept], ids[gone], created], axis=1))
        nodes.append(market.rows[kept])
        ids[kept] = created
        market.update(kept, gone)
        ids = ids[market.compact()]
        if progress is not None:
            progress.at(len(joins), size - 1)
    order = np.argsort(heights[size:], kind="stable")
    return MergeTree(np.concatenate(nodes), np.array(joins, dtype=np.intp).reshape(-1, 3)[order])


def share_of(left: int, size: int) -> float:
    """How many of the neurons that are left may go in a round: fewer as it gets serious."""
    return SHARE if left > min(LAST, size / 2) else LAST_SHARE


@dataclass(eq=False)
class Market:
    """Neurons looking for a stronger partner; only what a round changes is computed anew."""

    rows: FloatArray
    weights: FloatArray
    scale: FloatArray
    contribution: FloatArray
    """−1 for a neuron that is gone."""
    partner: Indices
    unlike: FloatArray
    """1 − ρ² to the partner."""
    table: npt.NDArray[np.float32] | None = None
    """1 − ρ² of all pairs, kept up to `TABLE` neurons and computed when needed above."""

    @classmethod
    def of(cls, rows: FloatArray, outgoing: FloatArray) -> Market:
        """All neurons as unit rows, each with its partner."""
        size = np.linalg.norm(rows, axis=1)
        rows, weights = rows / size[:, None], outgoing.T * size[:, None] ** 2
        everyone = np.arange(len(rows))
        scale, contribution = strengths(rows, weights)
        market = cls(rows, weights, scale, contribution, everyone.copy(), np.zeros(len(rows)))
        if len(rows) <= TABLE:
            market.table = np.empty((len(rows), len(rows)), dtype=np.float32)
            for some in tiles(everyone):
                market.table[some] = market.compare(some)
        market.choose(everyone)
        return market

    def compare(self, some: Indices) -> FloatArray:
        """1 − ρ² between some neurons and all."""
        found = kernel(self.rows[some], self.rows)
        found /= self.scale[some, None]
        found /= self.scale
        np.subtract(1, np.square(found, out=found), out=found)
        return np.maximum(found, 0.0, out=found)

    def stronger(self, some: Indices) -> npt.NDArray[np.bool_]:
        """Whether some are stronger than all others; of equally strong ones the later is."""
        mine = self.contribution[some, None]
        tied = (mine == self.contribution) & (some[:, None] > np.arange(len(self.rows)))
        return np.asarray((mine > self.contribution) | tied)

    def choose(self, some: Indices) -> None:
        """The most similar among stronger neurons."""
        for tile in tiles(some):
            unlike = self.compare(tile) if self.table is None else self.table[tile]
            weaker = self.stronger(tile)
            weaker[np.arange(len(tile)), tile] = True
            weaker[:, self.contribution < 0] = True
            unlike = np.where(weaker, np.inf, unlike)
            self.partner[tile] = unlike.argmin(axis=1)
            self.unlike[tile] = unlike[np.arange(len(tile)), self.partner[tile]]

    def round(self, share: float) -> tuple[Indices, Indices, FloatArray]:
        """Join the cheapest pairs that have no neuron in common; the stronger of each stays."""
        live = np.flatnonzero(self.contribution >= 0)
        price = np.where(
            np.isinf(self.unlike[live]), np.inf, self.contribution[live] * self.unlike[live]
        )
        most = max(1, math.ceil(share * len(live)))
        cheapest = np.argsort(price, kind="stable")[:most]
        price, weak = price[cheapest], live[cheapest]
        rank = np.arange(len(weak))
        first = np.full(len(self.rows), len(weak))
        np.minimum.at(first, weak, rank)
        np.minimum.at(first, self.partner[weak], rank)
        free = (first[weak] == rank) & (first[self.partner[weak]] == rank) & np.isfinite(price)
        gone, price = weak[free], price[free]
        if not len(gone):
            gone, price = live[:1], np.array([np.inf])
            self.partner[gone] = live[-1]
        kept = self.partner[gone]
        self.rows[kept], self.weights[kept] = join(self.rows, self.weights, kept, gone)
        return kept, gone, price

    def update(self, kept: Indices, gone: Indices) -> None:
        """Let those whose partner changed look again, and show the joined neurons to all."""
        self.scale[kept], self.contribution[kept] = strengths(self.rows[kept], self.weights[kept])
        self.contribution[gone] = -1.0
        changed = np.zeros(len(self.rows), dtype=bool)
        changed[kept] = changed[gone] = True
        for tile in tiles(kept):
            fresh = self.compare(tile)
            if self.table is not None:
                self.table[tile] = fresh
                self.table[:, tile] = fresh.T
            fresh[~self.stronger(tile)] = np.inf
            best = fresh.argmin(axis=0)
            offer = fresh[best, np.arange(len(self.rows))]
            better = (offer < self.unlike) & ~changed
            self.partner[better], self.unlike[better] = tile[best[better]], offer[better]
        stale = (changed | changed[self.partner]) & (self.contribution >= 0)
        self.choose(np.flatnonzero(stale))

    def compact(self) -> Indices:
        """Make room once many are gone; returns who is left, in order."""
        left = np.flatnonzero(self.contribution >= 0)
        size = len(self.rows)
        if len(left) > COMPACT * size:
            return np.arange(size)
        number = np.full(size, -1)
        number[left] = np.arange(len(left))
        self.partner = number[self.partner[left]]
        for name in ("rows", "weights", "scale", "contribution", "unlike"):
            setattr(self, name, getattr(self, name)[left])
        if self.table is not None:
            self.table = self.table[np.ix_(left, left)]
        return left


def strengths(rows: FloatArray, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
    """√K_ii and ‖V_i‖² K_ii."""
    contribution = np.einsum("ij,ij->i", weights, weights) * kernel_diagonal(rows)
    return kernel_scale(rows), np.nan_to_num(contribution, nan=0.0)


def tiles(some: Indices) -> Iterator[Indices]:
    """Pieces whose rows of a table fit in the cache and in memory."""
    for start in range(0, len(some), TILE):
        yield some[start : start + TILE]


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
