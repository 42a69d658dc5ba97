"""Fewer neurons of any activation: by elimination, and freely chosen."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from onnxfde.neurons.activation import Activation
from onnxfde.neurons.elimination_search import EliminationSearch
from onnxfde.neurons.free_search import FreeSearch
from onnxfde.neurons.held_out import Evidence
from onnxfde.neurons.layer import Layer
from onnxfde.neurons.piecewise_activations import PRELU, RELU
from onnxfde.neurons.polynomial_activations import polynomial
from onnxfde.neurons.problem import Problem
from onnxfde.neurons.smooth_activations import GELU, TANH
from tests.neurons.activation_rows import ROWS, unit_parameters
from tests.strategies import problem_of

CUBIC = polynomial((0.0, 1.0, 0.0, 0.5))


def layer_of(row: Activation, neurons: int = 24, inputs: int = 5, seed: int = 0) -> Layer:
    """Neurons of very different weight, none of them like another."""
    rng = np.random.default_rng(seed)
    incoming = rng.normal(size=(neurons, inputs + 1)) / np.sqrt(inputs)
    outgoing = rng.normal(size=(3, neurons)) * np.exp2(-np.arange(neurons) / 3)
    layer = Layer(incoming, outgoing, rng.normal(size=3), row, unit_parameters(row, neurons))
    return layer.stored_as(np.float32)


def seen_problem(layer: Layer, rows: int = 400, **more: Any) -> Problem:
    """A problem with inputs that are not Gaussian, as data."""
    x = np.random.default_rng(1).uniform(-1, 1, (rows, layer.inputs)) ** 3 * 2
    return problem_of(layer, evidence=Evidence(x, layer(x)), **more).with_prior()


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS.keys())
def test_more_neurons_are_never_worse_and_the_error_is_measured(row: Activation) -> None:
    search = EliminationSearch(problem_of(layer_of(row, 12)))
    found = [search.candidate(count) for count in (2, 5, 8, 11)]
    errors = [reduced.error for reduced in found]
    assert all(b <= a + 1e-6 for a, b in pairwise(errors))
    assert [reduced.layer.neurons for reduced in found] == [2, 5, 8, 11]
    for reduced in found:
        assert reduced.error == search.problem.error_of(reduced.layer)


@pytest.mark.parametrize("row", [RELU, GELU, TANH, CUBIC, PRELU], ids=lambda row: row.name)
def test_the_fewest_within_an_error_are_within_it(row: Activation) -> None:
    problem = seen_problem(layer_of(row))
    search = EliminationSearch(problem)
    found = search.within(0.05)
    assert found is not None
    assert problem.expected_error(found) <= 0.05
    fewer = search.candidate(found.layer.neurons - 1)
    assert problem.expected_error(fewer) > 0.05


@pytest.mark.parametrize(
    ("row", "seen"),
    [(RELU, True), (RELU, False), (TANH, False), (PRELU, True)],
    ids=lambda case: getattr(case, "name", case),
)
def test_freely_chosen_neurons_are_better_than_those_left(row: Activation, seen: bool) -> None:
    layer = layer_of(row, 16, 3)
    problem = seen_problem(layer) if seen else problem_of(layer)
    search = EliminationSearch(problem)
    found = FreeSearch(problem, search).at_most(4)
    assert found is not None
    assert found.layer.neurons == 4
    assert problem.measured_error(found) < 0.95 * problem.measured_error(search.candidate(4))
    known = {tuple(parameters) for parameters in np.transpose(layer.unit_parameters)}
    assert {tuple(p) for p in np.transpose(found.layer.unit_parameters)} <= known


def test_freely_chosen_neurons_within_an_error_are_fewer() -> None:
    problem = seen_problem(layer_of(RELU, 18, 3), 200)
    search = EliminationSearch(problem)
    merged, found = search.within(0.1), FreeSearch(problem, search).within(0.1)
    assert merged is not None
    assert found is not None
    assert found.layer.neurons < merged.layer.neurons
    assert problem.expected_error(found) <= 0.1


@pytest.mark.parametrize("eps", [0.0, 0.02])
def test_copies_go_without_an_error(eps: float) -> None:
    once = layer_of(RELU, 6)
    layer = Layer(
        np.vstack([once.incoming, once.incoming * 3]),
        np.hstack([once.outgoing, once.outgoing]),
        once.offset,
        RELU,
    ).stored_as(np.float32)
    problem = problem_of(layer)
    found = EliminationSearch(problem).within(eps)
    assert found is not None
    assert found.layer.neurons <= 6
    assert found.error <= max(eps, 1e-6)


def test_only_data_may_say_what_is_lossless() -> None:
    """The data never reach the kinks; neurons that are linear there are not so everywhere."""
    layer = layer_of(RELU)
    layer.incoming[:, -1] = 50.0
    search = EliminationSearch(seen_problem(layer))
    assert search.lossless is None
    assert search.within(0.0) is None
    assert search.neurons_lossless == layer.neurons
    found = search.within(0.01)
    assert found is not None
    assert found.layer.neurons <= layer.inputs + 1


def test_the_smallest_error_is_that_of_the_cheapest_neuron() -> None:
    search = EliminationSearch(problem_of(layer_of(TANH, 8)))
    assert search.smallest_eps() == search.candidate(7).error
    assert search.at_most(8) is None
    found = search.at_most(3)
    assert found is not None
    assert found.layer.neurons == 3


def test_outputs_that_earlier_layers_changed_are_made_up_for() -> None:
    """The evidence asks for other outputs than the layer has, by a shift and a factor."""
    layer = layer_of(GELU)
    x = np.random.default_rng(1).uniform(-1, 1, (400, layer.inputs))
    wanted = Evidence(x, 1.1 * layer(x) + 0.3)
    problem = problem_of(layer, evidence=wanted).with_prior()
    found = EliminationSearch(problem).candidate(20)
    assert wanted.held_out.error(found.layer) < 0.5 * wanted.held_out.error(layer)


def test_a_prior_does_not_see_the_rows_that_judge_it() -> None:
    layer = layer_of(RELU)
    rng = np.random.default_rng(2)
    x = rng.normal(size=(300, layer.inputs))
    evidence = Evidence(x, layer(x))
    first = problem_of(layer, evidence=evidence).with_prior().metric
    other = x.copy()
    other[evidence._held] *= 100
    second = problem_of(layer, evidence=Evidence(other, layer(other))).with_prior().metric
    np.testing.assert_array_equal(first.factor, second.factor)
    unseen = problem_of(layer)
    assert unseen.with_prior() is unseen
