"""How far apart two layers are when their inputs are distributed as N(μ, Σ).

Whiten once, Σ = LLᵀ and u → u T with T = [[L, μ], [0, 1]]. With a free constant the inner product
of two neurons is the covariance of their squares,

    K(u, u′) = 2 [(u·u′)² − b²b′²] = φ(u)·φ(u′),     E[(u·z)²] = ‖u‖²,

with φ(u) the entries of √2·uuᵀ, without the corner, each off-diagonal pair once and times √2.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from onnxfde.neurons.layer import Layer
from onnxfde.numbers import FloatArray

FEATURE_BYTES = 100_000_000
"""φ is written out if it takes no more memory than this. Chosen; not tuned."""
REGULARISATION = 1e-3
"""The share of the mean variance that is added to every variance, so that inputs which hardly vary
in the samples still count. Taken from prototypes; not tuned."""
CANCELLATION = 1e-5
"""A relative error below this is computed from φ, if that fits, and not from K: squares of errors
cancel there, and leave half the digits of float64 (1.5e-8). Chosen; not tuned."""

NORM_TILE = 2048
"""Columns of K that are computed at once for a norm: 128 MB for 8,192 rows. Chosen; not tuned."""


@dataclass(frozen=True, eq=False)
class Metric:
    """The mean of a layer's inputs and a factor L of their covariance, Σ = LLᵀ."""

    mean: FloatArray
    factor: FloatArray

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
    def measured(cls, samples: FloatArray) -> Metric:
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
        covariance[np.diag_indices(inputs)] += REGULARISATION * scale
        factor = np.linalg.cholesky(covariance)
        return cls(np.ldexp(mean, exponent), np.ldexp(factor, exponent))

    def whiten(self, incoming: FloatArray) -> FloatArray:
        """Rows u as u T."""
        weights = incoming[:, :-1]
        return np.column_stack([weights @ self.factor, weights @ self.mean + incoming[:, -1]])

    def unwhiten(self, rows: FloatArray) -> FloatArray:
        """The inverse of `whiten`."""
        weights = np.linalg.solve(self.factor.T, rows[:, :-1].T).T
        return np.column_stack([weights, rows[:, -1] - weights @ self.mean])

    def standardise(self, inputs: FloatArray) -> FloatArray:
        """Rows x as whitened z: `whiten(u)`·z = u·(x, 1)."""
        centred = np.linalg.solve(self.factor, (inputs - self.mean).T).T
        return np.column_stack([centred, np.ones(len(inputs))])

    def relative_error(self, layer: Layer, other: Layer) -> float:
        """The change of the centred output from `layer` to `other`, relative L2."""
        if not other.finite:
            return np.inf
        rows = self.whiten(layer.incoming)
        both = np.vstack([rows, self.whiten(other.incoming)])
        change = np.hstack([layer.outgoing, -other.outgoing])
        total = norm(rows, layer.outgoing)
        if total == 0:
            return 0.0
        error = norm(both, change) / total
        if error < CANCELLATION and features_fit(*both.shape):
            error = float(np.linalg.norm(change @ features(both))) / total
        return error


def kernel(a: FloatArray, b: FloatArray) -> FloatArray:
    """K between whitened rows."""
    dot = np.asarray(a[:, :-1] @ b[:, :-1].T)
    other = np.outer(a[:, -1], b[:, -1])
    other *= 2
    other += dot
    dot *= 2
    dot *= other
    return dot


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


def norm(rows: FloatArray, outgoing: FloatArray) -> float:
    """‖V φ(U)‖ from K: the standard deviation of the outputs, over all of them together."""
    squares = [
        np.sum(
            (outgoing @ kernel(rows, rows[at : at + NORM_TILE])) * outgoing[:, at : at + NORM_TILE]
        )
        for at in range(0, len(rows), NORM_TILE)
    ]
    return float(np.sqrt(max(sum(squares), 0.0)))
