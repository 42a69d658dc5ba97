"""Which units of an axis to drop, if each of them is a block of features.

A reader makes T ≈ c + Σ_j W_j φ_j of the blocks φ_j of units j, and is fitted with a little ridge:
with the covariances C = cov φ, R = cov(φ, T) and λ = 1e-6 · mean E φ²

    H = (C + λI)⁻¹,   W = Rᵀ H.

Without unit j, and fitted again, the squared error is larger by exactly

    tr(W_j H_jj⁻¹ W_jᵀ),

and H, W lose H_:j H_jj⁻¹ H_j: and W_j H_jj⁻¹ H_j:. So one inverse gives the errors of all counts.
The error of several readers is the sum of their squared errors, each relative to its own target.
Neurons, which are blocks of one feature without a ridge, are in `elimination`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from onnxfde.neurons.elimination import falls_without
from onnxfde.neurons.greedy_steps import best_pool
from onnxfde.neurons.positive_matrices import inverse_positive, solve_positive, subtract_square
from onnxfde.neurons.selection import Selection
from onnxfde.numbers import FloatArray, Indices
from onnxfde.progress import Progress

BLOCK_RIDGE = 1e-6
"""λ as a share of the mean square of a feature; enough to invert, too little to change a fit."""
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

    @property
    def ridge(self) -> float:
        """λ."""
        return BLOCK_RIDGE * float(np.mean(np.diagonal(self.gram)[:-1])) or 1.0

    def covariances(self, units: Indices | slice) -> tuple[FloatArray, FloatArray]:
        """C + λI and R of some units, one block after the other."""
        chosen = self.columns[units].ravel()
        mean = self.gram[chosen, -1]
        found = self.gram[np.ix_(chosen, chosen)]
        found -= np.outer(mean, mean)
        found[np.diag_indices(len(found))] += self.ridge
        return found, self.products[chosen] - np.outer(mean, self.products[-1])

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
    block: int
    ridge: float
    square: float
    """The squared error of the fit, with the ridge."""

    @classmethod
    def of(cls, moments: Moments) -> ReaderFit:
        """The fit to all units."""
        matrix, products = moments.covariances(slice(None))
        products /= np.sqrt(moments.norm)
        mean = moments.products[-1]
        inverse = inverse_positive(matrix)
        weights = np.ascontiguousarray((inverse @ products).T)
        square = (moments.power - float(mean @ mean)) / moments.norm
        square -= float(np.vdot(weights.T, products))
        return cls(inverse, weights, moments.columns.shape[1], moments.ridge, square)

    @property
    def penalty(self) -> float:
        """The part of the squared error that is the ridge's."""
        return self.ridge * float(np.einsum("ij,ij->", self.weights, self.weights))

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
        self.weights = np.take(self.weights, chosen, axis=1)
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

    Where several are dropped in a step, what the ridge adds to the errors between is estimated.
    """
    fits = [ReaderFit.of(reader) for reader in readers]
    units = np.arange(len(readers[0].columns))
    live, left, total = np.ones(len(units), dtype=bool), len(units), len(units)
    order, rises = [np.empty(0, dtype=np.intp)], [np.zeros(0)]
    penalties = {left: sum(fit.penalty for fit in fits)}
    square = sum(fit.square for fit in fits)
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
    squares = square + np.concatenate([np.zeros(1), *rises]).cumsum()[::-1]
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
