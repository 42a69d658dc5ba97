"""The order of neurons from the most to the least linearly independent.

    K_ij = ‖V_i‖ ‖V_j‖ kernel(u_i, u_j) = LLᵀ         Cholesky, largest residual first

Each neuron is the one that contributes most beyond those before it. If the first k are kept and
their outgoing weights refitted, the error is exactly ‖W L[:, k:]‖, where W has the columns
V_i / ‖V_i‖ in the same order. It is 0 from the rank of K on: the neurons left out are then linear
combinations of those kept. Where φ has fewer numbers than there are neurons, and not too many, L
comes from φ.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from onnxfde.neurons.kernels import feature_count, features, kernel, kernel_scale, tile_slices
from onnxfde.numbers import Blocks, FloatArray, Indices

MOST_QR = 1e10
"""Numbers of φ, squared, times neurons up to which L comes from φ: its QR factorisation keeps all
digits but takes longer than that of K, a second on one core. Chosen; not tuned."""
TAIL_COLUMNS = 128
"""How many errors are computed at a time, from the last on. Chosen; not tuned."""


@dataclass(frozen=True, eq=False)
class PivotedBasis:
    """Neurons from the most to the least independent, and the error of keeping the first k."""

    order: Indices
    errors: FloatArray
    rows: FloatArray

    def cut(self, count: int) -> tuple[Indices, Blocks]:
        """The neurons to keep, and the block of each: those most correlated with it."""
        kept = np.sort(self.order[:count])
        scale, home = kernel_scale(self.rows), np.empty(len(self.rows), dtype=np.intp)
        for piece in tile_slices(len(self.rows)):
            likeness = np.abs(kernel(self.rows[piece], self.rows[kept])) / scale[kept]
            home[piece] = likeness.argmax(axis=1)
        home[kept] = np.arange(count)
        order = np.argsort(home, kind="stable")
        blocks = np.split(order, np.flatnonzero(np.diff(home[order])) + 1)
        return kept, tuple(tuple(block.tolist()) for block in blocks)


def pivoted_basis(rows: FloatArray, outgoing: FloatArray, largest: float = np.inf) -> PivotedBasis:
    """Order whitened neurons by what each contributes beyond those before it.

    Errors above the `largest` of interest are not computed, and infinite.
    """
    size = np.linalg.norm(outgoing, axis=0)
    width = feature_count(rows.shape[1])
    few = width <= len(rows) and width**2 * len(rows) <= MOST_QR
    order, factor, scale = (factored_features if few else factored_gram)(rows, size)
    direction = (outgoing / np.where(size == 0, 1.0, size))[:, order]
    errors = np.zeros(len(rows) + 1)
    left, end = 0.0, factor.shape[1]
    while end and scale * np.sqrt(left) <= largest:
        start = max(0, end - TAIL_COLUMNS)
        parts = ((direction[:, start:] @ factor[start:, start:end]) ** 2).sum(axis=0)
        tails = left + np.cumsum(parts[::-1])[::-1]
        errors[start:end] = np.sqrt(tails) * scale
        left, end = float(tails[0]), start
    errors[:end] = np.inf
    return PivotedBasis(order, errors, rows)


def factored_gram(rows: FloatArray, size: FloatArray) -> tuple[Indices, FloatArray, float]:
    """The order, L and the square root of the trace of K, by which L is divided."""
    from scipy.linalg.lapack import dpstrf

    gram = kernel(rows, rows)
    gram *= size[:, None]
    gram *= size
    total = float(np.trace(gram))
    gram /= total or 1.0
    factor, pivots, rank, _ = dpstrf(gram.T, lower=1, tol=-1.0, overwrite_a=1)
    for column in range(1, len(factor)):
        factor[:column, column] = 0.0
    factor[:, rank:] = 0.0
    return pivots.astype(np.intp) - 1, factor, float(np.sqrt(total))


def factored_features(rows: FloatArray, size: FloatArray) -> tuple[Indices, FloatArray, float]:
    """The same from a pivoted QR factorisation of the features: L = Rᵀ, with all digits."""
    from scipy.linalg import qr

    weighted = features(rows)
    weighted *= size[:, None]
    scale = float(np.linalg.norm(weighted)) or 1.0
    weighted /= scale
    factor, order = qr(weighted.T, mode="r", pivoting=True, overwrite_a=True, check_finite=False)
    return order.astype(np.intp), np.asarray(factor).T, scale
