"""Which neurons are linked by chains of neighbours within ε, without looking at every pair.

*Forward* and the backward max norm: neighbours must be close in every coordinate (of V; of u²), so
candidates are ruled out coordinate by coordinate, the most spread one first, starting from a
window in sorted order. Neurons that have been reached are never looked at again.

*Backward sum*: the L1 distance D of squares satisfies D(a, b) ≥ |‖a‖₁² − (sign(a)·b)²|. One matrix
product in float32, with its rounding error added on the safe side, rules out almost every pair. The
others are decided by

    ½ ‖a+b‖₁ ‖a−b‖₁ ≤ D(a, b) ≤ ‖a+b‖₁ ‖a−b‖₁

or, where these bounds lie on both sides of ε, by D itself. Pairs already connected are skipped.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from onnxfde.lumping.distance import square_gaps_sum
from onnxfde.numbers import FloatArray, Indices
from onnxfde.progress import Progress

ExactDistances = Callable[[int, Indices], FloatArray]
"""The distances from one neuron to others."""

CLOSURE_TILE = 512
"""Rows of the float32 product made at once: 32 MiB for 16,384 neurons. Chosen; not tuned."""
FLOAT32_EPS = float(np.finfo(np.float32).eps)
LENGTH_MARGIN = 1e-12
"""How far beyond the bound lengths are searched, relative to it: far above float64 rounding."""
BOUND_MARGIN = 1e-9
"""How far the lower bound on D must exceed the limit to decide: far above float64 rounding."""


@dataclass
class Effort:
    """How much work a partition takes: pairs that bounds did not decide, and the progress made."""

    evaluated: int = 0
    progress: Progress = field(default_factory=Progress)

    def reached(self, done: int, size: int) -> None:
        """Tell how many pairs are decided once `done` neurons are compared with all others."""
        self.progress.at(done * (2 * size - done - 1) // 2, size * (size - 1) // 2)


@dataclass(frozen=True, eq=False)
class Nearness:
    """What "within ε" means: ε, and by how much each neuron's distances may exceed it."""

    eps: float
    slack: FloatArray

    def limits(self, i: int, others: Indices) -> FloatArray:
        """The largest distance from neuron i at which each of the others is near."""
        return np.asarray(self.eps + np.maximum(self.slack[i], self.slack[others]))

    @property
    def most(self) -> float:
        """The largest distance at which any pair is near."""
        return float(self.eps + self.slack.max(initial=0.0))

    def reordered(self, order: Indices, scale: float = 1.0) -> Nearness:
        """The same for neurons in another order, with distances divided by `scale`."""
        return Nearness(self.eps / scale, self.slack[order] / scale)


def neighbours_closure(
    coordinates: FloatArray,
    near: Nearness,
    total: bool,
    exact: ExactDistances | None,
    effort: Effort,
) -> Indices:
    """Labels of the closure of "close in every coordinate" (with `total`: in their sum).

    If `exact` is given, its distances decide among the neurons whose coordinates are close.
    """
    size = len(coordinates)
    spread = np.argsort(-np.ptp(coordinates, axis=0), kind="stable")
    by_first = np.argsort(coordinates[:, spread[0]], kind="stable")
    table = np.ascontiguousarray(coordinates[by_first][:, spread].T)
    near = near.reordered(by_first)
    labels = np.full(size, -1)
    reached = np.zeros(size, dtype=bool)
    for start in range(size):
        if reached[start]:
            continue
        reached[start] = True
        pending = [start]
        while pending:
            i = pending.pop()
            labels[i] = start
            found = close_to(table, i, near, total, reached)
            effort.evaluated += len(found)
            if exact is not None and len(found):
                gaps = exact(int(by_first[i]), by_first[found])
                found = found[gaps <= near.limits(i, found)]
            reached[found] = True
            pending.extend(found.tolist())
        effort.reached(int(reached.sum()), size)
    restored = np.empty(size, dtype=np.intp)
    restored[by_first] = labels
    return restored


