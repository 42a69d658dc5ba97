"""Adding candidate neurons one after the other, and dropping neurons one by one."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import assume, given, settings

from onnxfde.neurons import candidates, greedy_steps
from onnxfde.neurons.candidates import CandidateNeurons
from onnxfde.neurons.elimination import eliminate
from onnxfde.neurons.kernels import Metric, features
from onnxfde.neurons.layer import Layer
from onnxfde.neurons.selection import Selection, select
from onnxfde.numbers import FloatArray
from onnxfde.progress import Progress
from tests.strategies import layers

Chooser = Callable[[CandidateNeurons], Selection]
NAMES = ("select", "eliminate")


def whitened(layer: Layer) -> tuple[FloatArray, FloatArray]:
    live = layer.without_constants()
    return Metric.box(layer.inputs, -1.0, 1.0).whiten(live.incoming), live.outgoing


def random_rows(neurons: int, inputs: int, seed: int = 0) -> tuple[FloatArray, FloatArray]:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(neurons, inputs + 1)), rng.normal(size=(3, neurons))


def least_squares_error(kept: FloatArray, rows: FloatArray, outgoing: FloatArray) -> float:
    target, basis = outgoing @ features(rows), features(kept)
    basis /= np.linalg.norm(basis, axis=1, keepdims=True)
    fit = np.linalg.lstsq(basis.T, target.T, rcond=1e-10)[0]
    return float(np.linalg.norm(target.T - basis.T @ fit))


def compared(rows: FloatArray, outgoing: FloatArray) -> CandidateNeurons:
    """The layer's own neurons and as many others."""
    others = np.random.default_rng(1).normal(size=rows.shape)
    return CandidateNeurons.of(np.vstack([rows, others]), rows, outgoing)


@pytest.mark.parametrize("choose", [lambda c: select(c, 12), lambda c: eliminate(c, 2)], ids=NAMES)
@settings(max_examples=40)
@given(layers())
def test_errors_are_those_of_least_squares(choose: Chooser, layer: Layer) -> None:
    rows, outgoing = whitened(layer)
    assume(len(rows))
    neurons = compared(rows, outgoing)
    found = choose(neurons)
    assert len(found.errors) == len(found.order) + 1
    assert len(set(found.order.tolist())) == len(found.order)
    for count in range(1, len(found.order) + 1):
        error = least_squares_error(neurons.rows[found.order[:count]], rows, outgoing)
        assert found.errors[count] == pytest.approx(error, rel=1e-4, abs=2e-6 * neurons.total)


@pytest.mark.parametrize("choose", [lambda c: select(c, 80), lambda c: eliminate(c, 1)], ids=NAMES)
@pytest.mark.parametrize("inputs", [3, 12])
def test_more_neurons_have_no_larger_error(choose: Chooser, inputs: int) -> None:
    found = choose(compared(*random_rows(40, inputs)))
    assert np.all(np.diff(found.errors) <= 1e-9 * found.errors[0])


def test_each_neuron_added_is_the_best_one() -> None:
    rows, outgoing = random_rows(12, 6)
    neurons = compared(rows, outgoing)
    found = select(neurons, 4)
    for count in range(1, 5):
        before = neurons.rows[found.order[: count - 1]]
        errors = [
            least_squares_error(np.vstack([before, row]), rows, outgoing) for row in neurons.rows
        ]
        assert int(np.argmin(errors)) == found.order[count - 1]


def test_each_neuron_dropped_is_the_least_one() -> None:
    rows, outgoing = random_rows(12, 6)
    found = eliminate(CandidateNeurons.of(rows, rows, outgoing), 8)
    for count in range(12, 8, -1):
        left = found.order[:count]
        errors = [least_squares_error(rows[left[left != i]], rows, outgoing) for i in left]
        assert left[int(np.argmin(errors))] == found.order[count - 1]


@pytest.mark.parametrize("choose", [lambda c: select(c, 100), lambda c: eliminate(c, 5)], ids=NAMES)
@pytest.mark.parametrize("seed", range(2))
def test_blocks_of_steps_are_close_to_single_steps(
    choose: Chooser, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    neurons = compared(*random_rows(120, 16, seed))
    single = choose(neurons).errors
    for name, value in (("FEW_CANDIDATES", 16), ("STEPS", 8), ("POOL", 48)):
        monkeypatch.setattr(greedy_steps, name, value)
    together = choose(neurons).errors
    assert together.shape == single.shape
    assert np.all(together[:100] <= 1.03 * single[:100])


def test_features_and_kernels_choose_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, outgoing = random_rows(60, 5)
    by_features = select(compared(rows, outgoing), 15)
    monkeypatch.setattr(candidates, "few_features", lambda count, width: False)
    by_kernels = select(compared(rows, outgoing), 15)
    assert by_features.order.tolist() == by_kernels.order.tolist()
    np.testing.assert_allclose(by_features.errors, by_kernels.errors, rtol=1e-6, atol=0)


def test_float32_chooses_nearly_as_well() -> None:
    rows, outgoing = random_rows(60, 16)
    coarse = CandidateNeurons.of(rows, rows, outgoing, dtype=np.float32)
    exact = select(CandidateNeurons.of(rows, rows, outgoing), 40)
    np.testing.assert_allclose(select(coarse, 40).errors, exact.errors, rtol=1e-3, atol=0)


@pytest.mark.parametrize("neurons", [30, 3000])
def test_selection_ends_at_the_lossless_limit(neurons: int) -> None:
    """Squares of 4 inputs and a bias have 14 features beside the constant."""
    rows, outgoing = random_rows(neurons, 4)
    found = select(CandidateNeurons.of(rows, rows, outgoing), neurons)
    assert len(found.order) == 14
    assert found.errors[14] <= 1e-12 * found.errors[0]
    assert found.errors[13] >= 1e-6 * found.errors[0]


def test_duplicates_are_chosen_once() -> None:
    rows, outgoing = random_rows(20, 12)
    rows[10:] = -2 * rows[:10]
    neurons = CandidateNeurons.of(rows, rows, outgoing)
    assert len(select(neurons, 20).order) == len(eliminate(neurons, 4).order) == 10


def test_selection_stops_at_an_error() -> None:
    neurons = compared(*random_rows(40, 12))
    whole = select(neurons, 40)
    stop = 0.3 * neurons.total
    found = select(neurons, 40, stop)
    assert found.errors[-1] <= stop < found.errors[-2]
    assert found.order.tolist() == whole.order[: len(found.order)].tolist()


def test_neurons_that_are_kept_in_any_case_count_as_chosen() -> None:
    rows, outgoing = random_rows(40, 12)
    neurons = compared(rows, outgoing)
    kept, others = np.arange(25), np.arange(25, 80)
    beside = neurons.only(others).beside(neurons.only(kept))
    for found in (select(beside, 10), eliminate(beside, 3)):
        for count in (0, 5, 10):
            both = np.vstack([rows[kept], neurons.rows[others[found.order[:count]]]])
            error = least_squares_error(both, rows, outgoing)
            assert found.errors[count] == pytest.approx(error, rel=1e-5, abs=1e-6 * neurons.total)


def test_both_tell_their_progress() -> None:
    heard: list[tuple[int, int]] = []
    progress = Progress(at=lambda done, total: heard.append((done, total)))
    neurons = compared(*random_rows(10, 12))
    select(neurons, 7, progress=progress)
    assert heard[-1] == (7, 7)
    eliminate(neurons, 7, progress)
    assert heard[-1] == (13, 13)
