"""Polynomials of degree 2 as activations, and the layers of squares they equal."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onnxfde.neurons.kernels import Metric
from onnxfde.neurons.layer import Layer
from onnxfde.neurons.quadratics import (
    SQUARE_COST,
    Quadratic,
    completed_layer,
    recentred,
    spelled_layer,
    spelled_magnitude,
    square_cost,
)
from onnxfde.numbers import FloatArray
from tests.strategies import layers

X = np.random.default_rng(0).uniform(-1, 1, (100, 4))
SEEDS = st.integers(0, 2**32 - 1)


def drawn(seed: int, features: int) -> Quadratic:
    rng = np.random.default_rng(seed)
    a, b, c = rng.uniform(0.5, 2, (3, features)) * rng.choice([-1, 1], (3, features))
    return Quadratic(a, b, c)


def spelled_outputs(layer: Layer, p: Quadratic, x: FloatArray) -> FloatArray:
    hidden = p(x @ layer.incoming[:, :-1].T + layer.incoming[:, -1])
    return np.asarray(hidden @ layer.outgoing.T + layer.offset)


@settings(max_examples=40, deadline=None)
@given(layers(), SEEDS)
def test_completing_the_square_and_spelling_it_out_again(layer: Layer, seed: int) -> None:
    p, x = drawn(seed, layer.neurons), X[:, : layer.inputs]
    squares = completed_layer(layer, p)
    size = spelled_magnitude(squares, p, x) + squares.magnitude(x)
    wanted = spelled_outputs(layer, p, x)
    assert np.all(np.abs(squares(x) - wanted) <= 1e-13 * size)
    again = spelled_layer(squares, p)
    assert np.all(np.abs(spelled_outputs(again, p, x) - wanted) <= 1e-13 * size)


@given(SEEDS)
def test_products_and_sums_are_those_of_the_values(seed: int) -> None:
    p = drawn(seed, 3)
    line = Quadratic.of_line(p.linear, p.constant)
    t = X[:, :3]
    product = line.times(line)
    assert product is not None
    np.testing.assert_allclose(product(t), line(t) ** 2, rtol=0, atol=1e-14)
    np.testing.assert_allclose(p.plus(line)(t), p(t) + line(t), rtol=0, atol=1e-14)
    np.testing.assert_allclose(
        p.scaled(p.linear, p.square)(t), p.linear * p(t) + p.square, rtol=0, atol=1e-14
    )
    assert p.times(line) is None
    assert p.times(p) is None


@settings(max_examples=40, deadline=None)
@given(layers(), st.sampled_from([0.5, -3.0, 1000.0]))
def test_other_scales_compute_the_same(layer: Layer, centre: float) -> None:
    x, metric = X[:, : layer.inputs], Metric.box(layer.inputs, -1, 1)
    scaled = recentred(layer, Quadratic.around(centre), metric)
    assert np.all(np.abs(scaled(x) - layer(x)) <= 1e-13 * layer.magnitude(x))


def test_the_scale_brings_values_to_the_centre_of_the_polynomial() -> None:
    """u·z has mean 2, and −7; both are brought to β = 1000, where the polynomial is evaluated."""
    layer = Layer(np.array([[0.01, 2.0], [0.02, -7.0]]), np.ones((1, 2)), np.zeros(1))
    p = Quadratic.around(1000.0)
    scaled = recentred(layer, p, Metric.box(1, -1, 1))
    np.testing.assert_allclose(scaled.incoming[:, -1], [1000, 1000], rtol=1e-12)
    biases = spelled_layer(scaled, p).incoming[:, -1]
    np.testing.assert_allclose(biases, 0, rtol=0, atol=1e-9)


def test_only_a_neuron_that_rounds_too_much_is_scaled() -> None:
    layer = Layer(np.array([[0.01, 1000.5]]), np.ones((1, 1)), np.zeros(1))
    scaled = recentred(layer, Quadratic.around(1000.0), Metric.box(1, -2, 2))
    wide = Layer(np.array([[1.0, 1000.5]]), np.ones((1, 1)), np.zeros(1))
    kept = recentred(wide, Quadratic.around(1000.0), Metric.box(1, -2, 2))
    assert np.array_equal(kept.incoming, wide.incoming)
    assert not np.array_equal(scaled.incoming, layer.incoming)


@pytest.mark.parametrize(("a", "cheap"), [(1.0, True), (0.1, True), (0.01, False), (1e-4, False)])
def test_a_square_is_costly_if_its_centre_is_far_from_the_values(a: float, cheap: bool) -> None:
    """The values are at most 5; β is 0.5, 5, 50 and 5,000."""
    layer = Layer(np.array([[1.0, 1.0, 1.0, 2.0]]), np.ones((1, 1)), np.zeros(1))
    p = Quadratic(np.full(1, a), np.ones(1), np.zeros(1))
    cost = square_cost(completed_layer(layer, p), p, X[:, :3])
    assert (cost <= SQUARE_COST) == cheap
    t, centre = 3.0, 0.5 / a
    assert cost <= 2 * (t + 2 * centre) ** 2 / (t * t + 2 * centre * t)
