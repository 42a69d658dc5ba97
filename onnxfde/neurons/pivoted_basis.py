"""The order of neurons from the most to the least linearly independent.

    K_ij = ‖V_i‖ ‖V_j‖ kernel(u_i, u_j) = LLᵀ         Cholesky, largest residual first

Each neuron is the one that contributes most beyond those before it. If the first k are kept and
their outgoing weights refitted, the error is exactly ‖W L[:, k:]‖, where W has the columns
V_i / ‖V_i‖ in the same order. It is 0 from the rank of K on: the neurons left out are then linear
combinations of those kept.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from onnxfde.neurons.kernels import kernel, kernel_scale
from onnxfde.numbers import Blocks, FloatArray, Indices


@dataclass(frozen=True, eq=False)
class PivotedBasis:
    """Neurons from the most to the least independent, and the error of keeping the first k."""

    order: Indices
    errors: FloatArray
    rows: FloatArray

    def cut(self, count: int) -> tuple[Indices, Blocks]:
        """The neurons to keep, and the block of each: those most correlated with it."""
        kept = np.sort(self.order[:count])
        scale = kernel_scale(self.rows)
        likeness = np.abs(kernel(self.rows, self.rows[kept])) / scale[:, None] / scale[kept]
        likeness[kept, np.arange(count)] = np.inf
        home = likeness.argmax(axis=1)
        blocks = (np.flatnonzero(home == i) for i in range(count))
        return kept, tuple(tuple(int(j) for j in block) for block in blocks)


def pivoted_basis(rows: FloatArray, outgoing: FloatArray) -> PivotedBasis:
    """Order whitened neurons by what each contributes beyond those before it."""
    from scipy.linalg.lapack import dpstrf

    size = np.linalg.norm(outgoing, axis=0)
    gram = kernel(rows, rows) * size[:, None] * size
    total = np.trace(gram)
    factor, pivots, rank, _ = dpstrf(gram / (total or 1.0), lower=1, tol=-1.0)
    order = pivots.astype(np.intp) - 1
    factor = np.tril(factor)
    factor[:, rank:] = 0.0
    direction = outgoing / np.where(size == 0, 1.0, size)
    per_column = ((direction[:, order] @ factor) ** 2).sum(axis=0)
    tail = np.concatenate([np.cumsum(per_column[::-1])[::-1], [0.0]])
    return PivotedBasis(order, np.sqrt(tail * total), rows)
