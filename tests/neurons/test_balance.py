"""Scales of neurons that suit 8 bits, and leave the function as it is."""

from __future__ import annotations

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st

from onnxfde.neurons.activation import Activation
from onnxfde.neurons.balance import balanced
from onnxfde.neurons.kernels import Metric
from onnxfde.neurons.layer import Layer
from onnxfde.neurons.piecewise_activations import RELU
from onnxfde.neurons.rounding_noise import rounding_noise
from onnxfde.numbers import FloatArray
from tests.strategies import CUBE, layers


def in_8_bits(a: FloatArray, axis: int | None) -> FloatArray:
    """Rounded to 255 steps of the range, for each index of an axis or in all."""
    others = None if axis is None else 1 - axis
    low = np.minimum(a.min(axis=others, keepdims=True), 0)
    step = np.maximum(a.max(axis=others, keepdims=True) - low, 1e-300) / 255
    return np.asarray(np.round((a - low) / step) * step + low)


def error_in_8_bits(layer: Layer, x: FloatArray) -> float:
    """Of the outputs, with hidden values rounded together and V for each output."""
    hidden = (x @ layer.incoming[:, :-1].T + layer.incoming[:, -1]) ** 2
    rounded = in_8_bits(hidden, None) @ in_8_bits(layer.outgoing, 0).T
    return float(np.linalg.norm(rounded - hidden @ layer.outgoing.T))


def rescaled(layer: Layer, seed: int, most: int) -> Layer:
    """The same function with other scales."""
    powers = np.random.default_rng(seed).integers(-most, most + 1, layer.neurons)
    return Layer(
        np.ldexp(layer.incoming, powers[:, None]),
        np.ldexp(layer.outgoing, -2 * powers),
        layer.offset,
    )


@given(layers(), st.integers(0, 2**16))
def test_balance_forgets_the_scales_it_was_given(layer: Layer, seed: int) -> None:
    metric = Metric.plain(layer.inputs)
    alive = layer.without_constants()
    assume(alive.neurons)
    first, second = (
        balanced(other, layer, metric, exact=False) for other in (alive, rescaled(alive, seed, 6))
    )
    np.testing.assert_allclose(first.incoming, second.incoming, rtol=1e-9, atol=0)
    np.testing.assert_allclose(first.outgoing, second.outgoing, rtol=1e-9, atol=0)


@given(layers(), st.booleans())
def test_balance_changes_no_function_and_no_hidden_value_outgrows_the_original(
    layer: Layer, exact: bool
) -> None:
    metric = Metric.plain(layer.inputs)
    even = balanced(layer, layer, metric, exact)
    x = np.random.default_rng(0).uniform(-1, 1, (20, layer.inputs))
    scale = 1e-12 * layer.magnitude(x)
    assert np.all(np.abs(even(x) - layer(x)) <= (0.0 if exact else scale))
    before, after = (np.linalg.norm(a.incoming, axis=1).max() for a in (layer, even))
    assert after <= before * (1 + 1e-12)


@given(st.integers(0, 2**16), st.integers(2, 24))
def test_balanced_layers_lose_little_in_8_bits_however_they_were_scaled(
    seed: int, neurons: int
) -> None:
    rng = np.random.default_rng(seed)
    layer = Layer(rng.normal(size=(neurons, 6)), rng.normal(size=(3, neurons)), np.zeros(3))
    bad = rescaled(layer, seed, 4)
    x = rng.normal(size=(500, 5))
    even = balanced(bad, bad, Metric.plain(5), exact=False)
    assert error_in_8_bits(even, x) <= 2 * error_in_8_bits(layer, x)


@given(st.integers(0, 2**16))
def test_balanced_weights_fit_float16(seed: int) -> None:
    rng = np.random.default_rng(seed)
    layer = Layer(rng.normal(size=(8, 6)), rng.normal(size=(3, 8)), np.zeros(3))
    original = Layer(layer.incoming * 30, layer.outgoing / 900, layer.offset)
    even = balanced(rescaled(layer, seed, 9), original, Metric.plain(5), exact=False)
    stored = even.stored_as(np.float16)
    assert stored.finite
    x = rng.normal(size=(50, 5))
    assert (x @ stored.incoming[:, :-1].T + stored.incoming[:, -1]).max() ** 2 < 65504
    np.testing.assert_allclose(stored(x), layer(x), rtol=0, atol=0.01 * np.abs(layer(x)).max())


@given(st.integers(0, 2**16))
def test_the_noise_of_8_bits_is_foreseen(seed: int) -> None:
    """Within a factor of three: the median over neurons stands for all, and errors vary."""
    rng = np.random.default_rng(seed)
    layer = Layer(rng.normal(size=(12, 21)), rng.normal(size=(3, 12)), np.zeros(3))
    x = rng.normal(size=(400, 20))
    step = np.abs(layer.incoming[:, :-1]).max(axis=1, keepdims=True) / 64
    rounded = np.round(layer.incoming[:, :-1] / step) * step
    both = (layer.incoming[:, :-1], rounded)
    exact, hidden = ((x @ w.T + layer.incoming[:, -1]) ** 2 for w in both)
    mean = exact.mean(axis=0)
    noise = float(np.mean((in_8_bits(hidden / mean, None) - exact / mean) ** 2))
    assert 1 / 3 <= rounding_noise(layer, x) / noise <= 3


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


@given(st.integers(0, 2**16), st.sampled_from([RELU, CUBE]))
def test_other_activations_are_scaled_by_their_degree(seed: int, activation: Activation) -> None:
    rng = np.random.default_rng(seed)
    layer = Layer(rng.normal(size=(6, 4)), rng.normal(size=(2, 6)), np.zeros(2), activation)
    layer.incoming[0] *= 2.0**-10
    even = balanced(layer, layer, Metric.plain(3))
    assert even.activation is activation
    assert np.abs(even.incoming[0]).max() > 2 * np.abs(layer.incoming[0]).max()
    x = rng.uniform(-1, 1, (20, 3))
    np.testing.assert_array_equal(even(x), layer(x))
