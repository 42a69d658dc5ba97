"""How far apart two layers are when their inputs are distributed as N(μ, Σ).

Whiten once, Σ = LLᵀ and u → u T with T = [[L, μ], [0, 1]]. With a free constant the inner product
of two neurons is the covariance of their squares,

    K(u, u′) = 2 [(u·u′)² − b²b′²] = φ(u)·φ(u′),     E[(u·z)²] = ‖u‖²,

with φ(u) the entries of √2·uuᵀ, without the corner, each off-diagonal pair once and times √2.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from onnxfde.numbers import Array, FloatArray, Indices

FEATURE_BYTES = 100_000_000
"""φ is written out if it takes no more memory than this. Chosen; not tuned."""
REGULARISATION = 1e-3
"""The share of the mean variance that is added to every variance, so that inputs which hardly vary
in the samples still count. Taken from prototypes; not tuned."""
TILE = 1024
"""Rows and columns of K that are computed at once: 8 MB of float64. Chosen; not tuned."""
CACHED = 2**16
"""Elements of K that are worked on at once: 512 KB of float64. Chosen; not tuned."""
TILE_BYTES = 2**25
"""The same for φ, in bytes. Chosen; not tuned."""
QUICK = 4096
"""Rows from which on norms are computed in float32. Chosen; not tuned."""
MOST_CANCELLED = 0.01
"""The share of Σ ‖V_i‖² K_ii above which float32 is enough for ‖F‖²; where neurons do not cancel
it is about 1, and its error was 9e-8 in prototypes. Chosen; not tuned."""


@dataclass(frozen=True, eq=False)
class Metric:
    """The mean of a layer's inputs and a factor L of their covariance, Σ = LLᵀ."""

    mean: FloatArray
    factor: FloatArray

    @cached_property
    def spreads(self) -> FloatArray | None:
        """The diagonal of L if it is diagonal, so that products with it are quick; else None."""
        diagonal = np.diag(self.factor)
        return diagonal if np.count_nonzero(self.factor) == np.count_nonzero(diagonal) else None

    @classmethod
    def plain(cls, inputs: int) -> Metric:
        """N(0, I): compares plain coefficients."""
        return cls(np.zeros(inputs), np.eye(inputs))

    @classmethod
    def box(cls, inputs: int, low: float, high: float) -> Metric:
        """Inputs uniform in [low, high] and independent."""
        radius = high / 2 - low / 2
        return cls(np.full(inputs, low / 2 + high / 2), np.eye(inputs) * radius / np.sqrt(3))

    @classmethod
    def measured(cls, samples: FloatArray, regularisation: float = REGULARISATION) -> Metric:
        """Mean and regularised covariance of sample inputs; Σ = I if nothing varies."""
        inputs = samples.shape[1]
        exponent = int(np.frexp(np.abs(samples).max(initial=0.0))[1])
        centred = np.ldexp(samples, -exponent)
        mean = centred.mean(axis=0)
        centred -= mean
        covariance = centred.T @ centred / len(samples)
        scale = np.trace(covariance) / inputs
        if scale == 0:
            return cls(np.ldexp(mean, exponent), np.eye(inputs))
        covariance[np.diag_indices(inputs)] += regularisation * scale
        factor = np.linalg.cholesky(covariance)
        return cls(np.ldexp(mean, exponent), np.ldexp(factor, exponent))

    def whiten(self, incoming: FloatArray) -> FloatArray:
        """Rows u as u T."""
        weights = incoming[:, :-1]
        wide = weights @ self.factor if self.spreads is None else weights * self.spreads
        return np.column_stack([wide, weights @ self.mean + incoming[:, -1]])

    def spread_out(self, rows: FloatArray) -> FloatArray:
        """Rows times Lᵀ."""
        return np.asarray(rows @ self.factor.T if self.spreads is None else rows * self.spreads)

    def unwhiten(self, rows: FloatArray) -> FloatArray:
        """The inverse of `whiten`."""
        weights = np.linalg.solve(self.factor.T, rows[:, :-1].T).T
        return np.column_stack([weights, rows[:, -1] - weights @ self.mean])

    def standardise(self, inputs: FloatArray) -> FloatArray:
        """Rows x as whitened z: `whiten(u)`·z = u·(x, 1)."""
        centred = np.linalg.solve(self.factor, (inputs - self.mean).T).T
        return np.column_stack([centred, np.ones(len(inputs))])


