"""Systems with matrices that are symmetric and, up to rounding, positive: A = LLᵀ.

Functions take their matrix over and spoil it, so that no second one of that size is needed. scipy,
whose import takes 0.1 s, is used for large matrices only.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt

from onnxfde.numbers import Array, FloatArray, Indices

LARGE = 1024
"""Unknowns from which on scipy is used. Chosen; not tuned."""
LARGE_PIVOTED = 256
"""The same for pivoted factorisations, of which numpy has none. Chosen; not tuned."""
MIRRORED_ROWS = 256
"""Rows that are copied at a time, of blocks that fit into a cache. Chosen; not tuned."""
FIRST_SHIFT = 450
"""What is added to the diagonal if rounding makes A indefinite, in machine epsilons of its largest
element, and ten times more each time that is not enough: 1e-13 in float64. Chosen; not tuned."""


def solve_positive(matrix: FloatArray, right: FloatArray) -> FloatArray:
    """A⁻¹ `right`."""
    if len(matrix) < LARGE:
        return np.asarray(np.linalg.solve(matrix, right))
    from scipy.linalg.lapack import dpotrs

    return np.asarray(dpotrs(factor(matrix), right, lower=1)[0])


def inverse_positive(matrix: FloatArray) -> FloatArray:
    """A⁻¹."""
    if len(matrix) < LARGE:
        return np.asarray(np.linalg.inv(matrix))
    found, _ = lapack("potri", matrix.dtype)(factor(matrix), lower=1, overwrite_c=1)
    return symmetric_of(found.T)


def subtract_square(matrix: FloatArray, lines: FloatArray) -> None:
    """A − XᵀX in place of A; in large matrices without another one of that size."""
    if len(matrix) < LARGE:
        matrix -= lines.T @ lines
    else:
        product: Any = import_module("scipy.linalg.blas").dgemm
        found = product(-1.0, lines.T, lines.T, beta=1.0, c=matrix.T, trans_b=1, overwrite_c=1)
        if not np.may_share_memory(found, matrix):
            matrix[...] = found


def symmetric_of(upper: Array) -> Array:
    """A symmetric matrix of what is on and above its diagonal; nothing else is looked at."""
    for first in range(0, len(upper), MIRRORED_ROWS):
        rows = slice(first, first + MIRRORED_ROWS)
        upper[rows, :first] = upper[:first, rows].T
        square = upper[rows, rows]
        square[...] = np.triu(square) + np.triu(square, 1).T
    return upper


def solve_half(matrix: Array, right: Array) -> Array:
    """L⁻¹ `right`, whose squares add up to `right`ᵀ A⁻¹ `right`."""
    return solve_lower(factor(matrix), right)


def solve_lower(lower: Array, right: Array) -> Array:
    """L⁻¹ `right`; in large matrices what is above the diagonal of L is not looked at."""
    if len(lower) < LARGE:
        return np.asarray(np.linalg.solve(lower, right))
    from scipy.linalg import solve_triangular

    return np.asarray(solve_triangular(lower, right, lower=True, check_finite=False))


def pivoted_factor(matrix: Array, least: float) -> tuple[Indices, Array]:
    """Rows that are independent of those before them, the most independent first, and their L.

    It ends where at most `least` of every diagonal element is left.
    """
    if len(matrix) < LARGE_PIVOTED:
        return pivoted_steps(matrix, least)
    factorise = lapack("pstrf", matrix.dtype)
    found, pivots, rank, _ = factorise(matrix.T, lower=1, tol=least, overwrite_a=1)
    return pivots[:rank].astype(np.intp) - 1, np.tril(found[:rank, :rank])


def pivoted_steps(matrix: Array, least: float) -> tuple[Indices, Array]:
    """The same column by column."""
    lower, left = np.zeros_like(matrix), np.diag(matrix).copy()
    order: list[int] = []
    for column in range(len(matrix)):
        r = int(np.argmax(left))
        if not left[r] > least:
            break
        line = (matrix[r] - lower[:, :column] @ lower[r, :column]) / np.sqrt(left[r])
        lower[:, column] = line
        left -= line * line
        left[r] = -np.inf
        order.append(r)
    return np.array(order, dtype=np.intp), np.tril(lower[order, : len(order)])


def factor(matrix: Array) -> Array:
    """L, on and below the diagonal; in large matrices what is above has no meaning."""
    diagonal, shift = np.diag(matrix).copy(), 0.0
    while True:
        try:
            return cholesky(matrix)
        except np.linalg.LinAlgError:
            if not np.isfinite(diagonal).all():
                raise
            shift = max(
                10 * shift, FIRST_SHIFT * float(np.finfo(matrix.dtype).eps * diagonal.max())
            )
            matrix = np.tril(matrix, -1)
            matrix += matrix.T
            matrix[np.diag_indices(len(matrix))] = diagonal + shift


def cholesky(matrix: Array) -> Array:
    """L; LinAlgError if the matrix is not positive. What is below its diagonal is left as it is."""
    if len(matrix) < LARGE:
        return np.asarray(np.linalg.cholesky(matrix))
    found, fault = lapack("potrf", matrix.dtype)(matrix.T, lower=1, clean=0, overwrite_a=1)
    if fault:
        raise np.linalg.LinAlgError("the matrix is not positive")
    return np.asarray(found)


def lapack(name: str, dtype: npt.DTypeLike) -> Callable[..., Any]:
    """A function of LAPACK for a type."""
    library: Any = import_module("scipy.linalg.lapack")
    (function,) = library.get_lapack_funcs((name,), dtype=dtype)
    return function  # type: ignore[no-any-return]
