"""What eigenvalues say about a layer: neurons that lose nothing, and how few could ever do.

*Completed square.* One output, o = zᵀQz with Q = [[A, b], [bᵀ, free]]: from A = Σ λ_i e_i e_iᵀ

    o = const + Σ λ_i (e_i·x + (e_i·b)/λ_i)²        if b lies in the range of A: rank A neurons
    o = const + Σ μ_i (g_i·z)²                      in any case, the eigenpairs of Q: at most d + 1

Several outputs take those of each. *Lower bound* (Eckart–Young): the stack of all
[A_k; √2 b_kᵀ] has rank at most n′ for any layer of n′ neurons, so in the metric no such layer comes
closer than √2 times the tail of the stack's singular values,

    error(n′) ≥ sqrt(2 Σ_{r > n′} σ_r²) / ‖F‖,      nothing for n′ ≥ d + 1.
"""

from __future__ import annotations

import numpy as np

from onnxfde.neurons.kernels import Metric, kernel_diagonal, norm
from onnxfde.neurons.layer import Layer
from onnxfde.numbers import FloatArray

RANK_TOLERANCE = 1e-9
CANCELLED = 1e-7
"""A layer whose neurons cancel to this share of what they are is constant, for all we can see."""
SLACK = 1e-13
"""What rounding may do to a sum of squared singular values, relative to all of them."""


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
    tails = np.cumsum(values[::-1])[::-1] - SLACK * values.sum()
    return np.asarray(np.sqrt(2 * np.clip(tails, 0.0, None)) / total)


def lower_bound(metric: Metric, layer: Layer, count: int) -> float | None:
    """The least error that `count` neurons can have, None where nothing is known of it."""
    if count > layer.inputs:
        return None
    alive = layer.without_constants()
    return float(lower_bounds(metric.whiten(alive.incoming), alive.outgoing)[count])
