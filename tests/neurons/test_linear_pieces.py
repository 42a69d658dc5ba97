"""Which pieces of activations are straight, and which neurons never leave one."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onnxfde.neurons.activation import Activation
from onnxfde.neurons.layer import Layer
from onnxfde.neurons.linear_pieces import straight_neurons, straight_pieces
from onnxfde.neurons.piecewise_activations import RELU, thresholded_relu
from tests.neurons.activation_rows import ALL_ROWS, unit_parameters

STRAIGHT_ROWS = [row for row in ALL_ROWS.values() if straight_pieces(row)]


@pytest.mark.parametrize("row", ALL_ROWS.values(), ids=lambda row: row.title)
def test_the_straight_pieces_between_kinks_are_those_of_constant_slope(row: Activation) -> None:
    ends = (-np.inf, *row.kinks, np.inf)
    listed = {(piece.low, piece.high) for piece in straight_pieces(row)}
    for low, high in pairwise(ends):
        inside = np.linspace(max(low, -6.0), min(high, 6.0), 9)[1:-1]
        slopes = row.slope(inside, *unit_parameters(row, 1))
        assert ((low, high) in listed) == bool(np.ptp(slopes) <= 1e-12)


@pytest.mark.parametrize("row", STRAIGHT_ROWS, ids=lambda row: row.title)
@settings(max_examples=6)
@given(st.integers(0, 2**32))
def test_neurons_on_a_straight_piece_are_the_line_that_is_said(row: Activation, seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(8, 3)) * rng.choice([0.1, 1.0], (8, 1))
    rows[:, -1] += rng.choice([-4.0, 0.0, 4.0], 8)
    layer = Layer(rows, np.eye(8), np.zeros(8), row, unit_parameters(row, 8))
    low = rng.normal(size=2)
    box = low, low + rng.exponential(size=2)
    slope, intercept = straight_neurons(layer, box)
    known = ~np.isnan(slope)
    x = np.vstack([rng.uniform(*box, size=(20, 2)), *box])
    before = x @ rows[:, :-1].T + rows[:, -1]
    np.testing.assert_allclose(
        layer.hidden(x)[:, known], (slope * before + intercept)[:, known], rtol=1e-9, atol=1e-9
    )


def neuron(weights: list[float], activation: Activation = RELU) -> Layer:
    return Layer(np.array([weights]), np.ones((1, 1)), np.zeros(1), activation)


def test_without_a_box_no_kink_is_out_of_reach() -> None:
    assert np.isnan(straight_neurons(neuron([1.0, 1e30]), None)[0]).all()


def test_ends_that_touch_a_kink_are_decided_without_rounding() -> None:
    box = np.array([-0.1, -0.2]), np.array([0.3, 0.7])
    touching = float(np.float64(0.1)) + 0.2
    assert touching != 0.3
    least = neuron([1.0, 1.0, touching])
    assert straight_neurons(least, box)[0] == [1.0]
    below = neuron([1.0, 1.0, float(np.nextafter(touching, 0.0))])
    assert np.isnan(straight_neurons(below, box)[0]).all()


def test_where_a_function_jumps_only_the_lower_piece_has_the_end() -> None:
    box = np.array([0.0]), np.array([1.0])
    assert straight_neurons(neuron([1.0, 0.0], thresholded_relu(1.0)), box)[0] == [0.0]
    assert np.isnan(straight_neurons(neuron([1.0, 1.0], thresholded_relu(1.0)), box)[0]).all()
