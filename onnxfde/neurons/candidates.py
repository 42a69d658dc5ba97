"""Candidate neurons for a layer F = V φ(U), compared with it and with each other.

    G = φ(C) φ(C)ᵀ = K(C, C),    T = F φ(C)ᵀ = V K(U, C)

for whitened rows C, scaled to K(c, c) = 1. From these two follows the error of every layer that is
made of some of the candidates and has its outgoing weights fitted by least squares.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from onnxfde.neurons.kernels import (
    feature_count,
    features,
    features_fit,
    kernel,
    norm,
    summed_features,
    unit_rows,
)
from onnxfde.neurons.positive_matrices import pivoted_factor, solve_lower
from onnxfde.numbers import Array, FloatArray, Indices

TARGET_TILE = 1024
"""Candidates whose products with the layer are computed at once: 64 MB for 8,192 neurons. Chosen;
not tuned."""
INDEPENDENT_SHARE = 1e-11
"""A neuron is independent of others if at least this share of its ‖φ‖² is, so that the inverse of
G has some certain digits. Chosen; not tuned."""
INDEPENDENT_STEPS = 64
"""The same in machine epsilons, for smaller types than float64. Chosen; not tuned."""


@dataclass(frozen=True, eq=False)
class CandidateNeurons:
    """Rows C, and what the layer has in common with them."""

    rows: FloatArray
    target: Array
    """T; its type is what selection computes in. float32 sees errors down to 1e-3 of ‖F‖."""
    total: float
    """‖F‖."""
    exact: FloatArray | None = None
    """F itself, one feature per column, where φ has fewer features than there are candidates."""
    projected: Array | None = None
    """The part of G and T that neurons kept in any case account for is left out: G is
    K(C, C) − PᵀP, with this P."""

    @classmethod
    def of(
        cls,
        candidates: FloatArray,
        rows: FloatArray,
        outgoing: FloatArray,
        total: float | None = None,
        dtype: npt.DTypeLike = np.float64,
    ) -> CandidateNeurons:
        """Compare candidates with a layer, whose norm may be known already."""
        count, width = candidates.shape
        scaled = unit_rows(candidates)
        if few_features(max(count, len(rows)), width):
            exact = summed_features(rows, outgoing)
            return cls(scaled, exact @ features(scaled).T, float(np.linalg.norm(exact)), exact)
        target = np.empty((len(outgoing), count), dtype)
        u, v = rows.astype(dtype), outgoing.astype(dtype)
        for at in range(0, count, TARGET_TILE):
            tile = slice(at, at + TARGET_TILE)
            target[:, tile] = v @ kernel(u, scaled[tile].astype(dtype))
        return cls(scaled, target, norm(rows, outgoing) if total is None else total)

    @property
    def count(self) -> int:
        """How many candidates there are."""
        return len(self.rows)

    @property
    def kept(self) -> int:
        """How many neurons are kept in any case."""
        return 0 if self.projected is None else len(self.projected)

    def only(self, some: Indices) -> CandidateNeurons:
        """Some of the candidates."""
        projected = None if self.projected is None else self.projected[:, some]
        return CandidateNeurons(
            self.rows[some], self.target[:, some], self.total, self.exact, projected
        )

    def gram(self, dtype: npt.DTypeLike = np.float64) -> Array:
        """G."""
        rows = self.rows.astype(dtype)
        found = kernel(rows, rows)
        return found if self.projected is None else found - self.projected.T @ self.projected

    def beside(self, kept: CandidateNeurons) -> CandidateNeurons:
        """What is left of layer and candidates if other neurons are kept in any case."""
        dtype = self.target.dtype
        some, root = kept.independent(dtype)
        others = kernel(kept.rows[some].astype(dtype), self.rows.astype(dtype))
        projected = solve_lower(root, others)
        explained = solve_lower(root, kept.target[:, some].T)
        square = self.total**2 - np.sum(explained**2, dtype=np.float64)
        target = self.target - explained.T @ projected
        return CandidateNeurons(
            self.rows, target, float(np.sqrt(max(square, 0.0))), None, projected
        )

    def independent(self, dtype: npt.DTypeLike = np.float64) -> tuple[Indices, Array]:
        """Linearly independent candidates, most independent first, and L of their G = LLᵀ."""
        least = max(INDEPENDENT_SHARE, INDEPENDENT_STEPS * float(np.finfo(dtype).eps))
        return pivoted_factor(self.gram(dtype), least)

    def fit_in_order(self) -> tuple[Indices, FloatArray]:
        """Independent candidates, and the errors of the first k of them, from ‖F‖ at 0."""
        some, root = self.independent()
        target = self.target[:, some].T.astype(np.float64)
        return some, errors_in_order(root, target, self.total)


def errors_in_order(root: FloatArray, target: FloatArray, total: float) -> FloatArray:
    """‖F − best fit by the first k‖ for k = 0, 1, …, from L of G = LLᵀ, T and ‖F‖."""
    explained = solve_lower(root, target)
    falls = np.append(0.0, np.einsum("ij,ij->i", explained, explained).cumsum())
    return np.sqrt(np.maximum(total**2 - falls, 0.0))


def few_features(count: int, width: int) -> bool:
    """Whether φ of `count` rows fits in memory and has fewer features than there are rows."""
    return feature_count(width) < count and features_fit(count, width)
