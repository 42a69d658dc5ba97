"""Metrics in the span of some neurons."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnxfde.neurons.kernels import Metric
from onnxfde.neurons.span_metric import SpanMetric, seen_by
from onnxfde.numbers import FloatArray


def drawn(neurons: int, inputs: int, seed: int) -> tuple[FloatArray, FloatArray, Metric]:
    """Neurons, inputs, and the metric of those inputs."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(50, inputs)) @ rng.normal(size=(inputs, inputs)) + 1
    return rng.normal(size=(neurons, inputs + 1)), x, Metric.measured(x)


@given(st.integers(1, 6), st.integers(7, 12), st.integers(0, 1000))
def test_in_the_span_nothing_changes(neurons: int, inputs: int, seed: int) -> None:
    """Values, inner products and the way back are those of the whole metric."""
    rows, x, metric = drawn(neurons, inputs, seed)
    span = seen_by(rows, metric)
    mixed = np.random.default_rng(seed + 1).normal(size=(3, neurons)) @ rows
    whitened, whole = span.whiten(mixed), metric.whiten(mixed)
    assert whitened.shape == (3, neurons + 1)
    size = np.abs(whole).max() ** 2
    np.testing.assert_allclose(whitened @ whitened.T, whole @ whole.T, atol=1e-9 * size)
    np.testing.assert_allclose(span.unwhiten(whitened), mixed, atol=1e-8 * np.abs(mixed).max())
    values = np.column_stack([x, np.ones(len(x))]) @ mixed.T
    seen = span.standardise(x) @ whitened.T
    np.testing.assert_allclose(seen, values, atol=1e-8 * np.abs(values).max())


@pytest.mark.parametrize("neurons", [8, 9])
def test_neurons_that_read_everything_keep_the_metric(neurons: int) -> None:
    rows, _, metric = drawn(neurons, 8, 0)
    assert seen_by(rows, metric) is metric
    assert isinstance(seen_by(rows[:7], metric), SpanMetric)
