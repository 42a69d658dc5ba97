"""What is left of a layer F and of candidate neurons after projecting out some of the candidates.

By kernels, for candidates c scaled to K(c, c) = 1, with RᵀR = K(chosen, chosen):

    L = R⁻ᵀ K(chosen, all),    κ = 1 − diag LᵀL,    T = V K(U, all) − V K(U, chosen) R⁻¹ L.

These differences leave half the digits: in float64 errors are right to about 1e-7 of ‖F‖. Where φ
has few entries, φ itself is projected, and errors are right to the last digits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from onnxfde.neurons.candidates import CandidateNeurons
from onnxfde.neurons.kernels import features, kernel
from onnxfde.neurons.positive_matrices import solve_lower
from onnxfde.numbers import Array, FloatArray, Indices

LOST = 64
"""A candidate of which up to this many machine epsilons are left may be rounding alone. Chosen; not
tuned."""


class Remainder(Protocol):
    """What is left, in either form."""

    negligible: float
    """Up to this κ a candidate is a combination of those chosen."""

    @property
    def square(self) -> float:
        """‖F‖² without the part that the chosen candidates fit."""

    def gains(self) -> FloatArray:
        """By how much each candidate would lower `square`, nearly; −∞ for those chosen."""

    def of_pool(self, pool: Indices) -> tuple[FloatArray, FloatArray]:
        """The inner products of some candidates with each other, and with F."""

    def project_out(self, chosen: Indices, gram: FloatArray, target: FloatArray) -> None:
        """Choose candidates, of which `of_pool` has these inner products."""


@dataclass(eq=False)
class KernelRemainder:
    """By kernels, in the type of the target."""

    rows: FloatArray
    rows_cast: Array
    factor: Array
    """L, of which the first `count` rows are in use."""
    target: Array
    left: FloatArray
    squares: FloatArray
    square: float
    negligible: float
    count: int

    @classmethod
    def of(cls, neurons: CandidateNeurons, most: int) -> KernelRemainder:
        """Everything, with room for `most` candidates."""
        size, target = len(neurons.rows), neurons.target.copy()
        known = np.empty((0, size)) if neurons.projected is None else neurons.projected
        factor = np.empty((len(known) + most, size), target.dtype)
        factor[: len(known)] = known
        return cls(
            neurons.rows,
            neurons.rows.astype(target.dtype),
            factor,
            target,
            1 - np.einsum("ij,ij->j", known, known, dtype=np.float64),
            np.einsum("ij,ij->j", target, target, dtype=np.float64),
            neurons.total**2,
            LOST * float(np.finfo(target.dtype).eps),
            len(known),
        )

    def gains(self) -> FloatArray:
        """As far as the type can tell."""
        free = self.left > self.negligible
        return np.where(free, self.squares / np.where(free, self.left, 1.0), -np.inf)

    def of_pool(self, pool: Indices) -> tuple[FloatArray, FloatArray]:
        """In float64."""
        known = self.factor[: self.count, pool]
        gram = kernel(self.rows[pool], self.rows[pool]) - known.T @ known
        return gram, self.target[:, pool].astype(np.float64)

    def project_out(self, chosen: Indices, gram: FloatArray, target: FloatArray) -> None:
        """Add rows to L."""
        end, dtype = self.count + len(chosen), self.factor.dtype
        known, root = self.factor[: self.count], np.linalg.cholesky(gram)
        new = kernel(self.rows_cast[chosen], self.rows_cast)
        new -= known[:, chosen].T @ known
        new = solve_lower(root.astype(dtype), new)
        explained = solve_lower(root, target.T)
        self.factor[self.count : end], self.count = new, end
        self.target -= explained.T.astype(dtype) @ new
        self.left -= np.einsum("ij,ij->j", new, new, dtype=np.float64)
        self.left[chosen] = -np.inf
        self.squares = np.einsum("ij,ij->j", self.target, self.target, dtype=np.float64)
        self.square = max(self.square - float(np.sum(explained**2)), 0.0)


@dataclass(eq=False)
class FeatureRemainder:
    """By features, one row per candidate."""

    spread: FloatArray
    """φ of the candidates."""
    layer: FloatArray
    """What is left of F."""
    basis: FloatArray
    """Orthonormal columns that span the features of the chosen candidates."""
    left: FloatArray
    negligible: float = (LOST * float(np.finfo(np.float64).eps)) ** 2

    @classmethod
    def of(cls, neurons: CandidateNeurons, exact: FloatArray) -> FeatureRemainder:
        """Everything."""
        size = len(neurons.rows)
        return cls(features(neurons.rows), exact, np.empty((exact.shape[1], 0)), np.ones(size))

    @property
    def square(self) -> float:
        """‖F‖² of what is left."""
        return float(np.sum(self.layer**2))

    def gains(self) -> FloatArray:
        """From what is left of F and candidates' κ, of which the smallest are rounding."""
        target = self.layer @ self.spread.T
        squares = np.einsum("ij,ij->j", target, target)
        gains = squares / np.maximum(self.left, np.sqrt(self.negligible))
        return np.where(self.left == -np.inf, -np.inf, gains)

    def of_pool(self, pool: Indices) -> tuple[FloatArray, FloatArray]:
        """From projected features."""
        left = self.projected(self.spread[pool])
        return left @ left.T, self.layer @ left.T

    def project_out(self, chosen: Indices, gram: FloatArray, target: FloatArray) -> None:
        """Add columns to the basis."""
        new = np.linalg.qr(self.projected(self.spread[chosen]).T)[0]
        self.basis = np.hstack([self.basis, new])
        self.layer = self.projected(self.layer)
        self.left = self.left - np.sum((self.spread @ new) ** 2, axis=1)
        self.left[chosen] = -np.inf

    def projected(self, rows: FloatArray) -> FloatArray:
        """Rows without their part in the basis; the second pass removes rounding of the first."""
        for _ in range(2):
            rows = rows - (rows @ self.basis) @ self.basis.T
        return rows
