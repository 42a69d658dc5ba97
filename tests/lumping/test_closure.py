"""The fast partitions equal those from all pairs, at sizes where tiles and bounds matter."""

from __future__ import annotations

from functools import partial
from itertools import combinations

import numpy as np
import pytest

from onnxfde.lumping import closure
from onnxfde.lumping.closure import Effort, Forest
from onnxfde.lumping.distance import condensed
from onnxfde.lumping.partition import partition
from onnxfde.neurons.layer import Layer
from onnxfde.numbers import Blocks
from onnxfde.options import Norm, Relation
from onnxfde.progress import Progress


def planted(seed: int, neurons: int = 150, inputs: int = 12) -> Layer:
    """A tenth of the neurons are near-duplicates of others."""
    rng = np.random.default_rng(seed)
    incoming = rng.normal(size=(neurons, inputs + 1))
    outgoing = rng.normal(size=(4, neurons))
    copies = neurons // 10
    incoming[-copies:] = incoming[:copies] + 1e-3 * rng.normal(size=(copies, inputs + 1))
    outgoing[:, -copies:] = outgoing[:, :copies] + 1e-3 * rng.normal(size=(4, copies))
    incoming *= rng.choice([-1.0, 1.0], (neurons, 1))
    return Layer(incoming / np.abs(incoming).sum(axis=1, keepdims=True), outgoing, np.zeros(4))


def from_all_pairs(layer: Layer, eps: float, relation: Relation, norm: Norm, erode: bool) -> Blocks:
    """Every pair with the tolerance of its own coefficients, joined by hand."""
    squares = np.abs(np.einsum("ij,ik->ijk", layer.incoming, layer.incoming)) * 2
    squares[:, range(layer.inputs + 1), range(layer.inputs + 1)] /= 2
    coefficients = (
        np.abs(layer.outgoing).max(axis=0) if relation == "forward" else squares.max((1, 2))
    )
    home = {i: {i} for i in range(layer.neurons)}
    for (i, j), gap in zip(
        combinations(range(layer.neurons), 2), condensed(layer, relation, norm, erode), strict=True
    ):
        if (
            gap <= eps + 1e-12 * max(1.0, coefficients[i], coefficients[j])
            and home[i] is not home[j]
        ):
            home[i] |= home[j]
            home.update(dict.fromkeys(home[j], home[i]))
    return tuple(sorted({tuple(sorted(block)) for block in home.values()}))


@pytest.mark.parametrize("eps", [0.0, 1e-3, 0.05, 0.3, 0.8])
@pytest.mark.parametrize(
    ("relation", "norm", "erode"),
    [("forward", "sum", False), ("forward", "sum", True), ("backward", "sum", False),
     ("backward", "max", False)],
)  # fmt: skip
def test_closure_is_that_of_all_pairs(
    monkeypatch: pytest.MonkeyPatch, eps: float, relation: Relation, norm: Norm, erode: bool
) -> None:
    for seed in range(2):
        layer = planted(seed)
        expected = from_all_pairs(layer, eps, relation, norm, erode)
        for tile in (16, 512):
            monkeypatch.setattr(closure, "CLOSURE_TILE", tile)
            assert partition(layer, eps, relation, norm, erode=erode) == expected


def test_rows_of_different_length_are_ruled_out_by_it() -> None:
    layer = planted(0)
    scale = np.random.default_rng(0).uniform(0.1, 10, (layer.neurons, 1))
    stretched = Layer(layer.incoming * scale, layer.outgoing, layer.offset)
    assert partition(stretched, 0.05, "backward") == from_all_pairs(
        stretched, 0.05, "backward", "sum", False
    )


def test_bounds_decide_almost_every_pair() -> None:
    effort = Effort()
    layer = planted(1, neurons=400, inputs=60)
    partition(layer, 0.05, "backward", effort=effort)
    assert effort.evaluated < 0.01 * 400 * 399 / 2


def test_one_cluster_is_found_without_looking_at_every_pair() -> None:
    rng = np.random.default_rng(2)
    row = rng.normal(size=21) / 21
    layer = Layer(row + 1e-6 * rng.normal(size=(300, 21)), np.ones((2, 300)), np.zeros(2))
    for relation in ("forward", "backward"):
        effort = Effort()
        assert len(partition(layer, 0.01, relation, effort=effort)) == 1
        assert effort.evaluated <= 300


def heard_in(heard: list[tuple[int, int]], done: int, total: int) -> None:
    heard.append((done, total))


def test_progress_is_told_in_pairs_and_ends_at_the_last() -> None:
    for relation in ("forward", "backward"):
        heard: list[tuple[int, int]] = []
        progress = Progress(at=partial(heard_in, heard))
        effort = Effort(progress=progress)
        partition(planted(3), 0.01, relation, effort=effort)
        assert heard[-1] == (150 * 149 // 2, 150 * 149 // 2)
        assert heard == sorted(heard)


def test_a_forest_joins_what_is_connected() -> None:
    forest = Forest(6)
    forest.join(4, 5)
    forest.join(3, 4)
    assert forest.roots().tolist() == [0, 1, 2, 3, 3, 3]
    assert forest.all_joined(np.array([3, 5]))
    assert not forest.all_joined(np.array([0, 5]))


def test_diameter_splits_components_only() -> None:
    layer = Layer(np.eye(5), np.array([[0.0, 0.1, 0.2, 5.0, 5.1]]), np.zeros(1))
    assert partition(layer, 0.1, "forward", linkage="closure") == ((0, 1, 2), (3, 4))
    blocks = partition(layer, 0.1, "forward", linkage="diameter")
    assert sorted(map(len, blocks)) == [1, 2, 2]


def test_a_single_neuron_and_none() -> None:
    assert partition(Layer(np.ones((1, 2)), np.ones((1, 1)), np.zeros(1)), 1.0) == ((0,),)
    assert partition(Layer(np.ones((0, 2)), np.ones((1, 0)), np.zeros(1)), 1.0) == ()


def test_one_large_weight_does_not_blur_the_others() -> None:
    outlier = Layer(np.eye(3), np.array([[1.0, 1.0005, 1e9]]), np.zeros(1))
    assert partition(outlier, 0.0, "forward") == ((0,), (1,), (2,))
    rows = Layer(
        np.array([[1.0, 0.0], [1.000001, 0.0], [3000.0, 0.0]]), np.ones((1, 3)), np.zeros(1)
    )
    assert partition(rows, 0.0, "backward") == ((0,), (1,), (2,))


def test_rows_too_large_for_float32_are_compared() -> None:
    layer = Layer(np.array([[1e39, 0.0], [1e39, 0.0], [0.0, 1e39]]), np.ones((1, 3)), np.zeros(1))
    assert partition(layer, 0.0, "backward") == ((0, 1), (2,))


def test_diameter_as_erode_measures_it() -> None:
    layer = Layer(np.eye(3), np.array([[0.0, 1.0, 2.0]]), np.zeros(1))
    blocks = partition(layer, 3.0, "forward", linkage="diameter", erode=True)
    assert sorted(map(len, blocks)) == [1, 2]
