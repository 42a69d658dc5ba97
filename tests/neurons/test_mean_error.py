"""One offset for several assumptions about the inputs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from onnxfde.estimates import relative_error
from onnxfde.neurons.activation import Activation
from onnxfde.neurons.kernels import Metric
from onnxfde.neurons.layer import Layer
from onnxfde.neurons.piecewise_activations import RELU
from onnxfde.neurons.polynomial_activations import SQUARE
from onnxfde.neurons.problem import Problem
from onnxfde.numbers import FloatArray

METRICS = Metric.box(4, -1.0, 1.0), Metric.box(4, 0.0, 1.0)


def problem_of(activation: Activation) -> Problem:
    rng = np.random.default_rng(0)
    layer = Layer(rng.normal(size=(9, 5)), rng.normal(size=(3, 9)), rng.normal(size=3), activation)
    samples = rng.uniform(0, 1, (50, 4))
    return Problem(layer, METRICS[0], samples, np.dtype("float32"), other_metrics=METRICS[1:])


def drawn(metric: Metric) -> FloatArray:
    standard = np.random.default_rng(5).normal(size=(200_000, 4))
    return np.asarray(metric.spread_out(standard) + metric.mean)


@pytest.mark.parametrize("activation", [RELU, SQUARE])
def test_the_error_is_the_largest_one_with_its_mean(activation: Activation) -> None:
    problem = problem_of(activation)
    other = replace(problem.layer.only(np.arange(7)), offset=problem.layer.offset + 0.3)
    seen = [relative_error(problem.layer(x), other(x)).value for x in map(drawn, METRICS)]
    assert problem.error_of(other) == pytest.approx(max(seen), rel=0.02)


@pytest.mark.parametrize("activation", [RELU, SQUARE])
def test_no_other_offset_between_the_two_means_is_better(activation: Activation) -> None:
    problem = problem_of(activation)
    found = problem.reduced(problem.read_back(problem.layer.only(np.arange(7))), ())
    assert found.error == problem.error_of(found.layer)
    means = [np.mean(problem.layer(x) - found.layer(x), axis=0) for x in map(drawn, METRICS)]
    for step in (*means, -means[0], means[0] + means[1]):
        moved = replace(found.layer, offset=found.layer.offset + 0.2 * step)
        assert problem.error_of(moved) >= 0.99 * found.error


def test_an_equal_layer_keeps_its_offset() -> None:
    problem = problem_of(RELU)
    stored = problem.read_back(problem.layer)
    assert np.array_equal(problem.reduced(stored, ()).layer.offset, stored.offset)


def test_what_is_not_finite_is_infinitely_wrong() -> None:
    problem = problem_of(RELU)
    broken = replace(problem.layer, offset=np.full(3, np.nan))
    assert problem.error_of(broken) == problem.reduced(broken, ()).error == np.inf
