"""Closure chains, diameter does not."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.spatial.distance import squareform

from onnxfde.lumping.distance import condensed
from onnxfde.lumping.partition import Dendrogram
from onnxfde.neurons.layer import Layer
from onnxfde.numbers import FloatArray

CHAIN = Layer(np.eye(4), np.array([[0.0, 0.1, 0.2, 0.9]]), np.zeros(1))
layers = arrays(float, (5, 4), elements=st.floats(-1, 1, width=16)).map(
    lambda a: Layer(a[:, :3], a[:, 3:].T, np.zeros(1))
)


def test_closure_joins_along_chains() -> None:
    assert Dendrogram.of(CHAIN, "forward", "sum", "closure").cut(0.1) == ((0, 1, 2), (3,))


def test_diameter_keeps_every_pair_within_eps() -> None:
    blocks = Dendrogram.of(CHAIN, "forward", "sum", "diameter").cut(0.1)
    assert sorted(map(len, blocks)) == [1, 1, 2]


def test_ties_in_decimals_count_as_joined() -> None:
    layer = Layer(np.eye(2), np.array([[0.1, 0.3]]), np.zeros(1))
    assert Dendrogram.of(layer, "forward", "sum", "closure").cut(0.2) == ((0, 1),)
    assert Dendrogram.of(layer, "forward", "sum", "closure").cut(0.2 - 1e-9) == ((0,), (1,))


def test_at_most_gives_the_finest_partition_that_is_small_enough() -> None:
    tree = Dendrogram.of(CHAIN, "forward", "sum", "closure")
    assert tree.at_most(2) == ((0, 1, 2), (3,))
    assert tree.at_most(9) == ((0,), (1,), (2,), (3,))


def test_a_single_neuron_is_its_own_block() -> None:
    tree = Dendrogram.of(
        Layer(np.ones((1, 2)), np.ones((1, 1)), np.zeros(1)), "forward", "sum", "closure"
    )
    assert tree.cut(1.0) == ((0,),)
    assert tree.threshold() is None


@given(layers, st.floats(0, 2))
def test_pairs_within_a_diameter_block_are_within_eps(layer: Layer, eps: float) -> None:
    blocks = Dendrogram.of(layer, "backward", "sum", "diameter").cut(eps)
    assert sorted(i for block in blocks for i in block) == list(range(5))
    gaps = squareform(condensed(layer, "backward", "sum"))
    assert all(gaps[np.ix_(block, block)].max() <= eps + 1e-9 for block in blocks)


@given(layers, st.floats(0, 2))
def test_closure_blocks_are_linked_within_eps_and_further_than_eps_apart(
    layer: Layer, eps: float
) -> None:
    blocks = Dendrogram.of(layer, "backward", "sum", "closure").cut(eps)
    assert sorted(i for block in blocks for i in block) == list(range(5))
    gaps = squareform(condensed(layer, "backward", "sum"))
    for block in blocks:
        others = [i for i in range(5) if i not in block]
        assert gaps[np.ix_(block, others)].min(initial=np.inf) > eps
        assert linked(gaps[np.ix_(block, block)], eps + 1e-9)


def linked(gaps: FloatArray, eps: float) -> bool:
    reached = gaps[0] <= eps
    for _ in gaps:
        reached = (gaps[reached] <= eps).any(axis=0)
    return bool(reached.all())


@given(layers, st.permutations(range(5)), st.floats(0, 2))
def test_permuting_neurons_permutes_the_closure(layer: Layer, order: list[int], eps: float) -> None:
    shuffled = Layer(layer.incoming[order], layer.outgoing[:, order], layer.offset)
    first = Dendrogram.of(layer, "forward", "sum", "closure").cut(eps)
    second = Dendrogram.of(shuffled, "forward", "sum", "closure").cut(eps)
    assert {frozenset(b) for b in first} == {frozenset(order[i] for i in b) for b in second}


def test_the_threshold_is_the_smallest_distance() -> None:
    threshold = Dendrogram.of(CHAIN, "forward", "sum", "closure").threshold()
    assert threshold == pytest.approx(0.1, rel=0, abs=1e-11)
