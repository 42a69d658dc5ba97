"""The distances without expansion equal those of the expanded polynomials."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from onnxfde.lumping.distance import (
    condensed,
    largest_coefficients,
    square_gaps_max,
    square_gaps_sum,
)
from onnxfde.neurons.layer import Layer
from onnxfde.numbers import FloatArray

values = st.one_of(st.integers(-3, 3).map(float), st.floats(-2, 2, width=32))
pairs_of_rows = st.integers(1, 6).flatmap(lambda d: arrays(float, (2, d), elements=values))


def expanded(a: FloatArray, b: FloatArray) -> FloatArray:
    """Differences of the coefficients of (a·z)² and (b·z)², monomial by monomial."""
    gap = np.outer(a, a) - np.outer(b, b)
    j, k = np.triu_indices(len(a))
    return np.asarray(gap[j, k] * np.where(j == k, 1, 2))


@given(pairs_of_rows)
def test_l1_distance_is_that_of_the_expanded_squares(rows: FloatArray) -> None:
    a, b = rows
    found = square_gaps_sum(a, b[None])
    assert found == pytest.approx(np.abs(expanded(a, b)).sum(), rel=1e-12, abs=1e-12)


@given(pairs_of_rows)
def test_max_distance_is_that_of_the_expanded_squares(rows: FloatArray) -> None:
    a, b = rows
    found = square_gaps_max(a, b[None])
    assert found == pytest.approx(np.abs(expanded(a, b)).max(), rel=1e-12, abs=1e-12)


@given(pairs_of_rows)
def test_backward_distances_ignore_the_sign_of_a_neuron(rows: FloatArray) -> None:
    a, b = rows
    for gaps in (square_gaps_sum, square_gaps_max):
        assert gaps(a, -b[None]) == pytest.approx(gaps(a, b[None]), rel=1e-12, abs=1e-12)


def test_l1_distance_stays_accurate_where_expansion_cancels() -> None:
    a = np.array([1.0, 2.0, 3.0])
    b = a * (1 + 1e-12)
    exact = 2e-12 * np.abs(a).sum() ** 2
    assert square_gaps_sum(a, b[None]) == pytest.approx(exact, rel=1e-3)


def test_pairs_come_in_condensed_order() -> None:
    layer = Layer(np.eye(3), np.array([[0.0, 1.0, 5.0], [0.0, 3.0, 0.0]]), np.zeros(2))
    assert condensed(layer, "forward").tolist() == [3.0, 5.0, 4.0]
    assert condensed(layer, "backward", "sum").tolist() == [2.0, 2.0, 2.0]
    assert condensed(layer, "backward", "max").tolist() == [1.0, 1.0, 1.0]


def test_a_single_neuron_has_no_pairs() -> None:
    assert condensed(Layer(np.ones((1, 2)), np.ones((1, 1)), np.zeros(1)), "forward").size == 0


def test_a_layer_without_inputs_has_distances_of_its_biases() -> None:
    layer = Layer(np.array([[2.0], [-3.0]]), np.ones((1, 2)), np.zeros(1))
    np.testing.assert_array_equal(largest_coefficients(layer, "backward"), [4.0, 9.0])
