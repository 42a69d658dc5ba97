"""The laws of merging blocks of neurons, for one layer."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onnxfde.neurons.block_search import BlockSearch
from onnxfde.neurons.frontier import Reduced
from onnxfde.neurons.kernels import Metric
from onnxfde.neurons.layer import Layer
from onnxfde.neurons.original_layer import OriginalLayer
from onnxfde.numbers import FloatArray
from onnxfde.running.random_inputs import latin_hypercube
from tests.strategies import layers, problem_of, redundant_layers

ROUNDOFF = 2.0**-24


def search(layer: Layer, refitted: bool = True, metric: Metric | None = None) -> BlockSearch:
    return BlockSearch(problem_of(layer, metric), refitted)


def left(layer: Layer, found: Reduced | None) -> int:
    return found.layer.neurons if found else layer.neurons


def assert_equal_up_to_rounding(a: Layer, b: Layer) -> None:
    x = latin_hypercube(200, a.inputs, (-1.0, 1.0), seed=7)
    assert np.all(np.abs(a(x) - b(x)) <= 16 * ROUNDOFF * a.magnitude(x))


@given(redundant_layers(), st.booleans())
def test_at_eps_zero_a_redundant_neuron_goes_and_the_layer_stays_equal_up_to_rounding(
    layer: Layer, refitted: bool
) -> None:
    found = search(layer, refitted).within(0.0)
    assert found is not None
    assert found.layer.neurons < layer.neurons
    assert_equal_up_to_rounding(layer, found.layer)


@given(redundant_layers(), st.booleans())
def test_eps_zero_is_a_fixed_point(layer: Layer, refitted: bool) -> None:
    found = search(layer, refitted).within(0.0)
    assert found is not None
    assert search(found.layer, refitted).within(0.0) is None


@settings(max_examples=50)
@given(layers(), st.booleans())
def test_a_larger_eps_never_leaves_more_neurons(layer: Layer, refitted: bool) -> None:
    budget = search(layer, refitted)
    counts = [left(layer, budget.within(eps)) for eps in (0, 1e-6, 1e-4, 0.01, 0.03, 0.1, 0.3, 1)]
    assert counts == sorted(counts, reverse=True)


@given(layers(), st.floats(1e-5, 0.5))
def test_the_error_in_the_metric_is_within_eps_or_nothing_can_go(layer: Layer, eps: float) -> None:
    blocks = search(layer)
    found = blocks.within(eps)
    if found is None:
        assert layer.neurons == 1 or blocks.smallest_eps() > eps
        return
    x = latin_hypercube(200, layer.inputs, (-1.0, 1.0), seed=3)
    change = np.abs(found.layer(x) - layer(x))
    rounding = 16 * ROUNDOFF * layer.magnitude(x)
    assert found.error <= eps or np.all(change <= rounding)
    measured = OriginalLayer(layer, blocks.problem.metric).error_of(found.layer)
    assert found.error == pytest.approx(measured, abs=1e-7)


@given(layers(), st.randoms(use_true_random=False), st.sampled_from([0.0, 0.05, 0.2]))
def test_permuting_flipping_and_rescaling_neurons_changes_nothing_but_order(
    layer: Layer, random: object, eps: float
) -> None:
    rng = np.random.default_rng(random.getrandbits(32))  # type: ignore[attr-defined]
    order = rng.permutation(layer.neurons)
    power = rng.integers(-3, 4, layer.neurons)
    sign = rng.choice([-1.0, 1.0], layer.neurons)
    same = Layer(
        np.ldexp(layer.incoming * sign[:, None], power[:, None])[order],
        np.ldexp(layer.outgoing, -2 * power)[:, order],
        layer.offset,
    )
    first, second = search(layer).within(eps), search(same).within(eps)
    assert (first is None) == (second is None)
    if first is not None and second is not None:
        np.testing.assert_allclose(
            canonical_rows(first.layer), canonical_rows(second.layer), rtol=1e-6, atol=1e-6
        )
        renamed = {frozenset(int(order[i]) for i in block) for block in second.blocks}
        if distinct(layer):
            assert renamed == {frozenset(block) for block in first.blocks}


def canonical_rows(layer: Layer) -> FloatArray:
    """Each neuron's rank-1 contribution V_i ⊗ u_i u_iᵀ, in a fixed order."""
    squares = np.einsum("ij,ik->ijk", layer.incoming, layer.incoming)
    flat = np.einsum("mi,ijk->imjk", layer.outgoing, squares).reshape(layer.neurons, -1)
    return np.asarray(flat[np.lexsort(np.round(flat, 4).T)])


def distinct(layer: Layer) -> bool:
    """Whether no two neurons are equal, so that their numbers mean something."""
    rows = np.column_stack([np.abs(layer.incoming), np.abs(layer.outgoing.T)])
    return len(np.unique(rows.round(6), axis=0)) == layer.neurons


