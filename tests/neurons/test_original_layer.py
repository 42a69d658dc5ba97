"""Errors against a layer, whichever way they are computed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onnxfde.neurons import kernels
from onnxfde.neurons.kernels import Metric, features, norm, quick_norm
from onnxfde.neurons.layer import Layer
from onnxfde.neurons.original_layer import OriginalLayer
from onnxfde.numbers import FloatArray
from tests.strategies import layers


def random_layer(inputs: int, neurons: int, outputs: int, seed: int = 0) -> Layer:
    rng = np.random.default_rng(seed)
    incoming, outgoing = rng.normal(size=(neurons, inputs + 1)), rng.normal(size=(outputs, neurons))
    return Layer(incoming, outgoing, np.zeros(outputs))


def by_features(layer: Layer, other: Layer, metric: Metric) -> float:
    """The error from features that are written out."""

    def written(of: Layer) -> FloatArray:
        return np.asarray(of.outgoing @ features(metric.whiten(of.incoming)))

    return float(np.linalg.norm(written(layer) - written(other)) / np.linalg.norm(written(layer)))


@given(layers(), st.integers(0, 99), st.booleans())
def test_the_error_is_that_of_the_features(layer: Layer, seed: int, known: bool) -> None:
    rng = np.random.default_rng(seed)
    metric = Metric.measured(rng.normal(size=(30, layer.inputs)) + 1)
    kept = rng.permutation(layer.neurons)[: max(1, layer.neurons // 2)]
    other = Layer(
        np.vstack([-4 * layer.incoming[kept], rng.normal(size=(1, layer.inputs + 1))]),
        np.hstack([layer.outgoing[:, kept] / 16, rng.normal(size=(layer.outputs, 1))]),
        layer.offset,
    )
    original = OriginalLayer(layer, metric)
    if not original.total > 1e-6:
        return
    if known:
        assert original.overlap.shape == layer.outgoing.shape
    assert original.error_of(other) == pytest.approx(
        by_features(layer, other, metric), rel=1e-6, abs=1e-9
    )


def test_only_what_differs_is_compared() -> None:
    layer = random_layer(30, 40, 3)
    merged = layer.only(np.arange(1, 40))
    incoming, change = OriginalLayer(layer, Metric.plain(30)).difference(merged)
    np.testing.assert_array_equal(incoming, layer.incoming[:1])
    np.testing.assert_array_equal(change, layer.outgoing[:, :1])


@pytest.mark.parametrize("shape", [(3, 40, 2), (40, 30, 2)])
def test_overlaps_are_products_with_the_layer(shape: tuple[int, int, int]) -> None:
    layer, metric = random_layer(*shape), Metric.box(shape[0], -1.0, 2.0)
    original = OriginalLayer(layer, metric)
    new = random_layer(*shape, seed=1).incoming
    found = original.overlap_with(np.vstack([layer.incoming[:5] * 0.5, new]))
    rows = metric.whiten(np.vstack([layer.incoming[:5] * 0.5, new]))
    wanted = layer.outgoing @ features(original.rows) @ features(rows).T
    np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-9 * np.abs(wanted).max())


@settings(max_examples=20)
@given(st.integers(0, 99))
def test_the_rounding_error_is_that_of_rounded_layers(seed: int) -> None:
    """The mean square of many draws; 200 of them are within 15 %."""
    rng = np.random.default_rng(seed)
    layer = random_layer(5, 12, 3, seed)
    metric = Metric.measured(rng.normal(size=(50, 5)) @ rng.normal(size=(5, 5)) + 1)
    original, step = OriginalLayer(layer, metric), 1e-4
    drawn = [
        original.error_of(
            Layer(
                layer.incoming * (1 + step * rng.uniform(-1, 1, layer.incoming.shape)),
                layer.outgoing * (1 + step * rng.uniform(-1, 1, layer.outgoing.shape)),
                layer.offset,
            )
        )
        for _ in range(200)
    ]
    wanted = np.sqrt(np.mean(np.square(drawn)))
    assert original.rounding_error(step) == pytest.approx(wanted, rel=0.15)


def test_single_precision_keeps_six_digits_of_a_norm(monkeypatch: pytest.MonkeyPatch) -> None:
    layer = random_layer(20, 300, 5)
    wanted = norm(layer.incoming, layer.outgoing)
    monkeypatch.setattr(kernels, "QUICK", 0)
    assert quick_norm(layer.incoming, layer.outgoing) == pytest.approx(wanted, rel=1e-6)
    twice, opposite = np.tile(layer.incoming, (2, 1)), np.hstack([layer.outgoing, -layer.outgoing])
    opposite[:, 0] *= 1 + 1e-6
    wanted = norm(twice, opposite)
    assert quick_norm(twice, opposite) == wanted
