"""What a block becomes."""

from __future__ import annotations

import numpy as np

from onnxfde.neurons.layer import Layer
from onnxfde.neurons.quotients import backward_single, forward_exact, forward_single

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
