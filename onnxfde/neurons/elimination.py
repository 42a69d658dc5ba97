"""Which of some neurons to drop: that of least weight goes, one after the other.

A layer F is fitted by neurons with the Gram matrix G and the products T with the layer, by the
outgoing weights W = T G⁻¹. Without neuron r, and fitted again, error² is larger by exactly

    ‖w_r‖² / [G⁻¹]_rr.

The inverse without the neuron is the Schur complement. So one inverse gives the errors of all
counts.
"""

from __future__ import annotations

import numpy as np

from onnxfde.neurons.candidates import CandidateNeurons
from onnxfde.neurons.given_candidates import GivenCandidates
from onnxfde.neurons.greedy_steps import best_pool, greedy_steps, steps_per_block
from onnxfde.neurons.positive_matrices import solve_lower
from onnxfde.neurons.selection import Selection
from onnxfde.numbers import FloatArray, Indices
from onnxfde.progress import Progress

SHRINK_BELOW = 0.75
"""The inverse is made smaller once at most this share of it is in use. Chosen; not tuned."""


def eliminate(
    neurons: CandidateNeurons | GivenCandidates, least: int, progress: Progress | None = None
) -> Selection:
    """Drop one after the other until `least` are left.

    Those that are left come first in the order, then those that were dropped, the last of them
    first. Neurons that are combinations of others are not in it.
    """
    kept, inverse = inverse_gram(neurons)
    size = len(kept)
    weights = np.asarray(neurons.target[:, kept] @ inverse, dtype=np.float64)
    dropped: list[Indices] = []
    rises: list[FloatArray] = []
    while size > least:
        gone, rise = next_to_drop(inverse, weights, min(size - least, steps_per_block(len(kept))))
        drop(inverse, weights, gone)
        dropped.append(kept[gone])
        rises.append(rise)
        size -= len(gone)
        if size <= SHRINK_BELOW * len(kept):
            live = np.flatnonzero(np.diagonal(inverse) > 0)
            kept, inverse, weights = kept[live], inverse[np.ix_(live, live)], weights[:, live]
        if progress is not None:
            progress.at(neurons.count - size, neurons.count - least)
    left = np.sort(kept[np.diagonal(inverse) > 0])
    first, errors = neurons.only(left).fit_in_order()
    order = np.concatenate([left[first], *(gone[::-1] for gone in reversed(dropped))])
    falls = np.concatenate([np.zeros(0), *(rise[::-1] for rise in reversed(rises))]).cumsum()
    later = np.sqrt(np.maximum(errors[-1] ** 2 - falls, 0.0))
    return Selection(order, np.concatenate([errors, later]))


def next_to_drop(inverse: FloatArray, weights: FloatArray, most: int) -> tuple[Indices, FloatArray]:
    """The neurons of least ‖w_r‖² / [G⁻¹]_rr, and by how much error² rises with each."""
    diagonal = np.diagonal(inverse)
    free = diagonal > 0
    squares = np.einsum("ij,ij->j", weights, weights)
    pool, bound = best_pool(np.where(free, -squares / np.where(free, diagonal, 1.0), -np.inf), most)
    some = inverse[np.ix_(pool, pool)]
    chosen, rises = greedy_steps(some, weights[:, pool], most, bound, 0.0, sign=-1)
    return pool[chosen], rises


def drop(inverse: FloatArray, weights: FloatArray, gone: Indices) -> None:
    """Fit the others again; the rows and columns of those that are gone become 0."""
    lines, shares = falls_without(inverse, weights, gone)
    weights -= shares @ lines
    inverse -= lines.T @ lines
    inverse[gone] = inverse[:, gone] = weights[:, gone] = 0.0


def falls_without(
    inverse: FloatArray, weights: FloatArray, gone: Indices
) -> tuple[FloatArray, FloatArray]:
    """X and Y such that, when some are gone, the inverse falls by XᵀX and the weights by Y X."""
    root = np.linalg.cholesky(inverse[np.ix_(gone, gone)])
    return solve_lower(root, inverse[gone]), solve_lower(root, weights[:, gone].T).T


def inverse_gram(neurons: CandidateNeurons | GivenCandidates) -> tuple[Indices, FloatArray]:
    """Independent neurons, and the inverse of their Gram matrix."""
    kept, root = neurons.independent()
    inverse_root = solve_lower(root, np.eye(len(root)))
    return kept, inverse_root.T @ inverse_root