def kernel(a: FloatArray, b: FloatArray) -> FloatArray:
    """K between whitened rows: 2 w·w′ (w·w′ + 2 b b′), a few rows at a time within the cache."""
    dot = np.asarray(a[:, :-1] @ b[:, :-1].T)
    step = max(1, CACHED // max(len(b), 1))
    for at in range(0, len(a), step):
        some = dot[at : at + step]
        other = np.outer(4 * a[at : at + step, -1], b[:, -1])
        other += some
        other += some
        some *= other
    return dot


def unit_rows(rows: FloatArray) -> FloatArray:
    """Whitened rows scaled to K(u, u) = 1; rows of zeros stay."""
    return np.asarray(rows / np.sqrt(kernel_scale(rows))[:, None])


def kernel_diagonal(a: FloatArray) -> FloatArray:
    """K(u, u) of whitened rows."""
    dot = np.einsum("ij,ij->i", a[:, :-1], a[:, :-1])
    return np.asarray(2 * dot * (dot + 2 * a[:, -1] ** 2))


def kernel_scale(a: FloatArray) -> FloatArray:
    """√K(u, u) of whitened rows, or 1 where that is 0: a divisor that normalises."""
    scale = np.sqrt(kernel_diagonal(a))
    scale[scale == 0] = 1.0
    return scale


def mean_square(rows: FloatArray) -> FloatArray:
    """E[(u·z)²] of whitened rows."""
    return np.asarray(np.einsum("ij,ij->i", rows, rows))


def features(rows: FloatArray) -> FloatArray:
    """φ of whitened rows, one row per neuron."""
    j, k = np.triu_indices(rows.shape[1])
    weight = np.where(j == k, np.sqrt(2), 2.0)[:-1]
    return np.asarray(rows[:, j[:-1]] * rows[:, k[:-1]] * weight)


def features_fit(count: int, width: int) -> bool:
    """Whether φ of `count` rows of this width takes at most `FEATURE_BYTES` in float64."""
    return count * width * (width + 1) * 4 <= FEATURE_BYTES


def feature_count(width: int) -> int:
    """How many numbers φ of a row of this width has."""
    return width * (width + 1) // 2 - 1


def summed_features(rows: FloatArray, outgoing: FloatArray) -> FloatArray:
    """V φ(U): the layer as one vector of features per output."""
    step = max(1, TILE_BYTES // (8 * feature_count(rows.shape[1]) + 1))
    total = np.zeros((len(outgoing), feature_count(rows.shape[1])))
    for at in range(0, len(rows), step):
        total += outgoing[:, at : at + step] @ features(rows[at : at + step])
    return total


def tile_slices(count: int) -> Iterator[slice]:
    """Pieces of at most `TILE` numbers of 0, 1, …, count − 1."""
    for at in range(0, count, TILE):
        yield slice(at, min(at + TILE, count))


def half_tiles(count: int) -> Iterator[tuple[slice, slice, int]]:
    """Pairs of tiles that cover half of a symmetric matrix, and how often each counts."""
    pieces = list(tile_slices(count))
    for number, i in enumerate(pieces):
        for j in pieces[number:]:
            yield i, j, 1 if i == j else 2


def norm(rows: FloatArray, outgoing: FloatArray) -> float:
    """‖V φ(U)‖ from K: the standard deviation of the outputs, over all of them together."""
    return float(np.sqrt(max(squared_norm(rows[:, :-1], rows[:, -1], outgoing), 0.0)))


def squared_norm(weights: Array, last: Array, outgoing: Array) -> float:
    """Σ_ij (V_i·V_j) K_ij of rows (w, b), in the type of the arrays; tiles add up in float64."""
    square = 0.0
    for i, j, times in half_tiles(len(weights)):
        dot = weights[i] @ weights[j].T
        product = outgoing[:, i].T @ outgoing[:, j]
        product *= dot
        squares = np.einsum("ij,ij->i", product, dot).sum(dtype=np.float64)
        tile = 2 * float(squares) + 4 * float(last[i] @ (product @ last[j]))
        square += times * tile
    return square


def quick_norm(rows: FloatArray, outgoing: FloatArray) -> float:
    """The same in float32 for `QUICK` rows and more, if that keeps six digits.

    For rows of length 1 the sum of the K_ii is a measure of what its terms are; where they cancel,
    it is computed in float64 again.
    """
    if len(rows) < QUICK:
        return norm(rows, outgoing)
    length = np.linalg.norm(rows, axis=1)
    unit = rows / np.where(length == 0, 1.0, length)[:, None]
    parts = outgoing * length**2
    largest = float(np.abs(parts).max()) or 1.0
    small, scaled = unit.astype(np.float32), (parts / largest).astype(np.float32)
    square = squared_norm(small[:, :-1], small[:, -1], scaled)
    terms = float(np.sum(parts**2, axis=0) @ kernel_diagonal(unit)) / largest**2
    if not square > MOST_CANCELLED * terms:
        return norm(rows, outgoing)
    return float(np.sqrt(square)) * largest


def normalised(incoming: FloatArray) -> tuple[FloatArray, Indices]:
    """Rows of one sign with Σ|u| in [½, 1), by powers of two, and the exponents that undo it."""
    exponent = np.frexp(np.abs(incoming).sum(axis=1))[1]
    rows = np.ldexp(incoming, -exponent[:, None])
    first = np.argmax(rows != 0, axis=1)
    rows *= np.where(rows[np.arange(len(rows)), first] < 0, -1.0, 1.0)[:, None]
    rows += 0.0
    return rows, exponent.astype(np.intp)
