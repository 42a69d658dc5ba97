"""One candidate after the other, within a pool of the best.

Adding a neuron and dropping one are the same step, on other matrices (`selection`, `elimination`):
candidate r changes the squared error by ‖x_r‖² / A_rr, and taking it turns

    A into A − l lᵀ,   X into X − x_r lᵀ / √A_rr,   l = A_:r / √A_rr.

Within a pool of the best candidates the steps are exact. They go on for as long as they are better
than the best candidate outside the pool was before; then all others follow by matrix products.
"""

from __future__ import annotations

import numpy as np

from onnxfde.numbers import FloatArray, Indices

FEW_CANDIDATES = 1024
"""Up to so many candidates all of them follow after every step, which takes little time then,
unless more neurons than this are kept in any case. Chosen; not tuned."""
STEPS = 64
"""The most steps in a block, where there are more."""
POOL = 128
"""How many candidates are compared for them. With both, errors are within 0.1 % of those of single
steps on layers of 1,024 neurons, and within 2.5 % on most smaller ones (benchmarks/engines.md).
Pools of 256 took longer and were no better."""
STEP_ROUNDOFF = 64 * float(np.finfo(np.float64).eps)
"""A candidate of whose A_rr less than this share is left is a combination of those taken: what is
left may be rounding. Chosen; not tuned."""


def steps_per_block(candidates: int) -> int:
    """The most steps to take before all candidates follow."""
    return 1 if candidates <= FEW_CANDIDATES else STEPS


def best_pool(gains: FloatArray, steps: int, pool: int = POOL) -> tuple[Indices, float]:
    """The candidates of largest gain, best first, and the largest gain outside of these."""
    size = 1 if steps == 1 else pool
    ranked = np.argsort(-gains, kind="stable")[: size + 1]
    bound = float(gains[ranked[size]]) if len(ranked) > size else -np.inf
    return ranked[:size], bound


def greedy_steps(
    matrix: FloatArray,
    vectors: FloatArray,
    most: int,
    bound: float,
    negligible: float,
    sign: int = 1,
) -> tuple[Indices, FloatArray]:
    """Take the candidates of largest `sign` · ‖x_r‖² / A_rr, and return them with ‖x_r‖² / A_rr.

    Up to `most`; after the first, only while `sign` times it is at least the bound. Those with
    A_rr up to `negligible` are never taken.
    """
    matrix, products = matrix.copy(), vectors.T @ vectors
    least = np.maximum(STEP_ROUNDOFF * np.diagonal(matrix), negligible)
    taken: list[int] = []
    changes: list[float] = []
    while len(taken) < most:
        diagonal = np.diagonal(matrix)
        free = diagonal > least
        score = np.where(free, sign * np.diagonal(products) / np.where(free, diagonal, 1), -np.inf)
        r = int(np.argmax(score))
        if score[r] == -np.inf or (taken and score[r] < bound):
            break
        taken.append(r)
        changes.append(max(float(sign * score[r]), 0.0))
        line = matrix[r] / np.sqrt(matrix[r, r])
        shift = products[r] / np.sqrt(matrix[r, r]) - products[r, r] / matrix[r, r] / 2 * line
        products -= np.outer(shift, line)
        products -= np.outer(line, shift)
        matrix -= np.outer(line, line)
        least[r] = np.inf
    return np.array(taken, dtype=np.intp), np.array(changes)
