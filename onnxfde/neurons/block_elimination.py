"""Which units of an axis to drop, if each of them is a block of features.

A reader makes T ≈ c + Σ_j W_j φ_j of the blocks φ_j of units j. Its fit stays close to the weights
W₀ that it has, the closer the fewer rows tell otherwise: with C = cov φ, R = cov(φ, T) and the
diagonal Λ = λ·E φ², it makes

    J(W) = E ‖T − c − W φ‖² + tr (W − W₀) Λ (W − W₀)ᵀ

least:   H = (C + Λ)⁻¹,   W = (R + Λ W₀ᵀ)ᵀ H.   Without unit j, and fitted again, J is larger by

    tr(W_j H_jj⁻¹ W_jᵀ),

and H, W lose H_:j H_jj⁻¹ H_j: and W_j H_jj⁻¹ H_j:. So one inverse gives J of all counts, and less
what W − W₀ adds to it, the error. The error of several readers is the sum of their squared errors,
each relative to its own target. Neurons, which are blocks of one feature, are in `elimination`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from onnxfde.neurons.elimination import falls_without
from onnxfde.neurons.greedy_steps import best_pool
from onnxfde.neurons.positive_matrices import inverse_positive, solve_positive, subtract_square
from onnxfde.neurons.selection import Selection
from onnxfde.numbers import FloatArray, Indices
from onnxfde.progress import Progress

FREE = 1e-6
"""The λ that is enough to invert, and too little to change a fit."""
SMALL_FEATURE = 1e-3
"""A feature whose mean square is a smaller share of the mean of all counts as if it had that: then
every matrix can be inverted. Chosen; not tuned."""
FEW_FEATURES = 576
"""Up to so many features the others follow after every unit. Chosen; not tuned."""
SHARE_PER_STEP = 0.02
"""Share of the units that are dropped before all others follow, where there are more features, and
two of them at least."""
POOL_PER_STEP = 4
"""Units that are compared for each that is dropped in such a step. Chosen; not tuned."""
SMALLER_BELOW = 0.9
"""Matrices are made smaller once at most this share of the units is in use."""


@dataclass(frozen=True, eq=False)
class Moments:
    """What a fit of a reader needs to know of features φ, the last of which is 1, and targets T."""

    gram: FloatArray
    """E φφᵀ."""
    products: FloatArray
    """E φTᵀ, features × outputs."""
    power: float
    """E ‖T‖²."""
    norm: float
    """The square that squared errors are relative to."""
    columns: Indices
    """The features of each unit: units × block."""
    held: tuple[FloatArray, FloatArray] | None = None
    """Features, without the 1, and targets of rows that are held out, if any are."""
    prior: FloatArray | None = None
    """W₀, outputs × features without the 1; None: 0."""
    strength: float = FREE
    """λ."""
    rows: int = 0
    """How many rows the means are of."""

    @property
    def with_held(self) -> Moments:
        """The means of all rows, those that are held out too."""
        if self.held is None:
            return self
        features, targets = self.held
        wide = np.column_stack([features, np.ones(len(features))])
        rows = self.rows + len(wide)
        old, new = self.rows / rows, 1 / rows
        return replace(
            self,
            gram=old * self.gram + new * (wide.T @ wide),
            products=old * self.products + new * (wide.T @ targets),
            power=old * self.power + new * float(np.vdot(targets, targets)),
            held=None,
            rows=rows,
        )

    def penalties(self, units: Indices | slice) -> FloatArray:
        """The diagonal of Λ for some units, one block after the other."""
        squares = np.diagonal(self.gram)[:-1]
        least = SMALL_FEATURE * float(np.mean(squares)) or 1.0
        return self.strength * np.maximum(squares[self.columns[units].ravel()], least)

    def known(self, units: Indices | slice) -> FloatArray:
        """W₀ᵀ of some units."""
        chosen = self.columns[units].ravel()
        if self.prior is None:
            return np.zeros((len(chosen), self.products.shape[1]))
        return np.asarray(self.prior[:, chosen].T)

    def covariances(self, units: Indices | slice) -> tuple[FloatArray, FloatArray]:
        """C + Λ and R + Λ W₀ᵀ of some units, one block after the other."""
        chosen, penalties = self.columns[units].ravel(), self.penalties(units)
        mean = self.gram[chosen, -1]
        found = self.gram[np.ix_(chosen, chosen)]
        found -= np.outer(mean, mean)
        found[np.diag_indices(len(found))] += penalties
        products = self.products[chosen] - np.outer(mean, self.products[-1])
        return found, products + penalties[:, None] * self.known(units)

    def refit(self, kept: Indices) -> tuple[FloatArray, FloatArray]:
        """The weights of some units, outputs × their features in the order given, and the bias."""
        found, products = self.covariances(kept)
        weights = solve_positive(found, products).T
        return weights, self.products[-1] - weights @ self.gram[self.columns[kept].ravel(), -1]


@dataclass(eq=False)
class ReaderFit:
    """The fit of one reader to the units that are left."""

    inverse: FloatArray
    """H; rows and columns of dropped units are 0 until it is made smaller."""
    weights: FloatArray
    """W, scaled so that squares are relative to the norm."""
    known: FloatArray
    """W₀, scaled alike."""
    penalties: FloatArray
    """The diagonal of Λ."""
    block: int
    cost: float
    """J of the fit to all units."""
    lost: float = 0.0
    """What W − W₀ adds to J for units that are no longer in the matrices."""

    @classmethod
    def of(cls, moments: Moments) -> ReaderFit:
        """The fit to all units."""
        every, scale = slice(None), 1 / np.sqrt(moments.norm)
        matrix, products = moments.covariances(every)
        mean, products = moments.products[-1], products * scale
        known, penalties = moments.known(every).T * scale, moments.penalties(every)
        inverse = inverse_positive(matrix)
        weights = np.ascontiguousarray((inverse @ products).T)
        cost = (moments.power - float(mean @ mean)) / moments.norm
        cost += float(np.sum(known**2 @ penalties))
        cost -= float(np.vdot(weights.T, products))
        return cls(inverse, weights, known, penalties, moments.columns.shape[1], cost)

    @property
    def penalty(self) -> float:
        """What W − W₀ adds to J."""
        return self.lost + self.penalty_of(slice(None))

    def penalty_of(self, features: Indices | slice) -> float:
        """What some features of W − W₀ add to J."""
        change = self.weights[:, features] - self.known[:, features]
        return float(np.sum(change**2 @ self.penalties[features]))

    def rises(self, live: Indices) -> FloatArray:
        """By how much the squared error rises without each of these units."""
        size = self.block
        units = len(self.inverse) // size
        blocks = np.einsum("ibic->ibc", self.inverse.reshape(units, size, units, size))[live]
        weights = self.weights.reshape(-1, units, size).transpose(1, 2, 0)[live]
        return traces(blocks, weights @ weights.transpose(0, 2, 1))

    def among(self, units: Indices) -> PoolFit:
        """What decides between some units."""
        chosen = self.features(units)
        weights = self.weights[:, chosen]
        return PoolFit(self.inverse[np.ix_(chosen, chosen)], weights.T @ weights, self.block)

    def features(self, units: Indices) -> Indices:
        """The features of some units."""
        return (units[:, None] * self.block + np.arange(self.block)).ravel()

    def drop(self, units: Indices) -> None:
        """Fit the others again."""
        gone = self.features(units)
        lines, shares = falls_without(self.inverse, self.weights, gone)
        self.weights -= shares @ lines
        subtract_square(self.inverse, lines)
        self.inverse[gone] = self.inverse[:, gone] = self.weights[:, gone] = 0.0

    def keep(self, units: Indices) -> None:
        """Make the matrices smaller."""
        chosen = self.features(units)
        gone = np.setdiff1d(np.arange(len(self.penalties)), chosen)
        self.lost += self.penalty_of(gone)
        self.weights, self.known = (a[:, chosen] for a in (self.weights, self.known))
        self.penalties = self.penalties[chosen]
        self.inverse = self.inverse[np.ix_(chosen, chosen)]


@dataclass(eq=False)
class PoolFit:
    """H and WᵀW of some units."""

    matrix: FloatArray
    products: FloatArray
    block: int

    def rises(self) -> FloatArray:
        """By how much the squared error rises without each of them."""
        size = self.block
        shape = (units := len(self.matrix) // size, size, units, size)
        return traces(
            np.einsum("ibic->ibc", self.matrix.reshape(shape)),
            np.einsum("ibic->ibc", self.products.reshape(shape)),
        )

    def drop(self, unit: int) -> None:
        """The others as they are without a unit, which becomes one of no weight."""
        own = slice(unit * self.block, (unit + 1) * self.block)
        lines = np.linalg.solve(self.matrix[own, own], self.matrix[own])
        shift = self.products[own] - self.products[own, own] @ lines / 2
        both = lines.T @ shift
        self.products -= both
        self.products -= both.T
        self.matrix -= lines.T @ self.matrix[own]
        self.matrix[own] = self.matrix[:, own] = self.products[own] = self.products[:, own] = 0.0
        self.matrix[own, own] = np.eye(self.block)


def traces(blocks: FloatArray, products: FloatArray) -> FloatArray:
    """tr(A⁻¹ B) of each pair, which is not negative."""
    if blocks.shape[1] == 1:
        return np.asarray(products[:, 0, 0] / blocks[:, 0, 0])
    found = np.trace(np.linalg.solve(blocks, products), axis1=1, axis2=2)
    return np.asarray(np.maximum(found, 0.0))


def eliminate_units(readers: Sequence[Moments], progress: Progress | None = None) -> Selection:
    """Drop one unit after the other; the order has all of them, and errors are relative.

    Where several are dropped in a step, what W − W₀ adds to J between is estimated.
    """
    fits = [ReaderFit.of(reader) for reader in readers]
    units = np.arange(len(readers[0].columns))
    live, left, total = np.ones(len(units), dtype=bool), len(units), len(units)
    order, rises = [np.empty(0, dtype=np.intp)], [np.zeros(0)]
    penalties = {left: sum(fit.penalty for fit in fits)}
    cost = sum(fit.cost for fit in fits)
    while left:
        gone, rise = next_units(fits, np.flatnonzero(live), left)
        for fit in fits:
            fit.drop(gone)
        order.append(units[gone])
        rises.append(rise)
        live[gone], left = False, left - len(gone)
        penalties[left] = sum(fit.penalty for fit in fits)
        if 0 < left <= SMALLER_BELOW * len(units):
            kept = np.flatnonzero(live)
            for fit in fits:
                fit.keep(kept)
            units, live = units[kept], np.ones(left, dtype=bool)
        if progress is not None:
            progress.at(total - left, total)
    squares = cost + np.concatenate([np.zeros(1), *rises]).cumsum()[::-1]
    counts = sorted(penalties)
    squares -= np.interp(np.arange(total + 1), counts, [penalties[count] for count in counts])
    squares = np.maximum.accumulate(np.maximum(squares, 0.0)[::-1])[::-1]
    return Selection(np.concatenate(order)[::-1], np.sqrt(squares))


def next_units(fits: list[ReaderFit], live: Indices, left: int) -> tuple[Indices, FloatArray]:
    """The units to drop next, and by how much the squared error rises with each.

    Within a pool of the best, one after the other as long as none outside of it was better.
    """
    scores = sum((fit.rises(live) for fit in fits), np.zeros(len(live)))
    widest = left * max(fit.block for fit in fits)
    most = 1 if widest <= FEW_FEATURES else min(max(int(SHARE_PER_STEP * left), 2), left)
    pool, bound = best_pool(-scores, most, POOL_PER_STEP * most)
    if most == 1:
        return live[pool], scores[pool]
    some = [fit.among(live[pool]) for fit in fits]
    taken: list[int] = []
    rises: list[float] = []
    free = np.zeros(len(pool))
    while len(taken) < most:
        scores = sum((one.rises() for one in some), free)
        unit = int(np.argmin(scores))
        if taken and -scores[unit] < bound:
            break
        taken.append(unit)
        rises.append(float(scores[unit]))
        free[unit] = np.inf
        for one in some:
            one.drop(unit)
    return live[pool[taken]], np.array(rises)
