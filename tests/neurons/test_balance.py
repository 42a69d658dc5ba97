"""Scales of neurons that suit 8 bits, and leave the function as it is."""

from __future__ import annotations

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st

from onnxfde.neurons.balance import balanced
from onnxfde.neurons.kernels import Metric
from onnxfde.neurons.layer import Layer
from onnxfde.neurons.rounding_noise import rounding_noise
from onnxfde.numbers import FloatArray
from tests.strategies import layers


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
def test_badly_scaled_layers_lose_less_in_8_bits_when_balanced(seed: int, neurons: int) -> None:
    rng = np.random.default_rng(seed)
    layer = Layer(rng.normal(size=(neurons, 6)), rng.normal(size=(3, neurons)), np.zeros(3))
    bad = rescaled(layer, seed, 4)
    x = rng.normal(size=(500, 5))
    even = balanced(bad, bad, Metric.plain(5), exact=False)
    least = error_in_8_bits(layer, x)
    assert error_in_8_bits(even, x) <= max(1.1 * error_in_8_bits(bad, x), 2 * least)
    assert error_in_8_bits(even, x) <= 2 * least


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
