"""What a block becomes."""

from __future__ import annotations

import numpy as np

from onnxfde.neurons.layer import Layer
from onnxfde.neurons.piecewise_activations import PRELU
from onnxfde.neurons.quotients import (
    backward_single,
    forward_exact,
    forward_single,
    mean_single,
)
from onnxfde.neurons.smooth_activations import TANH

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
    for quotient in (forward_single, forward_exact, backward_single, mean_single):
        np.testing.assert_array_equal(quotient(layer, ((0,), (1,), (2,))).incoming, layer.incoming)


def test_equal_neurons_of_another_activation_merge_without_loss() -> None:
    row = np.array([1.0, -2.0, 0.5])
    for activation, slopes in ((TANH, ()), (PRELU, (np.full(3, 0.25),))):
        outgoing = np.array([[1.0, 2.0, -4.0]])
        layer = Layer(np.tile(row, (3, 1)), outgoing, np.ones(1), activation, slopes)
        merged = mean_single(layer, ((0, 1, 2),))
        assert merged.neurons == 1
        np.testing.assert_allclose(merged(X), layer(X), rtol=1e-12, atol=0)


def test_neurons_with_equal_outgoing_weights_are_off_by_the_second_order_of_their_difference() -> (
    None
):
    rng = np.random.default_rng(3)
    row, apart = rng.normal(size=3), rng.normal(size=3)
    errors = []
    for size in (0.1, 0.01):
        rows = np.stack([row + size * apart, row - size * apart])
        layer = Layer(rows, np.ones((1, 2)), np.zeros(1), TANH)
        errors.append(np.abs(mean_single(layer, ((0, 1),))(X) - layer(X)).max())
    assert errors[1] <= 0.02 * errors[0]
