"""The laws of the freely chosen neurons, for one layer."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onnxfde.neurons.block_search import BlockSearch
from onnxfde.neurons.free_search import FreeSearch
from onnxfde.neurons.frontier import Reduced
from onnxfde.neurons.held_out import Evidence
from onnxfde.neurons.kernels import Metric
from onnxfde.neurons.layer import Layer
from onnxfde.progress import Progress
from onnxfde.running.random_inputs import latin_hypercube
from tests.strategies import layers, problem_of, redundant_layers

ROUNDOFF = 2.0**-24


def free(
    layer: Layer,
    metric: Metric | None = None,
    evidence: Evidence | None = None,
    progress: Progress | None = None,
    **more: Any,
) -> FreeSearch:
    problem, progress = problem_of(layer, metric, evidence=evidence, **more), progress or Progress()
    return FreeSearch(problem, BlockSearch(problem, progress=progress), progress)


def left(layer: Layer, found: Reduced | None) -> int:
    return found.layer.neurons if found else layer.neurons


def random_layer(inputs: int, neurons: int, outputs: int, seed: int = 0) -> Layer:
    rng = np.random.default_rng(seed)
    incoming, outgoing = rng.normal(size=(neurons, inputs + 1)), rng.normal(size=(outputs, neurons))
    return Layer(incoming, outgoing, rng.normal(size=outputs)).stored_as(np.float32)


@settings(max_examples=40, deadline=None)
@given(layers(), st.integers(1, 8))
def test_at_the_same_count_it_is_never_worse_than_refit(layer: Layer, count: int) -> None:
    search = free(layer)
    refitted, found = search.blocks.at_most(count), search.at_most(count)
    assert left(layer, found) <= max(count, left(layer, refitted))
    if refitted is not None:
        assert found is not None
        assert found.error <= refitted.error or search.problem.accepts(found, 0.0)


@settings(max_examples=15, deadline=None)
@given(layers())
def test_a_larger_eps_never_leaves_more_neurons_and_eps_holds(layer: Layer) -> None:
    search, counts = free(layer), []
    unchanged = Reduced(layer, (), 0.0)
    for eps in (0.0, 1e-4, 0.01, 0.1, 0.5):
        found = search.within(eps) or unchanged
        counts.append(found.layer.neurons)
        assert counts[-1] <= left(layer, search.blocks.within(eps))
        assert found.error <= eps or search.problem.accepts(found, 0.0)
        assert (search.problem.lower_bound(counts[-1]) or 0) <= found.error + 1e-9
    assert counts == sorted(counts, reverse=True)


@settings(max_examples=40, deadline=None)
@given(redundant_layers())
def test_lossless_is_smaller_and_equal_up_to_rounding(layer: Layer) -> None:
    found = free(layer).within(0.0)
    assert found is not None
    assert found.layer.neurons < layer.neurons
    x = latin_hypercube(200, layer.inputs, (-1.0, 1.0), seed=7)
    change = np.abs(layer(x) - found.layer(x))
    assert np.all(change <= 16 * ROUNDOFF * layer.magnitude(x))


@pytest.mark.parametrize(
    ("inputs", "neurons", "outputs", "lossless"), [(10, 300, 1, 10), (6, 60, 6, 27), (8, 50, 2, 16)]
)
def test_lossless_is_the_smaller_of_eigenvectors_and_a_basis(
    inputs: int, neurons: int, outputs: int, lossless: int
) -> None:
    found = free(random_layer(inputs, neurons, outputs)).within(0.0)
    assert found is not None
    assert found.layer.neurons == lossless


def test_planted_neurons_are_found_again() -> None:
    small, rng = random_layer(6, 5, 4), np.random.default_rng(2)
    copies = rng.integers(0, 5, 60)
    incoming = small.incoming[copies] + 1e-3 * rng.normal(size=(60, 7))
    large = Layer(incoming, rng.normal(size=(4, 60)), small.offset)
    found = free(large).within(0.02)
    assert found is not None
    assert found.layer.neurons == 5


def test_the_seed_decides_and_the_same_one_gives_the_same_weights() -> None:
    layer = random_layer(6, 40, 2)
    found = [free(layer, seed=seed).at_most(7) for seed in (0, 0, 1)]
    weights = [f.layer.incoming for f in found if f is not None]
    assert len(weights) == 3
    np.testing.assert_array_equal(weights[0], weights[1])
    assert not np.array_equal(weights[0], weights[2])


def test_wide_layers_are_searched_by_products_of_neurons() -> None:
    layer = random_layer(120, 60, 3)
    search = free(layer)
    refitted, found = search.blocks.at_most(20), search.at_most(20)
    assert refitted is not None
    assert found is not None
    assert found.error < 0.95 * refitted.error
    told: list[tuple[int, int]] = []
    free(layer, progress=Progress(at=lambda a, b: told.append((a, b)))).within(0.5)
    assert told
    assert all(0 <= done <= total for done, total in told)


def heavy_tailed(rows: int, inputs: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(rows, inputs)) ** 3 * rng.uniform(0.2, 2, inputs)


def test_evidence_lowers_the_error_on_inputs_that_are_not_gaussian() -> None:
    layer = random_layer(8, 60, 4)
    seen, unseen = heavy_tailed(2000, 8, 1), heavy_tailed(2000, 8, 2)
    metric = Metric.measured(seen)
    plain = free(layer, metric).at_most(8)
    taught = free(layer, metric, Evidence(seen, layer(seen))).at_most(8)
    assert plain is not None
    assert taught is not None
    test = Evidence(unseen, layer(unseen))
    assert test.error(taught.layer) < 0.9 * test.error(plain.layer)


def test_evidence_corrects_what_earlier_layers_did() -> None:
    layer = random_layer(6, 30, 3)
    x = np.random.default_rng(1).normal(size=(1000, 6))
    shifted = 1.1 * x + 0.2
    evidence = Evidence(shifted, layer(x))
    found = free(layer, Metric.measured(shifted), evidence).at_most(20)
    assert found is not None
    assert evidence.held_out.error(found.layer) < 0.2 * evidence.held_out.error(layer)


def test_with_evidence_eps_holds_on_rows_that_were_held_out() -> None:
    layer, x = random_layer(5, 40, 3), heavy_tailed(1000, 5, 3)
    evidence = Evidence(x, layer(x))
    for eps in (0.3, 0.1, 0.01):
        found = free(layer, Metric.measured(x), evidence).within(eps)
        assert found is not None
        assert evidence.held_out.error(found.layer) <= eps


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 4), st.integers(2, 10), st.integers(1, 2))
def test_small_whole_weights_are_no_obstacle(
    seed: int, inputs: int, neurons: int, outputs: int
) -> None:
    rng = np.random.default_rng(seed)
    incoming = rng.integers(-1, 2, (neurons, inputs + 1)).astype(float)
    layer = Layer(
        incoming, rng.integers(-1, 2, (outputs, neurons)).astype(float), np.zeros(outputs)
    )
    search = free(layer, Metric.box(inputs, 0.0, 1.0))
    for found in (search.within(0.1), search.at_most(1)):
        assert found is None or found.layer.finite


def test_inputs_that_nothing_reads_do_not_hide_what_is_lossless() -> None:
    small = random_layer(4, 12, 1)
    wide = Layer(
        np.column_stack([small.incoming[:, :-1], np.zeros((12, 26)), small.incoming[:, -1]]),
        small.outgoing,
        small.offset,
    )
    found = free(wide).within(0.0)
    assert found is not None
    assert found.layer.neurons == 4


def test_what_rounding_brought_in_does_not_keep_more_neurons_than_are_lossless() -> None:
    layer = random_layer(4, 30, 3)
    x = np.random.default_rng(1).normal(size=(500, 4))
    evidence = Evidence(x * (1 + 1e-8), layer(x))
    found = free(layer, Metric.measured(x), evidence).at_most(25)
    assert found is not None
    assert found.layer.neurons == 12


def test_neurons_that_cancel_have_no_bound_above_their_error() -> None:
    rng = np.random.default_rng(0)
    rows, weights = rng.normal(size=(5, 4)), rng.normal(size=(2, 5))
    layer = Layer(np.vstack([rows, rows]), np.hstack([weights, -weights]), np.zeros(2))
    assert problem_of(layer, Metric.plain(3)).lower_bound(1) == 0.0


def test_with_evidence_a_larger_eps_never_leaves_more_neurons() -> None:
    layer, x = random_layer(6, 32, 2), np.random.default_rng(4).uniform(0, 1, (500, 6))
    search = free(layer, Metric.measured(x), Evidence(x, layer(x)))
    counts = []
    for eps in np.geomspace(0.005, 0.3, 8):
        found = search.within(float(eps))
        assert found is not None
        assert search.problem.expected_error(found) <= eps or found is search.lossless
        counts.append(found.layer.neurons)
    assert counts == sorted(counts, reverse=True)
    assert counts[-1] < counts[0] < 12