def close_to(
    table: FloatArray, i: int, near: Nearness, total: bool, reached: npt.NDArray[np.bool_]
) -> Indices:
    """Unreached columns of `table` near column i in every coordinate (with `total`: in sum)."""
    low = int(np.searchsorted(table[0], table[0, i] - near.most, side="left"))
    high = int(np.searchsorted(table[0], table[0, i] + near.most, side="right"))
    found = low + np.flatnonzero(~reached[low:high])
    gap = np.abs(table[0, found] - table[0, i])
    at, step = 1, 1
    while at < len(table) and len(found):
        more = np.abs(table[at : at + step, found] - table[at : at + step, i, None])
        gap = gap + more.sum(axis=0) if total else np.maximum(gap, more.max(axis=0))
        keep = gap <= near.most
        found, gap = found[keep], gap[keep]
        at, step = at + step, 2 * step
    return np.asarray(found[gap <= near.limits(i, found)])


def square_closure(rows: FloatArray, near: Nearness, effort: Effort) -> Indices:
    """Labels of the closure of D(a, b) ≤ ε, with D the L1 distance of squares."""
    size = len(rows)
    unit = np.ldexp(1.0, int(np.frexp(np.abs(rows).max(initial=0.0))[1]))
    length = np.abs(rows / unit).sum(axis=1)
    order = np.argsort(length, kind="stable")
    rows, length, near = rows[order] / unit, length[order], near.reordered(order, unit**2)
    single, signs = rows.astype(np.float32), np.sign(rows).astype(np.float32)
    slack = 2 * FLOAT32_EPS * (rows.shape[1] + 2) * length
    forest = Forest(size)
    for start in range(0, size, CLOSURE_TILE):
        tile = np.arange(start, min(start + CLOSURE_TILE, size))
        most = np.sqrt(length[tile[-1]] ** 2 + near.most)
        stop = int(np.searchsorted(length, most * (1 + LENGTH_MARGIN), side="right"))
        others = np.arange(start, stop)
        if not forest.all_joined(others):
            product = np.abs(signs[tile] @ single[others].T)
            high, low = product + slack[others], np.maximum(product - slack[others], 0)
            square = length[tile, None] ** 2
            possible = (square - high**2 <= near.most) & (low**2 - square <= near.most)
            possible &= others > tile[:, None]
            for i in np.flatnonzero(possible.any(axis=1)):
                join_close(rows, int(tile[i]), others[possible[i]], near, forest, effort)
        effort.reached(int(tile[-1]) + 1, size)
    restored = np.empty(size, dtype=np.intp)
    restored[order] = forest.roots()
    return restored


def join_close(
    rows: FloatArray, i: int, others: Indices, near: Nearness, forest: Forest, effort: Effort
) -> None:
    """Join neuron i with all of `others` that are near, by bounds where these decide."""
    others = others[forest.find_all(others) != forest.find(i)]
    if not len(others):
        return
    limit = near.limits(i, others)
    both = np.abs(rows[others] + rows[i]).sum(axis=1) * np.abs(rows[others] - rows[i]).sum(axis=1)
    close = both <= limit
    unsure = np.flatnonzero(~close & (both / 2 <= limit * (1 + BOUND_MARGIN)))
    if len(unsure):
        close[unsure] = square_gaps_sum(rows[i], rows[others[unsure]]) <= limit[unsure]
        effort.evaluated += len(unsure)
    for j in others[close]:
        forest.join(i, int(j))


class Forest:
    """Connected components of the numbers 0 to `size` − 1 (union-find)."""

    def __init__(self, size: int) -> None:
        """Start with each number alone."""
        self.parent = np.arange(size)

    def find(self, i: int) -> int:
        """The root of i; shortens the path to it."""
        while self.parent[i] != i:
            self.parent[i] = self.parent[self.parent[i]]
            i = int(self.parent[i])
        return i

    def find_all(self, some: Indices) -> Indices:
        """The roots of some numbers."""
        roots = self.parent[some]
        while True:
            above = self.parent[roots]
            if np.array_equal(above, roots):
                self.parent[some] = roots
                return roots
            roots = above

    def join(self, i: int, j: int) -> None:
        """Connect i and j; the smaller root stays."""
        a, b = sorted((self.find(i), self.find(j)))
        self.parent[b] = a

    def all_joined(self, some: Indices) -> bool:
        """Whether these numbers are all connected."""
        return len(some) == 0 or bool(np.all(self.find_all(some) == self.find(int(some[0]))))

    def roots(self) -> Indices:
        """The root of each number."""
        return self.find_all(np.arange(len(self.parent)))
