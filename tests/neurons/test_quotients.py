"""What a block becomes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given

from onnxfde.neurons.balance import balanced
from onnxfde.neurons.kernels import Metric
from onnxfde.neurons.layer import Layer
from onnxfde.neurons.quotients import backward_single, forward_exact, forward_single
from onnxfde.neurons.refit import refit
from tests.strategies import layers

X = np.random.default_rng(0).uniform(-1, 1, (50, 2))


def test_parallel_neurons_merge_into_one_without_loss_whatever_their_weights() -> None:
    row = np.array([1.0, -2.0, 0.5])
    layer = Layer(np.stack([row, -3 * row, 0.5 * row]), np.array([[1.0, 2.0, -4.0]]), np.ones(1))
    merged = backward_single(layer, ((0, 1, 2),))
    assert merged.neurons == 1
    np.testing.assert_allclose(merged(X), layer(X), rtol=1e-12, atol=0)


def test_a_forward_block_at_its_rank_is_exact() -> None:
    rng = np.random.default_rng(1)
    layer = Layer(rng.normal(size=(6, 3)), np.full((2, 6), 0.7), np.zeros(2))
    exact = forward_exact(layer, (tuple(range(6)),))
    assert exact.neurons == 3
    np.testing.assert_allclose(exact(X), layer(X), rtol=1e-12, atol=1e-12)
    assert forward_single(layer, (tuple(range(6)),)).neurons == 1


def test_single_blocks_keep_their_neurons() -> None:
    rng = np.random.default_rng(2)
    layer = Layer(rng.normal(size=(3, 3)), rng.normal(size=(2, 3)), np.zeros(2))
    for quotient in (forward_single, forward_exact, backward_single):
        np.testing.assert_array_equal(quotient(layer, ((0,), (1,), (2,))).incoming, layer.incoming)


@pytest.mark.parametrize("roundoff", [2.0**-24, None])
def test_refit_is_never_worse_than_what_it_starts_from(roundoff: float | None) -> None:
    rng = np.random.default_rng(3)
    metric = Metric.box(4, 0.0, 1.0)
    layer = Layer(rng.normal(size=(9, 5)), rng.normal(size=(2, 9)), rng.normal(size=2))
    single = backward_single(layer, ((0, 1, 2), (3, 4), (5, 6, 7, 8)))
    fitted = refit(layer, single, metric, roundoff)
    assert metric.relative_error(layer, fitted) < metric.relative_error(layer, single)
    means = [
        f(rng.normal(size=(200_000, 4)) / np.sqrt(12) + 0.5).mean(axis=0) for f in (layer, fitted)
    ]
    np.testing.assert_allclose(means[1], means[0], rtol=0.02, atol=0.02)


def test_both_ways_to_refit_agree() -> None:
    rng = np.random.default_rng(4)
    metric = Metric.box(4, -1.0, 1.0)
    layer = Layer(rng.normal(size=(9, 5)), rng.normal(size=(2, 9)), rng.normal(size=2))
    start = backward_single(layer, ((0, 1, 2), (3, 4), (5, 6, 7, 8)))
    by_qr, by_gram = (refit(layer, start, metric, roundoff) for roundoff in (2.0**-24, None))
    np.testing.assert_allclose(by_qr.outgoing, by_gram.outgoing, rtol=1e-8, atol=1e-10)


def test_refit_of_a_neuron_that_is_zero_stays_finite() -> None:
    layer = Layer(np.ones((2, 3)), np.ones((1, 2)), np.zeros(1))
    start = Layer(np.zeros((1, 3)), np.zeros((1, 1)), np.zeros(1))
    assert np.isfinite(refit(layer, start, Metric.plain(2)).outgoing).all()


@given(layers())
def test_balancing_changes_no_bit_of_the_function(layer: Layer) -> None:
    even = balanced(layer, layer, Metric.plain(layer.inputs))
    x = np.random.default_rng(0).uniform(-1, 1, (20, layer.inputs))
    np.testing.assert_array_equal(even(x), layer(x))
    before, after = (np.linalg.norm(rows, axis=1) for rows in (layer.incoming, even.incoming))
    assert after.max() <= before.max() * (1 + 1e-12)


def test_balancing_brings_the_scales_of_u_and_v_together() -> None:
    layer = Layer(np.array([[1e-3, 0.0], [1.0, 0.0]]), np.array([[1e3, 1.0]]), np.zeros(1))
    even = balanced(layer, layer, Metric.plain(1))
    assert even.outgoing[0, 0] < 10
    assert even.incoming[0, 0] > 5e-3


def test_a_float16_layer_that_fits_still_fits_after_balancing() -> None:
    """h² stays below 65,504 although u could be larger and V smaller."""
    layer = Layer(np.array([[0.9, 0.0]]), np.array([[1e4]]), np.zeros(1))
    even = balanced(layer, layer, Metric.box(1, 0.0, 255.0))
    assert ((255 * even.incoming[:, 0]) ** 2).max() <= 65504
