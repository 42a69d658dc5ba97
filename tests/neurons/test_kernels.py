"""The metric is the covariance of squares of Gaussian inputs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnxfde.neurons import kernels as metric_module
from onnxfde.neurons.kernels import Metric, features, kernel, kernel_diagonal
from onnxfde.neurons.layer import Layer
from onnxfde.neurons.original_layer import OriginalLayer
from tests.strategies import layers


def test_the_kernel_is_the_covariance_of_two_squares() -> None:
    rng = np.random.default_rng(0)
    samples = rng.multivariate_normal([0.5, -1.0], [[2.0, 0.6], [0.6, 1.0]], 400_000)
    factor = np.linalg.cholesky(np.array([[2.0, 0.6], [0.6, 1.0]]))
    metric = Metric(np.array([0.5, -1.0]), factor)
    rows = np.array([[1.0, 0.3, 0.2], [-0.4, 1.0, 0.7]])
    squares = (samples @ rows[:, :2].T + rows[:, 2]) ** 2
    whitened = metric.whiten(rows)
    np.testing.assert_allclose(kernel(whitened, whitened), np.cov(squares.T), rtol=0.03, atol=0.03)


@given(layers())
def test_features_reproduce_the_kernel(layer: Layer) -> None:
    rows = layer.incoming
    phi = features(rows)
    np.testing.assert_allclose(phi @ phi.T, kernel(rows, rows), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(
        kernel_diagonal(rows), np.diag(kernel(rows, rows)), rtol=1e-12, atol=0
    )


@given(layers(), st.integers(0, 99))
def test_unwhitening_undoes_whitening(layer: Layer, seed: int) -> None:
    samples = np.random.default_rng(seed).normal(size=(20, layer.inputs)) * 3 + 1
    metric = Metric.measured(samples)
    again = metric.unwhiten(metric.whiten(layer.incoming))
    np.testing.assert_allclose(again, layer.incoming, rtol=0, atol=1e-6)


def test_a_box_has_the_moments_of_a_uniform_distribution() -> None:
    metric = Metric.box(2, 0.0, 3.0)
    np.testing.assert_allclose(metric.mean, [1.5, 1.5])
    np.testing.assert_allclose(metric.factor @ metric.factor.T, np.eye(2) * 0.75)


def test_inputs_that_never_vary_are_compared_by_plain_coefficients() -> None:
    metric = Metric.measured(np.full((10, 3), 2.0))
    np.testing.assert_array_equal(metric.factor, np.eye(3))


def test_the_relative_error_is_that_of_gaussian_inputs() -> None:
    rng = np.random.default_rng(1)
    a, b = (Layer(rng.normal(size=(3, 3)), rng.normal(size=(2, 3)), np.zeros(2)) for _ in range(2))
    x = rng.normal(size=(400_000, 2))
    before, change = a(x), b(x) - a(x)
    measured = np.linalg.norm(change - change.mean(axis=0)) / np.linalg.norm(
        before - before.mean(axis=0)
    )
    assert OriginalLayer(a, Metric.plain(2)).error_of(b) == pytest.approx(measured, rel=0.02)


def test_tiny_errors_are_not_lost_in_cancellation(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(2)
    layer = Layer(rng.normal(size=(4, 3)), rng.normal(size=(2, 4)), np.zeros(2))
    changed = Layer(layer.incoming, layer.outgoing * (1 + 1e-11), layer.offset)
    assert OriginalLayer(layer, Metric.plain(2)).error_of(changed) == pytest.approx(1e-11, rel=1e-3)
    monkeypatch.setattr(metric_module, "FEATURE_BYTES", 0)
    assert OriginalLayer(layer, Metric.plain(2)).error_of(changed) < 1e-7


def test_a_constant_layer_has_no_relative_error() -> None:
    layer = Layer(np.zeros((1, 3)), np.ones((1, 1)), np.zeros(1))
    assert OriginalLayer(layer, Metric.plain(2)).error_of(layer) == 0.0
