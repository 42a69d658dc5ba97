"""Errors of layers with any activation, and problems made of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from onnxfde.neurons.activation import Activation
from onnxfde.neurons.expanded_layer import ExpandedLayer
from onnxfde.neurons.kernels import Metric
from onnxfde.neurons.layer import Layer
from onnxfde.neurons.original_layer import OriginalLayer
from onnxfde.neurons.piecewise_activations import RELU
from onnxfde.neurons.polynomial_activations import SQUARE
from onnxfde.neurons.smooth_activations import TANH
from onnxfde.numbers import FloatArray
from tests.neurons.activation_rows import ROWS, unit_parameters
from tests.strategies import problem_of

METRIC = Metric(np.array([0.3, -0.2, 0.1]), np.diag([1.0, 0.5, 0.8]))


def layer_of(row: Activation, neurons: int = 8, seed: int = 0) -> Layer:
    rng = np.random.default_rng(seed)
    incoming, outgoing = rng.normal(size=(neurons, 4)) / 4, rng.normal(size=(2, neurons))
    return Layer(incoming, outgoing, rng.normal(size=2), row, unit_parameters(row, neurons))


def drawn(count: int) -> FloatArray:
    z = np.random.default_rng(1).normal(size=(count, 3))
    return np.asarray(z @ METRIC.factor.T + METRIC.mean)


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS.keys())
def test_the_error_is_that_of_random_inputs(row: Activation) -> None:
    layer = layer_of(row)
    other = layer.only(list(range(6)))
    x = drawn(20_000)
    before, after = layer(x), other(x)
    change = after - before
    change -= change.mean(axis=0)
    measured = np.linalg.norm(change) / np.linalg.norm(before - before.mean(axis=0))
    assert ExpandedLayer(layer, METRIC).error_of(other) == pytest.approx(measured, rel=0.08)


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS.keys())
def test_a_layer_has_no_error_against_itself_in_another_order(row: Activation) -> None:
    layer = layer_of(row)
    assert ExpandedLayer(layer, METRIC).error_of(layer.only(list(range(8))[::-1])) <= 1e-14


@pytest.mark.parametrize("row", [RELU, TANH], ids=["Relu", "Tanh"])
def test_rounding_weights_once_more_costs_about_what_it_should(row: Activation) -> None:
    layer, roundoff = layer_of(row, 40), 2.0**-11
    rounded = layer.stored_as(np.float16)
    original = ExpandedLayer(layer, METRIC)
    assert 1 / 5 <= original.error_of(rounded) / original.rounding_error(roundoff) <= 2


def test_both_ways_to_compare_squares_agree() -> None:
    layer = layer_of(SQUARE)
    other = replace(layer.only(list(range(6))), offset=layer.offset + 1)
    known, expanded = OriginalLayer(layer, METRIC), ExpandedLayer(layer, METRIC)
    assert expanded.total == pytest.approx(known.total, rel=1e-12)
    assert expanded.error_of(other) == pytest.approx(known.error_of(other), rel=1e-9)


def test_layers_that_are_not_squares_have_no_lower_bound() -> None:
    problem = problem_of(layer_of(RELU))
    assert problem.lower_bound(1) is None
    assert problem.fewest(0.1) == 0
    with pytest.raises(TypeError, match="not squares"):
        _ = problem.original
    with pytest.raises(TypeError, match="are squares"):
        _ = problem_of(layer_of(SQUARE)).expanded


def test_a_layer_that_is_not_finite_has_an_infinite_error() -> None:
    layer = layer_of(TANH)
    broken = replace(layer, outgoing=layer.outgoing * np.inf)
    assert ExpandedLayer(layer, METRIC).error_of(broken) == np.inf


def test_a_constant_layer_has_no_error() -> None:
    layer = replace(layer_of(RELU), outgoing=np.zeros((2, 8)))
    assert ExpandedLayer(layer, METRIC).error_of(layer) == 0.0
    assert ExpandedLayer(layer, METRIC).rounding_error(1e-7) == 0.0
