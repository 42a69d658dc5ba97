"""The merge tree: in which order a layer's neurons are joined pair by pair.

Each step joins the pair with the least cost

    min(a_i, a_j) (1 − ρ_ij²),        a_i = ‖V_i‖² K_ii,   ρ_ij = K_ij / √(K_ii K_jj),

with K the kernel of whitened rows: what the weaker neuron contributes beyond the stronger one. One
round joins a few percent of the neurons at once, the cheapest pairs first, and all joins are sorted
by cost afterwards. That takes O(log n) rounds, together about as long as two matrix products, and
the order is close to that of one join at a time. `canonical` comes first, so that ties do not
depend on how the layer is written.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from onnxfde.neurons.kernels import kernel, kernel_diagonal, kernel_scale, normalised
from onnxfde.neurons.layer import Layer
from onnxfde.numbers import Blocks, FloatArray, Indices
from onnxfde.progress import Progress

ROUND_SHARE = 0.05
"""The share of the remaining neurons that one round may join."""
LAST_ROUND_SHARE = 0.02
"""The same once few neurons are left. With both shares at most 2.7 % more neurons are needed than
with one join per round (benchmarks/order.md)."""
FEW_NEURONS = 512
"""How many remaining neurons are few, or half of all if that is less. Chosen; not tuned."""
MOST_TABLED = 16_384
"""Up to this many neurons 1 − ρ² is kept for all pairs: 1 GiB of float32."""
TABLE_TILE = 512
"""Rows of that table computed at once: 64 MiB of float64 at `MOST_TABLED`. Chosen; not tuned."""
SORT_KEYS = 16
"""Keys by which neurons are sorted at a time. Chosen; not tuned."""
COMPACT_BELOW = 0.75
"""Joined neurons are removed from the arrays once at most this share remains. Chosen; not tuned."""


def canonical(layer: Layer) -> tuple[Layer, Indices]:
    """The layer with power-of-two scale, order and, where it is free, sign of its neurons fixed.

    Also returns the order: which neuron of the layer each of the result is.
    """
    incoming, exponent = normalised(layer.incoming)
    degree = layer.activation.degree
    exponent = exponent if degree is not None else np.zeros_like(exponent)
    if not layer.activation.even or degree is None:
        incoming = np.ldexp(layer.incoming, -exponent[:, None])
    outgoing = np.ldexp(layer.outgoing, (degree or 0) * exponent)
    order = sorted_columns([*outgoing, *incoming.T])
    return replace(layer, incoming=incoming, outgoing=outgoing).only(order), order


def sorted_columns(keys: list[FloatArray]) -> Indices:
    """`np.lexsort`, but a few keys at a time, for as long as columns are tied."""
    order = np.arange(len(keys[0]))
    group = np.zeros(len(order), dtype=np.intp)
    for end in range(len(keys), 0, -SORT_KEYS):
        few = np.stack(keys[max(end - SORT_KEYS, 0) : end])[:, order]
        tied = group[1:] == group[:-1]
        if not tied.any():
            break
        if (few[:, 1:] == few[:, :-1]).all(axis=0)[tied].all():
            continue
        again = np.lexsort([*few, group])
        order, few, group = order[again], few[:, again], group[again]
        differs = (group[1:] != group[:-1]) | (few[:, 1:] != few[:, :-1]).any(axis=0)
        group = np.concatenate([np.zeros(1, dtype=np.intp), np.cumsum(differs)])
    return order


@dataclass(frozen=True, eq=False)
class MergeTree:
    """A unit row for every neuron and every block joined from them, and the joins, cheapest first.

    A join (a, b, c) makes block c of the blocks a and b; the numbers are rows of `nodes`.
    """

    nodes: FloatArray
    joins: Indices
    costs: FloatArray
    """The cost of each join, or of one below it if that is larger."""

    @property
    def neurons(self) -> int:
        """How many neurons the tree starts from."""
        return len(self.joins) + 1

    def cut(self, count: int) -> tuple[Indices, Blocks]:
        """The nodes that are `count` blocks, and the neurons in each."""
        size = self.neurons
        members: dict[int, tuple[int, ...]] = {i: (i,) for i in range(size)}
        for a, b, joined in self.joins[: size - count].tolist():
            members[joined] = members.pop(a) + members.pop(b)
        ordered = sorted(members.items(), key=lambda item: min(item[1]))
        return np.array([node for node, _ in ordered]), tuple(block for _, block in ordered)


def merge_tree(
    rows: FloatArray,
    outgoing: FloatArray,
    progress: Progress | None = None,
    share: float | None = None,
) -> MergeTree:
    """Join whitened rows, a share of them in each round, until one is left."""
    size = len(rows)
    if not size:
        return MergeTree(rows, np.empty((0, 3), dtype=np.intp), np.empty(0))
    candidates = MergeCandidates.of(rows, outgoing)
    nodes: list[FloatArray] = [candidates.rows.copy()]
    joins: list[Indices] = []
    ids, heights = np.arange(size), np.zeros(2 * size - 1)
    while len(joins) < size - 1:
        left = size - len(joins)
        kept, gone, cost = candidates.join_cheapest(
            round_share(left, size) if share is None else share
        )
        created = size + len(joins) + np.arange(len(kept))
        below = np.maximum(heights[ids[kept]], heights[ids[gone]])
        heights[created] = np.maximum(cost, below)
        joins.extend(np.stack([ids[kept], ids[gone], created], axis=1))
        nodes.append(candidates.rows[kept])
        ids[kept] = created
        candidates.update(kept, gone)
        ids = ids[candidates.compact()]
        if progress is not None:
            progress.at(len(joins), size - 1)
    order = np.argsort(heights[size:], kind="stable")
    made = np.array(joins, dtype=np.intp).reshape(-1, 3)
    return MergeTree(np.concatenate(nodes), made[order], heights[size:][order])


def round_share(left: int, size: int) -> float:
    """The share of the `left` neurons that one round may join: less when few of `size` remain."""
    return ROUND_SHARE if left > min(FEW_NEURONS, size / 2) else LAST_ROUND_SHARE


@dataclass(eq=False)
class MergeCandidates:
    """The neurons still to be joined, and for each the most similar of all stronger neurons.

    Joining a neuron with that partner costs `contribution · unlike`. After a round only what the
    joins changed is computed again.
    """

    rows: FloatArray
    weights: FloatArray
    scale: FloatArray
    contribution: FloatArray
    """a_i, or −1 for a neuron that was joined to another."""
    partner: Indices
    unlike: FloatArray
    """1 − ρ² to the partner; infinite if no neuron is stronger."""
    table: npt.NDArray[np.float32] | None = None
    """1 − ρ² of all pairs; None above `MOST_TABLED` neurons, where it is computed when needed."""

    @classmethod
    def of(cls, rows: FloatArray, outgoing: FloatArray) -> MergeCandidates:
        """All neurons as unit rows, each with its partner."""
        size = np.linalg.norm(rows, axis=1)
        rows, weights = rows / size[:, None], outgoing.T * size[:, None] ** 2
        everyone = np.arange(len(rows))
        scale, contribution = strengths(rows, weights)
        made = cls(rows, weights, scale, contribution, everyone.copy(), np.zeros(len(rows)))
        if len(rows) <= MOST_TABLED:
            made.table = np.empty((len(rows), len(rows)), dtype=np.float32)
            for some in tiles(everyone):
                later = slice(some[0], None)
                made.table[some, later] = made.unlikeness(some, later)
                made.table[later, some[0] : some[-1] + 1] = made.table[some, later].T
        made.find_partners(everyone)
        return made

    def unlikeness(self, some: Indices, others: slice = slice(None)) -> FloatArray:
        """1 − ρ² between some neurons and all, or a part of them."""
        found = kernel(self.rows[some], self.rows[others])
        found /= self.scale[some, None]
        found /= self.scale[others]
        np.subtract(1, np.square(found, out=found), out=found)
        return np.maximum(found, 0.0, out=found)

    def ranks(self) -> npt.NDArray[np.int32]:
        """The place of each neuron by strength, ties in order; −1 for one that was joined."""
        places = np.empty(len(self.rows), dtype=np.int32)
        places[np.argsort(self.contribution, kind="stable")] = np.arange(len(self.rows))
        places[self.contribution < 0] = -1
        return places

    def find_partners(self, some: Indices) -> None:
        """Find the partners of some neurons again."""
        ranks = self.ranks()
        for tile in tiles(some):
            unlike = self.unlikeness(tile) if self.table is None else self.table[tile]
            np.putmask(unlike, ranks[tile, None] >= ranks, np.inf)
            self.partner[tile] = unlike.argmin(axis=1)
            self.unlike[tile] = unlike[np.arange(len(tile)), self.partner[tile]]

    def join_cheapest(self, share: float) -> tuple[Indices, Indices, FloatArray]:
        """Join the cheapest pairs that have no neuron in common; the stronger of each stays."""
        live = np.flatnonzero(self.contribution >= 0)
        cost = np.where(
            np.isinf(self.unlike[live]), np.inf, self.contribution[live] * self.unlike[live]
        )
        most = max(1, math.ceil(share * len(live)))
        cheapest = np.argsort(cost, kind="stable")[:most]
        cost, weak = cost[cheapest], live[cheapest]
        rank = np.arange(len(weak))
        first = np.full(len(self.rows), len(weak))
        np.minimum.at(first, weak, rank)
        np.minimum.at(first, self.partner[weak], rank)
        free = (first[weak] == rank) & (first[self.partner[weak]] == rank) & np.isfinite(cost)
        gone, cost = weak[free], cost[free]
        if not len(gone):
            gone, cost = live[:1], np.array([np.inf])
            self.partner[gone] = live[-1]
        kept = self.partner[gone]
        self.rows[kept], self.weights[kept] = joined_pairs(self.rows, self.weights, kept, gone)
        return kept, gone, cost

    def update(self, kept: Indices, gone: Indices) -> None:
        """Compare the joined neurons with all others, and replace partners that changed."""
        self.scale[kept], self.contribution[kept] = strengths(self.rows[kept], self.weights[kept])
        self.contribution[gone] = -1.0
        changed = np.zeros(len(self.rows), dtype=bool)
        changed[kept] = changed[gone] = True
        ranks = self.ranks()
        for tile in tiles(kept):
            fresh = self.unlikeness(tile)
            if self.table is not None:
                self.table[tile] = fresh
                self.table[:, tile] = fresh.T
            np.putmask(fresh, ranks[tile, None] <= ranks, np.inf)
            best = fresh.argmin(axis=0)
            nearest = fresh[best, np.arange(len(self.rows))]
            better = (nearest < self.unlike) & ~changed
            self.partner[better], self.unlike[better] = tile[best[better]], nearest[better]
        stale = (changed | changed[self.partner]) & (self.contribution >= 0)
        self.find_partners(np.flatnonzero(stale))

    def compact(self) -> Indices:
        """Drop joined neurons once they are many; return the indices that are kept."""
        left = np.flatnonzero(self.contribution >= 0)
        size = len(self.rows)
        if len(left) > COMPACT_BELOW * size:
            return np.arange(size)
        place = np.full(size, -1)
        place[left] = np.arange(len(left))
        self.partner = place[self.partner[left]]
        for name in ("rows", "weights", "scale", "contribution", "unlike"):
            setattr(self, name, getattr(self, name)[left])
        if self.table is not None:
            table = np.empty((len(left), len(left)), dtype=np.float32)
            for start in range(0, len(left), TABLE_TILE):
                some = slice(start, start + TABLE_TILE)
                np.take(self.table[left[some]], left, axis=1, out=table[some], mode="clip")
            self.table = table
        return left


def strengths(rows: FloatArray, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
    """√K_ii and a_i = ‖V_i‖² K_ii."""
    contribution = np.einsum("ij,ij->i", weights, weights) * kernel_diagonal(rows)
    return kernel_scale(rows), np.nan_to_num(contribution, nan=0.0)


def tiles(some: Indices) -> Iterator[Indices]:
    """Pieces of at most `TABLE_TILE` neurons."""
    for start in range(0, len(some), TABLE_TILE):
        yield some[start : start + TABLE_TILE]


def joined_pairs(
    rows: FloatArray, weights: FloatArray, first: Indices, second: Indices
) -> tuple[FloatArray, FloatArray]:
    """One unit row per pair, the top eigenvector of Σ ‖V_i‖ u_i u_iᵀ, and its outgoing weights."""
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
