"""Systems with positive matrices, small and large ones."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pytest

from onnxfde.neurons import positive_matrices
from onnxfde.neurons.positive_matrices import (
    inverse_positive,
    pivoted_factor,
    solve_half,
    solve_positive,
    subtract_square,
)
from onnxfde.numbers import FloatArray


@pytest.fixture(params=["numpy", "scipy"], autouse=True)
def library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    for limit in ("LARGE", "LARGE_PIVOTED"):
        monkeypatch.setattr(positive_matrices, limit, 1000 if request.param == "numpy" else 1)


def positive(size: int, rank: int) -> FloatArray:
    rows = np.random.default_rng(0).normal(size=(size, rank))
    return np.asarray(rows @ rows.T)


def test_systems_are_solved() -> None:
    matrix, right = positive(12, 20), np.random.default_rng(1).normal(size=(12, 3))
    wanted = np.linalg.solve(matrix, right)
    np.testing.assert_allclose(solve_positive(matrix.copy(), right), wanted, rtol=1e-9, atol=1e-9)
    half = solve_half(matrix.copy(), right)
    np.testing.assert_allclose(half.T @ half, right.T @ wanted, rtol=1e-9, atol=1e-9)


def test_a_matrix_that_is_singular_up_to_rounding_is_no_obstacle() -> None:
    matrix = positive(30, 10)
    right = matrix[:, :2]
    half = solve_half(matrix.copy(), right)
    np.testing.assert_allclose(half.T @ half, matrix[:2, :2], rtol=1e-4)


def test_independent_rows_are_found_and_factored() -> None:
    matrix = positive(30, 10)
    order, lower = pivoted_factor(matrix.copy(), 1e-9)
    assert len(order) == 10
    assert order[0] == np.argmax(np.diag(matrix))
    np.testing.assert_allclose(lower @ lower.T, matrix[np.ix_(order, order)], rtol=1e-9)


def test_a_matrix_is_inverted() -> None:
    matrix = positive(300, 400)
    found = inverse_positive(matrix.copy())
    np.testing.assert_allclose(found @ matrix, np.eye(300), rtol=0, atol=1e-9)
    np.testing.assert_allclose(found, found.T, rtol=0, atol=1e-12)


@pytest.mark.parametrize("order", ["C", "F"])
def test_a_square_is_subtracted_in_place(order: Literal["C", "F"]) -> None:
    matrix, lines = positive(12, 20), np.random.default_rng(1).normal(size=(3, 12))
    found = np.array(matrix, order=order)
    subtract_square(found, lines)
    np.testing.assert_allclose(found, matrix - lines.T @ lines, rtol=0, atol=1e-12)
