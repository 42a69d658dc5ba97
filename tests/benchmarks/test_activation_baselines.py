"""The other pruning methods of the activations benchmark, on layers where the answer is known."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.activations.autoencoder import DECIBELS, detector_cells, made_spectra
from benchmarks.activations.bars import bar_rows, below_refit, points_lost, same_counts
from benchmarks.activations.baselines import Pair, interpolated, strongest
from benchmarks.activations.cells import Cell, all_cells
from benchmarks.activations.methods import size_words
from benchmarks.activations.torch_pruned import left
from benchmarks.activations.transformers import patches
from benchmarks.common.fashion import fashion_rows
from benchmarks.common.found_cells import Found
from onnxfde.numbers import Array

RNG = np.random.default_rng(0)


def relu_pair(neurons: int, inputs: int = 5, outputs: int = 3) -> Pair:
    return Pair(
        RNG.normal(size=(neurons, inputs)),
        RNG.normal(size=neurons),
        RNG.normal(size=(outputs, neurons)),
        RNG.normal(size=outputs),
    )


def hidden(pair: Pair, x: Array) -> Array:
    return np.asarray(np.maximum(x @ pair.incoming.T + pair.bias, 0))


def outputs(pair: Pair, x: Array) -> Array:
    return np.asarray(hidden(pair, x) @ pair.outgoing.T + pair.offset)


def test_magnitude_keeps_the_neurons_with_the_largest_weights_in_their_order() -> None:
    pair = relu_pair(6)
    scale = np.array([1, 50, 1, 70, 1, 60.0])
    grown = Pair(pair.incoming * scale[:, None], pair.bias * scale, pair.outgoing, pair.offset)
    kept = strongest(grown, 3)
    assert np.array_equal(kept.bias, grown.bias[[1, 3, 5]])
    assert np.array_equal(kept.outgoing, grown.outgoing[:, [1, 3, 5]])


def test_interpolation_is_exact_where_neurons_are_multiples_of_others() -> None:
    few = relu_pair(4)
    scale = RNG.uniform(0.5, 2, 12)
    many = Pair(
        np.tile(few.incoming, (3, 1)) * scale[:, None],
        np.tile(few.bias, 3) * scale,
        RNG.normal(size=(3, 12)),
        few.offset,
    )
    x, unseen = RNG.normal(size=(2, 100, 5))
    found = interpolated(many, 4, hidden(many, x))
    assert found.incoming.shape == (4, 5)
    assert np.allclose(outputs(found, unseen), outputs(many, unseen), atol=1e-9)


def test_interpolation_is_closer_than_magnitude_on_unseen_rows() -> None:
    pair = relu_pair(60)
    x, unseen = RNG.normal(size=(2, 500, 5))
    errors = [
        np.linalg.norm(outputs(found, unseen) - outputs(pair, unseen))
        for found in (interpolated(pair, 20, hidden(pair, x)), strongest(pair, 20))
    ]
    assert errors[0] < 0.5 * errors[1]


def test_patches_are_the_squares_of_an_image_row_by_row() -> None:
    image = np.arange(784, dtype=np.float32).reshape(1, 784)
    found = patches(image, 4)
    assert found.shape == (1, 49, 16)
    assert np.array_equal(found[0, 8].reshape(4, 4), image.reshape(28, 28)[4:8, 4:8])


@pytest.mark.parametrize(("size", "neurons"), [("30%", 76), ("10%", 25), ("26", 26), ("400", 256)])
def test_a_size_is_a_share_or_a_count(size: str, neurons: int) -> None:
    assert left(256, size) == neurons


def test_sizes_become_options_of_the_command() -> None:
    found = [size_words(size) for size in ("50%", "26", "ε 0.01")]
    assert found == [["--keep", "50%"], ["--neurons", "26"], ["--eps", "0.01"]]


def test_finished_cells_are_found_again(tmp_path: Path) -> None:
    cell = Cell("lenet-0", "minimal, no data", "50%")
    found = Found.opened(tmp_path / "results.json")
    found.add(cell, {"error": 0.25})
    again = Found.opened(tmp_path / "results.json")
    assert again.get(cell) == {"error": 0.25}
    again.forget([cell])
    assert Found.opened(tmp_path / "results.json").get(cell) is None


def test_every_promise_has_its_cells_in_a_full_run(tmp_path: Path) -> None:
    found = Found(tmp_path / "results.json")
    assert {row[4] for row in bar_rows(found)} == {"not run yet"}
    cheap = {"error": 0.5, "score": 0.5, "base": 0.5, "cpu": 1.0, "neurons": [9]}
    found.results = {cell.key: cheap for cell in (*all_cells(quick=False), *detector_cells())}
    assert "not run yet" not in {row[4] for row in bar_rows(found)}


def test_promises_are_judged_by_loss_time_and_share() -> None:
    lost = {"base": 0.9, "score": 0.89, "cpu": 3.0}
    assert points_lost(1.01, [lost]) == ("1.00 points, 3.0 s", True)
    assert not points_lost(0.99, [lost])[1]
    assert not points_lost(1.01, [{**lost, "cpu": 15.1}])[1]
    assert below_refit([{"error": 0.094}, {"error": 0.1}])[1]
    assert not below_refit([{"error": 0.096}, {"error": 0.1}])[1]
    assert same_counts([{"neurons": [100, 100]}, {"neurons": [101, 101]}]) == ("200, 202", True)
    assert not same_counts([{"neurons": [100, 100]}, {"neurons": [103, 100]}])[1]


def test_made_spectra_lie_in_the_range_and_are_not_constant() -> None:
    x = made_spectra(50, seed=1)
    assert x.shape == (50, 640)
    assert DECIBELS[0] <= x.min() < -40 < 0 < x.max() <= DECIBELS[1]
    assert not np.array_equal(x, made_spectra(50, seed=2))


def test_missing_images_are_named_with_the_package_that_has_them(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="apt install dataset-fashion-mnist"):
        fashion_rows(tmp_path)
