"""Closure chains, diameter does not."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from onnxfde.lumping.distance import condensed
from onnxfde.lumping.partition import Dendrogram
from onnxfde.neurons.layer import Layer
from onnxfde.numbers import FloatArray
from onnxfde.options import Linkage

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


@given(layers, st.floats(0, 2), st.sampled_from(["closure", "diameter"]))
def test_blocks_partition_the_neurons_and_respect_the_threshold(
    layer: Layer, eps: float, linkage: Linkage
) -> None:
    blocks = Dendrogram.of(layer, "backward", "sum", linkage).cut(eps)
    assert sorted(i for block in blocks for i in block) == list(range(5))
    if linkage == "diameter":
        assert all(spread(layer, block) <= eps + 1e-9 for block in blocks)


@given(layers, st.permutations(range(5)), st.floats(0, 2))
def test_permuting_neurons_permutes_the_closure(layer: Layer, order: list[int], eps: float) -> None:
    shuffled = Layer(layer.incoming[order], layer.outgoing[:, order], layer.offset)
    first = Dendrogram.of(layer, "forward", "sum", "closure").cut(eps)
    second = Dendrogram.of(shuffled, "forward", "sum", "closure").cut(eps)
    assert {frozenset(b) for b in first} == {frozenset(order[i] for i in b) for b in second}


def spread(layer: Layer, block: tuple[int, ...]) -> float:
    members = Layer(layer.incoming[list(block)], layer.outgoing[:, list(block)], layer.offset)
    distances: FloatArray = condensed(members, "backward", "sum")
    return float(distances.max(initial=0.0))


def test_closure_is_a_union_of_close_pairs() -> None:
    assert pytest.approx(0.1) == Dendrogram.of(CHAIN, "forward", "sum", "closure").threshold()