@pytest.mark.parametrize("seed", range(3))
def test_one_output_of_ten_inputs_needs_at_most_65_neurons(seed: int) -> None:
    rng = np.random.default_rng(seed)
    layer = Layer(rng.normal(size=(300, 11)), rng.normal(size=(1, 300)), rng.normal(size=1))
    layer = layer.stored_as(np.float32)
    found = search(layer).within(0.0)
    assert found is not None
    assert found.layer.neurons <= 65
    assert_equal_up_to_rounding(layer, found.layer)
    samples = rng.uniform(-1, 1, (1000, 10))
    with_data = search(layer, metric=Metric.measured(samples)).within(0.0)
    assert with_data is not None
    assert with_data.layer.neurons <= 67


def test_float64_layers_are_reduced_too() -> None:
    rng = np.random.default_rng(0)
    layer = Layer(rng.normal(size=(40, 4)), rng.normal(size=(2, 40)), rng.normal(size=2))
    blocks = BlockSearch(problem_of(layer, dtype=np.dtype(np.float64)))
    assert left(layer, blocks.within(0.0)) <= 11


def test_a_count_can_be_asked_for() -> None:
    rng = np.random.default_rng(1)
    layer = Layer(rng.normal(size=(20, 6)), rng.normal(size=(2, 20)), rng.normal(size=2))
    for count in (1, 5, 20):
        assert left(layer, search(layer).at_most(count)) == min(count, 20)


def test_a_count_above_the_lossless_one_gives_the_lossless_layer() -> None:
    rng = np.random.default_rng(1)
    layer = Layer(rng.normal(size=(20, 3)), rng.normal(size=(1, 20)), rng.normal(size=1))
    assert left(layer, search(layer).at_most(12)) == 5


def test_dead_and_constant_neurons_cost_nothing() -> None:
    incoming = np.array([[1.0, 2.0], [0.0, 3.0], [0.0, 0.0], [2.0, 1.0]])
    layer = Layer(incoming, np.array([[1.0, 2.0, 5.0, 0.0]]), np.array([1.0]))
    found = search(layer).within(0.0)
    assert found is not None
    assert found.blocks == ((0,),)
    assert found.layer.offset == pytest.approx([19.0])


@pytest.mark.parametrize("neurons", [1, 3])
def test_a_layer_of_constants_keeps_one_neuron_of_zeros(neurons: int) -> None:
    incoming = np.tile([0.0, 2.0], (neurons, 1))
    layer = Layer(incoming, np.ones((1, neurons)), np.zeros(1))
    found = search(layer).within(0.5)
    if neurons == 1:
        assert found is None
    else:
        assert found is not None
        assert found.layer.neurons == 1
        assert found.layer(np.ones((1, 1))) == pytest.approx(12.0)


def test_the_smallest_useful_eps_does_merge_something() -> None:
    rng = np.random.default_rng(2)
    layer = Layer(rng.normal(size=(8, 6)), rng.normal(size=(2, 8)), rng.normal(size=2))
    budget = search(layer)
    useful = budget.smallest_eps()
    assert budget.within(useful * 0.5) is None
    assert left(layer, budget.within(useful * 1.001)) < 8


def test_merging_beats_dropping_at_the_same_count() -> None:
    rng = np.random.default_rng(3)
    layer = Layer(rng.normal(size=(40, 9)), rng.normal(size=(3, 40)), rng.normal(size=3))
    metric = Metric.box(8, -1.0, 1.0)
    found = search(layer).at_most(20)
    assert found is not None
    strongest = np.argsort(-np.linalg.norm(layer.outgoing, axis=0))[:20]
    dropped = Layer(layer.incoming[strongest], layer.outgoing[:, strongest], layer.offset)
    assert found.error < 0.8 * OriginalLayer(layer, metric).error_of(dropped)


def test_dead_neurons_go_without_a_refit_too_and_counts_stay_counts() -> None:
    rng = np.random.default_rng(0)
    incoming, outgoing = rng.normal(size=(10, 7)), rng.normal(size=(2, 10))
    outgoing[:, 6:] = 0
    budget = search(Layer(incoming, outgoing, np.zeros(2)), refitted=False)
    assert left(budget.problem.layer, budget.within(0.0)) == 6
    assert [left(budget.problem.layer, budget.at_most(k)) for k in (9, 7, 6, 5)] == [6, 6, 6, 5]


def test_equal_neurons_that_almost_cancel_are_merged_without_loss() -> None:
    row = np.array([-1.48109686, 0.02344093, 0.58468539, 0.19808564])
    outgoing = np.array([[-0.02296797, 0.02344093]])
    layer = Layer(np.stack([row, row]), outgoing, np.zeros(1)).stored_as(np.float32)
    for refitted in (True, False):
        found = search(layer, refitted).within(0.0)
        assert left(layer, found) == 1
