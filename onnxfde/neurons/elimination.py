"""Which of some neurons to drop: that of least weight goes, one after the other.

A layer F is fitted by neurons with the Gram matrix G and the products T with the layer, by the
outgoing weights W = T G⁻¹. Without neuron r, and fitted again, error² is larger by exactly

    ‖w_r‖² / [G⁻¹]_rr.

The inverse without the neuron is the Schur complement. So one inverse gives the errors of all
counts.
"""

from __future__ import annotations

import numpy as np

from onnxfde.neurons.greedy_steps import best_pool, greedy_steps, per_block
from onnxfde.neurons.kernels import kernel
from onnxfde.neurons.selection import CandidateNeurons, Selection
from onnxfde.numbers import FloatArray, Indices
from onnxfde.progress import Progress

INDEPENDENT_SHARE = 1e-11
"""Only neurons are kept of whose ‖φ‖² at least this share is independent of those before them, so
that the inverse has some certain digits. Chosen; not tuned."""
SHRINK_BELOW = 0.75
"""The inverse is made smaller once at most this share of it is in use. Chosen; not tuned."""


def eliminate(
    neurons: CandidateNeurons, least: int, progress: Progress | None = None
) -> Selection:
    """Drop one after the other until `least` are left.

    The order has those that are left first, as selection orders them, then those that were dropped,
    the last of them first.
    """
    kept, inverse = independent(neurons)
    least, size = min(least, len(kept)), len(kept)
    weights = neurons.target[:, kept] @ inverse
    dropped: list[Indices] = []
    changes: list[FloatArray] = []
    while size > least:
        allowed = min(size - least, per_block(size))
        diagonal = np.diagonal(inverse)
        free = diagonal > 0
        squares = np.einsum("ij,ij->j", weights, weights)
        gains = np.where(free, -squares / np.where(free, diagonal, 1.0), -np.inf)
        pool, bound = best_pool(gains, allowed)
        some = inverse[np.ix_(pool, pool)]
        chosen, change = greedy_steps(some, weights[:, pool], allowed, bound, 0.0, sign=-1)
        gone = pool[chosen]
        drop(inverse, weights, gone)
        dropped.append(kept[gone])
        changes.append(change)
        size -= len(gone)
        if size <= SHRINK_BELOW * len(kept):
            live = np.flatnonzero(np.diagonal(inverse) > 0)
            kept, inverse, weights = kept[live], inverse[np.ix_(live, live)], weights[:, live]
        if progress is not None:
            progress.at(len(neurons.rows) - size, len(neurons.rows) - least)
    left = np.sort(kept[np.diagonal(inverse) > 0])
    first = neurons.only(left).select(least)
    later = np.concatenate([first.order[:0], *dropped])[::-1]
    fall = np.concatenate([np.zeros(0), *changes])[::-1].cumsum()
    errors = np.sqrt(np.maximum(first.errors[-1] ** 2 - fall, 0.0))
    return Selection(
        np.concatenate([left[first.order], later]), np.concatenate([first.errors, errors])
    )


def drop(inverse: FloatArray, weights: FloatArray, gone: Indices) -> None:
    """Fit the others again; the rows and columns of those that are gone become 0."""
    from scipy.linalg import solve_triangular

    root = np.linalg.cholesky(inverse[np.ix_(gone, gone)])
    lines = solve_triangular(root, inverse[gone], lower=True, check_finite=False)
    weights -= solve_triangular(root, weights[:, gone].T, lower=True, check_finite=False).T @ lines
    inverse -= lines.T @ lines
    inverse[gone] = inverse[:, gone] = weights[:, gone] = 0.0


def independent(neurons: CandidateNeurons) -> tuple[Indices, FloatArray]:
    """Linearly independent neurons, and the inverse of their Gram matrix."""
    from scipy.linalg.lapack import dpotri, dpstrf

    gram = kernel(neurons.rows, neurons.rows)
    factor, pivots, rank, _ = dpstrf(gram, lower=1, tol=INDEPENDENT_SHARE, overwrite_a=1)
    inverse, _ = dpotri(factor[:rank, :rank], lower=1)
    inverse = np.tril(inverse) + np.tril(inverse, -1).T
    return pivots[:rank].astype(np.intp) - 1, inverse
