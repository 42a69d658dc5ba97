"""Systems with matrices that are symmetric and, up to rounding, positive: A = LLᵀ.

Functions take their matrix over and spoil it, so that no second one of that size is needed. scipy,
whose import takes 0.1 s, is used for large matrices only.
"""

from __future__ import annotations

import numpy as np

from onnxfde.numbers import FloatArray

LARGE = 512
"""Unknowns from which on scipy is used. Chosen; not tuned."""
FIRST_SHIFT = 1e-13
"""What is added to the diagonal, relative to its largest element, if rounding makes A indefinite,
and ten times more each time that is not enough: 450 times float64's machine epsilon."""


def solve_positive(matrix: FloatArray, right: FloatArray) -> FloatArray:
    """A⁻¹ `right`."""
    if len(matrix) < LARGE:
        return np.asarray(np.linalg.solve(matrix, right))
    from scipy.linalg.lapack import dpotrs

    return np.asarray(dpotrs(factor(matrix), right, lower=1)[0])


def solve_half(matrix: FloatArray, right: FloatArray) -> FloatArray:
    """L⁻¹ `right`, whose squares add up to `right`ᵀ A⁻¹ `right`."""
    lower = factor(matrix)
    if len(lower) < LARGE:
        return np.asarray(np.linalg.solve(lower, right))
    from scipy.linalg.blas import dtrsm

    return np.asarray(dtrsm(1.0, lower, right, lower=1))


def factor(matrix: FloatArray) -> FloatArray:
    """L, on and below the diagonal; in large matrices what is above has no meaning."""
    diagonal, shift = np.diag(matrix).copy(), 0.0
    while True:
        try:
            return cholesky(matrix)
        except np.linalg.LinAlgError:
            shift = max(10 * shift, FIRST_SHIFT * float(diagonal.max()))
            matrix = np.tril(matrix, -1)
            matrix += matrix.T
            matrix[np.diag_indices(len(matrix))] = diagonal + shift


def cholesky(matrix: FloatArray) -> FloatArray:
    """L; LinAlgError if the matrix is not positive. What is below its diagonal is left as it is."""
    if len(matrix) < LARGE:
        return np.asarray(np.linalg.cholesky(matrix), dtype=np.float64)
    from scipy.linalg.lapack import dpotrf

    found, fault = dpotrf(matrix.T, lower=1, clean=0, overwrite_a=1)
    if fault:
        raise np.linalg.LinAlgError("the matrix is not positive")
    return np.asarray(found)
