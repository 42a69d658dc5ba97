"""The merge tree and the pivoted basis."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from onnxfde.neurons import merge_order
from onnxfde.neurons.activation import Activation
from onnxfde.neurons.kernels import Metric, features
from onnxfde.neurons.layer import Layer
from onnxfde.neurons.merge_order import canonical, merge_tree
from onnxfde.neurons.piecewise_activations import RELU
from onnxfde.neurons.pivoted_basis import pivoted_basis
from onnxfde.neurons.polynomial_activations import SQUARE
from onnxfde.progress import Progress
from tests.strategies import CUBE, layers


def random_layer(neurons: int, inputs: int, seed: int = 0) -> Layer:
    rng = np.random.default_rng(seed)
    return Layer(rng.normal(size=(neurons, inputs + 1)), rng.normal(size=(3, neurons)), np.zeros(3))


def rows_of(layer: Layer) -> tuple[np.ndarray, np.ndarray]:
    alive = canonical(layer.without_constants())[0]
    return Metric.box(layer.inputs, -1.0, 1.0).whiten(alive.incoming), alive.outgoing


@settings(max_examples=50)
@given(layers())
def test_every_cut_partitions_the_neurons(layer: Layer) -> None:
    rows, outgoing = rows_of(layer)
    assume(len(rows))
    tree = merge_tree(rows, outgoing)
    for count in range(1, len(rows) + 1):
        kept, blocks = tree.cut(count)
        assert len(kept) == len(blocks) == count
        assert sorted(i for block in blocks for i in block) == list(range(len(rows)))


def test_the_tree_is_the_same_without_the_table_of_all_pairs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows, outgoing = rows_of(random_layer(90, 8))
    with_table = merge_tree(rows, outgoing)
    monkeypatch.setattr(merge_order, "MOST_TABLED", 0)
    monkeypatch.setattr(merge_order, "TABLE_TILE", 7)
    without = merge_tree(rows, outgoing)
    for count in (60, 30, 10, 3):
        assert with_table.cut(count)[1] == without.cut(count)[1]


@pytest.mark.parametrize("seed", range(3))
def test_many_joins_at_once_are_close_to_one_at_a_time(seed: int) -> None:
    """At equal counts the blocks explain nearly the same of the layer."""
    rows, outgoing = rows_of(random_layer(150, 6, seed))
    together, single = (merge_tree(rows, outgoing, share=s) for s in (None, 0.0))
    target = outgoing @ features(rows)
    for count in (20, 15, 10):
        left = []
        for tree in (together, single):
            basis = features(tree.nodes[tree.cut(count)[0]])
            fit = np.linalg.lstsq(basis.T, target.T, rcond=None)[0]
            left.append(np.linalg.norm(target.T - basis.T @ fit))
        assert left[0] <= 1.25 * left[1]


def test_duplicates_join_first_whatever_their_scale() -> None:
    layer = random_layer(12, 5)
    incoming, outgoing = layer.incoming.copy(), layer.outgoing
    incoming[7] = -3 * incoming[2]
    rows = Metric.box(5, -1.0, 1.0).whiten(incoming)
    assert {2, 7} in map(set, merge_tree(rows, outgoing).cut(11)[1])


def test_progress_counts_the_joins() -> None:
    heard: list[tuple[int, int]] = []
    rows, outgoing = rows_of(random_layer(40, 5))
    merge_tree(rows, outgoing, Progress(at=lambda done, total: heard.append((done, total))))
    assert heard[-1] == (39, 39)


@given(layers(), st.data())
def test_the_errors_of_the_basis_are_those_of_least_squares(
    layer: Layer, data: st.DataObject
) -> None:
    rows, outgoing = rows_of(layer)
    assume(len(rows))
    count = data.draw(st.integers(1, len(rows)))
    basis = pivoted_basis(rows, outgoing)
    kept, blocks = basis.cut(count)
    assert sorted(i for block in blocks for i in block) == list(range(len(rows)))
    target = outgoing @ features(rows)
    fit = np.linalg.lstsq(features(rows[kept]).T, target.T, rcond=1e-10)[0]
    left = np.linalg.norm(target.T - features(rows[kept]).T @ fit)
    assert basis.errors[count] == pytest.approx(
        left, rel=1e-3, abs=1e-5 * float(np.linalg.norm(target))
    )


def test_equally_strong_neurons_find_each_other() -> None:
    """After the twins have joined, what is left are two neurons of exactly equal strength."""
    rows = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 1.0, 0.0]])
    for sign in (1.0, -1.0):
        tree = merge_tree(rows, np.array([[2.0 * sign, 1.0, 1.0]]))
        assert list(map(set, tree.cut(2)[1])) == [{0}, {1, 2}]
        assert len(tree.cut(1)[1]) == 1


def test_strengths_that_overflow_still_end() -> None:
    with np.errstate(over="ignore", invalid="ignore"):
        tree = merge_tree(np.eye(3), np.full((1, 3), 1e160))
    assert len(tree.cut(1)[1]) == 1


@given(st.integers(0, 2**16), st.sampled_from([SQUARE, RELU, CUBE]))
def test_the_canonical_form_is_the_same_function_whatever_the_scales(
    seed: int, activation: Activation
) -> None:
    rng = np.random.default_rng(seed)
    layer = replace(random_layer(7, 3, seed), activation=activation)
    power, order = rng.integers(-5, 6, 7), rng.permutation(7)
    sign = rng.choice([-1.0, 1.0], 7) if activation.even else np.ones(7)
    other = replace(
        layer,
        incoming=np.ldexp(layer.incoming * sign[:, None], power[:, None])[order],
        outgoing=np.ldexp(layer.outgoing, -(activation.degree or 0) * power)[:, order],
    )
    first, second = canonical(layer)[0], canonical(other)[0]
    np.testing.assert_array_equal(first.incoming, second.incoming)
    np.testing.assert_array_equal(first.outgoing, second.outgoing)
    x = rng.normal(size=(10, 3))
    np.testing.assert_allclose(first(x), layer(x), rtol=0, atol=1e-12 * layer.magnitude(x).max())


def test_a_sign_that_is_not_free_is_kept() -> None:
    rows = np.array([[1.0, 2.0], [-1.0, -2.0]])
    square = Layer(rows, np.ones((1, 2)), np.zeros(1))
    assert (canonical(square)[0].incoming[:, 0] > 0).all()
    relu = canonical(replace(square, activation=RELU))[0]
    assert sorted(np.sign(relu.incoming[:, 0])) == [-1.0, 1.0]
