"""The best nodes of a merge tree."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from onnxfde.neurons import tree_choice
from onnxfde.neurons.kernels import norm
from onnxfde.neurons.layer import Layer
from onnxfde.neurons.merge_order import merge_tree
from onnxfde.neurons.tree_choice import TreeChoice, nodes_near, nodes_of_cut
from tests.neurons.test_selection import least_squares_error, random_rows, whitened
from tests.strategies import layers


@settings(max_examples=50)
@given(layers(), st.booleans(), st.data())
def test_it_is_never_worse_than_the_cut(layer: Layer, large: bool, data: st.DataObject) -> None:
    rows, outgoing = whitened(layer)
    assume(len(rows))
    count = data.draw(st.integers(1, len(rows)))
    tree, total = merge_tree(rows, outgoing), norm(rows, outgoing)
    with pytest.MonkeyPatch.context() as patch:
        if large:
            patch.setattr(tree_choice, "FEW_TO_CHOOSE_FROM", 0)
        nodes, error = TreeChoice(tree, rows, outgoing, total).best(count)
    assert len(nodes) <= count
    true_error = least_squares_error(tree.nodes[nodes], rows, outgoing)
    assert error == pytest.approx(true_error, rel=1e-3, abs=1e-5 * total)
    cut_error = least_squares_error(tree.nodes[tree.cut(count)[0]], rows, outgoing)
    assert true_error <= 1.001 * cut_error + 1e-5 * total


@pytest.mark.parametrize("large", [False, True])
def test_it_is_better_than_the_cut_of_a_random_layer(
    large: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, outgoing = random_rows(100, 12)
    if large:
        monkeypatch.setattr(tree_choice, "FEW_TO_CHOOSE_FROM", 0)
    tree = merge_tree(rows, outgoing)
    choice = TreeChoice(tree, rows, outgoing, norm(rows, outgoing))
    for count in (80, 50, 25):
        cut_error = least_squares_error(tree.nodes[tree.cut(count)[0]], rows, outgoing)
        assert choice.best(count)[1] <= 0.98 * cut_error


def test_the_nodes_of_a_cut_are_its_blocks() -> None:
    tree = merge_tree(*random_rows(30, 5))
    for count in (30, 17, 1):
        rows = {row.tobytes() for row in tree.nodes[tree.cut(count)[0]]}
        assert {row.tobytes() for row in tree.nodes[nodes_of_cut(tree, count)]} == rows


@pytest.mark.parametrize("count", [1, 10, 25, 30])
def test_candidates_are_the_nodes_of_the_cuts_around_the_count(count: int) -> None:
    tree = merge_tree(*random_rows(30, 5))
    near, certain = nodes_near(tree, count)
    cuts = [set(nodes_of_cut(tree, k).tolist()) for k in range(max(count // 2, 1), count + 1)]
    assert set(certain) <= cuts[-1] <= set(near) | set(certain)
    assert not set(near) & set(certain)
    assert np.all(np.diff(near) > 0)
