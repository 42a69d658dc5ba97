"""Which of some neurons to drop: that of least weight goes, one after the other.

A layer F is fitted by neurons with the Gram matrix G and the products T with the layer, by the
outgoing weights W = T G⁻¹. Without neuron r, and fitted again, error² is larger by exactly

    ‖w_r‖² / [G⁻¹]_rr.

The inverse without the neuron is the Schur complement. So one inverse gives the errors of all
counts.
"""

from __future__ import annotations

import numpy as np

from onnxfde.neurons.greedy_steps import best_pool, greedy_steps, steps_per_block
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

    Those that are left come first in the order, then those that were dropped, the last of them first.
    """
    kept, inverse = independent(neurons)
    least, size = min(least, len(kept)), len(kept)
    weights = neurons.target[:, kept] @ inverse
    dropped: list[Indices] = []
    changes: list[FloatArray] = []
    while size > least:
        allowed = min(size - least, steps_per_block(len(kept)))
        diagonal = np.diagonal(inverse)
        free = diagonal > 0
        squares = np.einsum("ij,ij->j", weights, weights)
        gains = np.where(free, -squares / np.where(free, diagonal, 1.0), -np.inf)
        pool, bound = best_pool(gains)
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
    first = fitted_errors(neurons.only(left))
    later = np.concatenate([left[:0], *dropped])[::-1]
    fall = np.concatenate([np.zeros(0), *changes])[::-1].cumsum()
    errors = np.sqrt(np.maximum(first[-1] ** 2 - fall, 0.0))
    return Selection(np.concatenate([left, later]), np.concatenate([first, errors]))


def fitted_errors(neurons: CandidateNeurons) -> FloatArray:
    """The error of the first k neurons for every k; they must be linearly independent."""
    from scipy.linalg import solve_triangular

    root = np.linalg.cholesky(kernel(neurons.rows, neurons.rows))
    explained = solve_triangular(root, neurons.target.T, lower=True, check_finite=False)
    falls = np.einsum("ij,ij->i", explained, explained, dtype=np.float64).cumsum()
    return np.sqrt(np.maximum(neurons.total**2 - np.append(0.0, falls), 0.0))


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
    from scipy.linalg.lapack import dpstrf, dtrtri

    gram = kernel(neurons.rows, neurons.rows)
    factor, pivots, rank, _ = dpstrf(gram.T, lower=1, tol=INDEPENDENT_SHARE, overwrite_a=1)
    root, _ = dtrtri(np.tril(factor[:rank, :rank]), lower=1, overwrite_c=1)
    return pivots[:rank].astype(np.intp) - 1, root.T @ root
