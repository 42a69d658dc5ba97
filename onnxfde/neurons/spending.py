"""How many units each axis keeps, so that all together cost no more than allowed.

    least  Σ e_i(k_i)²     such that     cost(k) ≤ limit

e_i(k) is the relative error of axis i with k units. The cost need not be a sum over axes: a
convolution between two of them costs in proportion to the product of their counts. With all other
counts as they are, it is linear in each. Starting from all units, that axis gives up units next
whose squared error rises least for what is saved. It looks ahead along the convex hull of its
curve, so that a steep step is taken if what follows is flat.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from onnxfde.numbers import FloatArray, Indices

SAME_COST = 1e-3
"""Costs that differ by this share are the same to a search. Chosen; not tuned."""
CostOf = Callable[[Indices], float]
"""What networks with so many units in each axis cost."""


@dataclass(frozen=True, eq=False)
class PairedCost:
    """cost(k) = fixed + Σ single_i k_i + Σ paired_ij k_i k_j / 2, with i ≠ j."""

    fixed: float
    single: FloatArray
    paired: FloatArray

    @classmethod
    def of(cls, cost: CostOf, counts: Indices) -> PairedCost:
        """A cost of that form from its values around some counts, which are 1 at least."""
        size, full = len(counts), cost(counts)
        less = counts - np.eye(size, dtype=np.intp)
        ones = np.array([cost(row) for row in less])
        paired = np.zeros((size, size))
        for i in range(size):
            for j in range(i):
                both = less[i] + less[j] - counts
                paired[i, j] = paired[j, i] = full - ones[i] - ones[j] + cost(both)
        single = full - ones - paired @ counts
        fixed = full - single @ counts - counts @ paired @ counts / 2
        return cls(float(fixed), single, paired)

    def slopes(self, counts: Indices) -> FloatArray:
        """What one unit of each axis costs."""
        return np.asarray(self.single + self.paired @ counts)

    def total(self, counts: Indices) -> float:
        """The cost of so many units."""
        return float(self.fixed + (self.single + self.paired @ counts / 2) @ counts)


def counts_within(errors: FloatArray, eps: float, align: int = 1) -> int:
    """The fewest units with an error of at most ε, rounded up to a multiple of `align`.

    `errors` are those of 0, 1, 2 … units; at least one is kept, and never more than there are.
    """
    within = np.flatnonzero(errors <= eps)
    fewest = max(int(within[0]), 1) if len(within) else len(errors) - 1
    return min(-(-fewest // align) * align, len(errors) - 1)


@dataclass(frozen=True, eq=False)
class Spending:
    """Curves, and what their counts cost."""

    curves: Sequence[FloatArray]
    """The errors of 0, 1, 2 … units of each axis."""
    cost: CostOf
    steps: Sequence[int]
    """Counts of each axis are multiples of this, if possible."""

    @classmethod
    def of(
        cls, curves: Sequence[FloatArray], cost: CostOf, steps: Sequence[int] | None = None
    ) -> Spending:
        """In steps of 1, if nothing else is said."""
        return cls(curves, cost, steps or [1] * len(curves))

    @property
    def finer(self) -> Spending:
        """The same in steps half as large."""
        return replace(self, steps=[max(step // 2, 1) for step in self.steps])

    @property
    def whole(self) -> Indices:
        """All units."""
        return np.array([len(curve) - 1 for curve in self.curves], dtype=np.intp)

    def under(self, limit: float) -> Indices:
        """Counts of least error whose cost is at most the limit, or the fewest.

        The limit is worth more than multiples.
        """
        if not self.curves or self.cost(self.whole) <= limit:
            return self.whole
        if self.cost(self.least) > limit:
            plain = replace(self, steps=[1] * len(self.steps))
            return self.least if max(self.steps) == 1 else plain.under(limit)
        aim = limit
        while self.cost(found := descended(self.ladders, self._paired, aim)) > limit:
            aim -= self.cost(found) - limit
        return filled(self.ladders, self.cost, limit, found)

    def within(self, error: float) -> Indices:
        """Counts of least cost whose errors are √Σ e² ≤ error together, to a thousandth."""
        if not self.curves or self.error(self.least) <= error:
            return self.least
        low, high = self.cost(self.least), self.cost(self.whole)
        best = self.whole
        while high - low > SAME_COST * high:
            middle = (low + high) / 2
            found = self.under(middle)
            if self.error(found) <= error:
                best, high = found, min(middle, self.cost(found))
            else:
                low = middle
        return best

    def error(self, counts: Indices) -> float:
        """√Σ e² of these counts."""
        return float(np.sqrt(sum(c[k] ** 2 for c, k in zip(self.curves, counts, strict=True))))

    @property
    def least(self) -> Indices:
        """The fewest units."""
        return np.array([ladder.counts[-1] for ladder in self.ladders], dtype=np.intp)

    @cached_property
    def ladders(self) -> list[Ladder]:
        """The counts that each axis may have."""
        return [Ladder.of(*axis) for axis in zip(self.curves, self.steps, strict=True)]

    @cached_property
    def _paired(self) -> PairedCost:
        return PairedCost.of(self.cost, self.whole)


@dataclass(frozen=True, eq=False)
class Ladder:
    """The counts that an axis may have, falling, with their squared errors."""

    counts: Indices
    squares: FloatArray
    hull: Indices
    """Places of the counts on the lower convex hull of the curve."""

    @classmethod
    def of(cls, errors: FloatArray, align: int) -> Ladder:
        """All units, and all multiples of `align` below them; at least one unit."""
        whole = len(errors) - 1
        below = np.arange((whole - 1) // align * align, 0, -align)
        counts = np.concatenate([[whole], below]).astype(np.intp)
        squares = np.maximum.accumulate(np.square(errors[counts]))
        return cls(counts, squares, places_on_hull(counts, squares))


def places_on_hull(counts: Indices, squares: FloatArray) -> Indices:
    """From the first place on, always the one to which the rise per unit is least."""
    hull = [0]
    while hull[-1] < len(counts) - 1:
        here = hull[-1]
        rises = (squares[here + 1 :] - squares[here]) / (counts[here] - counts[here + 1 :])
        hull.append(here + len(rises) - int(np.argmin(rises[::-1])))
    return np.array(hull, dtype=np.intp)


def descended(ladders: Sequence[Ladder], cost: PairedCost, limit: float) -> Indices:
    """Go down the hulls until the cost is within the limit or there is no way down.

    The last step is as short as possible.
    """
    steps = np.zeros(len(ladders), dtype=np.intp)
    counts = np.array([ladder.counts[0] for ladder in ladders])
    rates = np.array([rate_of(ladder, 0) for ladder in ladders])
    while True:
        slopes = np.maximum(cost.slopes(counts), np.finfo(np.float64).tiny)
        axis = int(np.argmin(rates / slopes))
        if rates[axis] == np.inf:
            return counts
        ladder = ladders[axis]
        lower = int(ladder.counts[ladder.hull[steps[axis] + 1]])
        excess = cost.total(counts) - limit
        if excess <= slopes[axis] * (counts[axis] - lower):
            return last_step(ladders, counts, slopes, excess)
        steps[axis], counts[axis] = steps[axis] + 1, lower
        rates[axis] = rate_of(ladder, int(steps[axis]))


def rate_of(ladder: Ladder, step: int) -> float:
    """The rise per unit of the next step on a hull; infinite behind the last."""
    if step + 1 >= len(ladder.hull):
        return np.inf
    here, there = ladder.hull[step], ladder.hull[step + 1]
    fewer = ladder.counts[here] - ladder.counts[there]
    return float((ladder.squares[there] - ladder.squares[here]) / fewer)


def last_step(
    ladders: Sequence[Ladder], counts: Indices, slopes: FloatArray, excess: float
) -> Indices:
    """The step of one axis with the least rise that saves what is still too much."""
    best, found = np.inf, counts
    for axis, ladder in enumerate(ladders):
        saved = slopes[axis] * (counts[axis] - ladder.counts)
        places = np.flatnonzero((saved >= excess) & (ladder.counts < counts[axis]))
        if not len(places):
            continue
        now = ladder.squares[np.flatnonzero(ladder.counts == counts[axis])[0]]
        rise = ladder.squares[places[0]] - now
        if rise < best:
            best, found = rise, counts.copy()
            found[axis] = ladder.counts[places[0]]
    return found


def filled(ladders: Sequence[Ladder], cost: CostOf, limit: float, counts: Indices) -> Indices:
    """Take units back as long as they fit, those first whose error falls most."""
    while True:
        best, found = -np.inf, None
        for axis, ladder in enumerate(ladders):
            place = int(np.flatnonzero(ladder.counts == counts[axis])[0])
            if not place:
                continue
            higher = counts.copy()
            higher[axis] = ladder.counts[place - 1]
            fall = ladder.squares[place] - ladder.squares[place - 1]
            if fall > best and cost(higher) <= limit:
                best, found = fall, higher
        if found is None:
            return counts
        counts = found
