"""Completed square."""

from __future__ import annotations

import numpy as np

from onnxfde.neurons.lower_bound import RANK_TOLERANCE
from onnxfde.neurons.objective import summed
from onnxfde.numbers import FloatArray


def eigen_neurons(rows: FloatArray, outgoing: FloatArray) -> FloatArray:
    """Whitened rows whose squares span every output exactly, output by output."""
    return np.vstack([completed_square(summed(rows, own[None])[0]) for own in outgoing])


def completed_square(form: FloatArray) -> FloatArray:
    """The fewest rows for one quadratic form with a free corner."""
    matrix, linear = form[:-1, :-1], form[:-1, -1]
    values, vectors = np.linalg.eigh(matrix)
    large = np.abs(values) > RANK_TOLERANCE * np.abs(values).max(initial=0.0)
    along = vectors.T @ linear
    if np.linalg.norm(along[~large]) <= RANK_TOLERANCE * np.linalg.norm(along):
        shift = along[large] / values[large]
        return np.column_stack([vectors[:, large].T, shift])
    values, vectors = np.linalg.eigh(form)
    large = np.abs(values) > RANK_TOLERANCE * np.abs(values).max(initial=0.0)
    return np.asarray(vectors[:, large].T)
