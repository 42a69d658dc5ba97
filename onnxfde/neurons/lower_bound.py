"""The least error that any layer of n′ neurons can have (Eckart–Young).

Output k is the quadratic form Q_k = [[A_k, b_k], [b_kᵀ, free]]. For any layer of n′ neurons the
stack of all [A_k; √2 b_kᵀ], whitened, has rank at most n′. Hence no such layer comes closer to a
layer of norm ‖F‖ than the tail of the singular values σ_1 ≥ σ_2 ≥ … of its stack allows:

    error(n′) ≥ sqrt(2 Σ_{r > n′} σ_r²) / ‖F‖        for n′ ≤ d; nothing is known beyond
"""

from __future__ import annotations

import numpy as np

from onnxfde.neurons.kernels import kernel_diagonal, norm
from onnxfde.numbers import FloatArray

CANCELLED = 1e-7
"""A layer counts as constant if its norm is at most this share of the sum of its neurons' norms.
The norm comes from a Gram matrix, so only half the digits of float64 (1.5e-8) are certain."""
TAIL_ROUNDING = 1e-13
"""What rounding may add to a tail, relative to the sum of all squared singular values: 450
times the machine epsilon. Chosen; not tuned."""


def lower_bounds(rows: FloatArray, outgoing: FloatArray) -> FloatArray:
    """The least relative error of 0, 1, …, d neurons in place of these whitened ones."""
    total = norm(rows, outgoing)
    parts = float(np.linalg.norm(outgoing, axis=0) @ np.sqrt(kernel_diagonal(rows)))
    if not np.isfinite(parts) or total <= CANCELLED * parts:
        return np.zeros(rows.shape[1])
    scaled = rows.copy()
    scaled[:, -1] *= np.sqrt(2)
    weights = rows[:, :-1]
    gram = scaled.T @ (((outgoing.T @ outgoing) * (weights @ weights.T)) @ scaled)
    values = np.sort(np.clip(np.linalg.eigvalsh(gram), 0.0, None))[::-1]
    tails = np.cumsum(values[::-1])[::-1] - TAIL_ROUNDING * values.sum()
    return np.asarray(np.sqrt(2 * np.clip(tails, 0.0, None)) / total)
