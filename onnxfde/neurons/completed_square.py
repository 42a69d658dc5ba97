"""Neurons that reproduce a layer exactly, output by output: eigenvectors of its quadratic forms.

One output is o = zᵀQz with Q = [[A, b], [bᵀ, free]], since a constant can move into the offset.
From the eigenpairs A = Σ λ_i e_i e_iᵀ and Q = Σ μ_i g_i g_iᵀ (with the free corner 0),

    o = const + Σ λ_i (e_i·x + (e_i·b)/λ_i)²        if b lies in the range of A: rank A neurons
    o = const + Σ μ_i (g_i·z)²                      in any case: at most d + 1 neurons

A layer of several outputs takes the neurons of each.
"""

from __future__ import annotations

import numpy as np

from onnxfde.neurons.objective import summed
from onnxfde.numbers import FloatArray

EIGEN_TOLERANCE = 1e-9
"""Eigenvalues below this share of the largest count as 0, and so does the part of b outside the
range of A below this share of b. Chosen well above float64 rounding; not tuned."""


def eigen_neurons(rows: FloatArray, outgoing: FloatArray, most: float = np.inf) -> FloatArray:
    """Whitened rows whose squares span every output exactly, output by output.

    It stops where there are `most` of them or more.
    """
    found: list[FloatArray] = []
    for own in outgoing:
        found.append(completed_square(summed(rows, own[None])[0]))
        if sum(map(len, found)) >= most:
            break
    return np.vstack(found)


def completed_square(form: FloatArray) -> FloatArray:
    """The fewest rows for one quadratic form with a free corner."""
    matrix, linear = form[:-1, :-1], form[:-1, -1]
    values, vectors = np.linalg.eigh(matrix)
    large = np.abs(values) > EIGEN_TOLERANCE * np.abs(values).max(initial=0.0)
    along = vectors.T @ linear
    if np.linalg.norm(along[~large]) <= EIGEN_TOLERANCE * np.linalg.norm(along):
        shift = along[large] / values[large]
        return np.column_stack([vectors[:, large].T, shift])
    values, vectors = np.linalg.eigh(form)
    large = np.abs(values) > EIGEN_TOLERANCE * np.abs(values).max(initial=0.0)
    return np.asarray(vectors[:, large].T)
