"""Outgoing weights by least squares."""

from __future__ import annotations

import numpy as np
import pytest

from onnxfde.neurons.kernels import Metric
from onnxfde.neurons.layer import Layer
from onnxfde.neurons.original_layer import OriginalLayer
from onnxfde.neurons.quotients import backward_single
from onnxfde.neurons.refit import refit


@pytest.mark.parametrize("roundoff", [2.0**-24, None])
def test_refit_is_never_worse_than_what_it_starts_from(roundoff: float | None) -> None:
    rng = np.random.default_rng(3)
    metric = Metric.box(4, 0.0, 1.0)
    layer = Layer(rng.normal(size=(9, 5)), rng.normal(size=(2, 9)), rng.normal(size=2))
    single = backward_single(layer, ((0, 1, 2), (3, 4), (5, 6, 7, 8)))
    fitted = refit(OriginalLayer(layer, metric), single, roundoff)
    assert OriginalLayer(layer, metric).error_of(fitted) < OriginalLayer(layer, metric).error_of(
        single
    )
    means = [
        f(rng.normal(size=(200_000, 4)) / np.sqrt(12) + 0.5).mean(axis=0) for f in (layer, fitted)
    ]
    np.testing.assert_allclose(means[1], means[0], rtol=0.02, atol=0.02)


def test_both_ways_to_refit_agree() -> None:
    rng = np.random.default_rng(4)
    metric = Metric.box(4, -1.0, 1.0)
    layer = Layer(rng.normal(size=(9, 5)), rng.normal(size=(2, 9)), rng.normal(size=2))
    start = backward_single(layer, ((0, 1, 2), (3, 4), (5, 6, 7, 8)))
    by_qr, by_gram = (
        refit(OriginalLayer(layer, metric), start, roundoff) for roundoff in (2.0**-24, None)
    )
    np.testing.assert_allclose(by_qr.outgoing, by_gram.outgoing, rtol=1e-8, atol=1e-10)


def test_refit_of_a_neuron_that_is_zero_stays_finite() -> None:
    layer = Layer(np.ones((2, 3)), np.ones((1, 2)), np.zeros(1))
    start = Layer(np.zeros((1, 3)), np.zeros((1, 1)), np.zeros(1))
    assert np.isfinite(refit(OriginalLayer(layer, Metric.plain(2)), start).outgoing).all()
