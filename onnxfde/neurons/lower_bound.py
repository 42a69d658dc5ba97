"""The least error that any layer of n′ neurons can have (Eckart–Young).

Output k is the quadratic form Q_k = [[A_k, b_k], [b_kᵀ, free]]. For any layer of n′ neurons the
stack of all [A_k; √2 b_kᵀ], whitened, has rank at most n′. Hence no such layer comes closer to a
layer of norm ‖F‖ than the tail of the singular values σ_1 ≥ σ_2 ≥ … of its stack allows:

    error(n′) ≥ sqrt(2 Σ_{r > n′} σ_r²) / ‖F‖        for n′ ≤ d; nothing is known beyond
"""

from __future__ import annotations

import numpy as np

from onnxfde.neurons.kernels import half_tiles, kernel_diagonal
from onnxfde.numbers import FloatArray

CANCELLED = 1e-7
"""A layer counts as constant if its norm is at most this share of the sum of its neurons' norms.
The norm comes from a Gram matrix, so only half the digits of float64 (1.5e-8) are certain."""
TAIL_ROUNDING = 1e-13
"""What rounding may add to a tail, relative to the sum of all squared singular values: 450
times the machine epsilon. Chosen; not tuned."""


def lower_bounds(rows: FloatArray, outgoing: FloatArray, total: float) -> FloatArray:
    """The least relative error of 0, 1, …, d neurons in place of these whitened ones.

    `total` is ‖F‖.
    """
    parts = float(np.linalg.norm(outgoing, axis=0) @ np.sqrt(kernel_diagonal(rows)))
    if not np.isfinite(parts) or total <= CANCELLED * parts:
        return np.zeros(rows.shape[1])
    scaled = rows.copy()
    scaled[:, -1] *= np.sqrt(2)
    values = np.sort(np.clip(np.linalg.eigvalsh(stack_gram(rows, outgoing, scaled)), 0.0, None))
    values = values[::-1]
    tails = np.cumsum(values[::-1])[::-1] - TAIL_ROUNDING * values.sum()
    return np.asarray(np.sqrt(2 * np.clip(tails, 0.0, None)) / total)


def stack_gram(rows: FloatArray, outgoing: FloatArray, scaled: FloatArray) -> FloatArray:
    """The stack times its transpose: Σ_ij (V_i·V_j) (w_i·w_j) s_i s_jᵀ, s = (w, √2 b).

    Output by output where that takes fewer products: Σ_k S_k S_kᵀ, S_k = Σ_i V_ki s_i w_iᵀ.
    """
    weights, (count, width) = rows[:, :-1], rows.shape
    if len(outgoing) * width < count:
        stacks = ((scaled * own[:, None]).T @ weights for own in outgoing)
        return np.asarray(sum(stack @ stack.T for stack in stacks))
    product = np.zeros(rows.shape)
    for i, j, _ in half_tiles(count):
        block = outgoing[:, i].T @ outgoing[:, j]
        block *= weights[i] @ weights[j].T
        product[i] += block @ scaled[j]
        if i != j:
            product[j] += block.T @ scaled[i]
    return np.asarray(scaled.T @ product)
