"""The paper's rule for layers whose activation is not the square."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import onnxfde
from onnxfde.lumping.distance import condensed
from onnxfde.lumping.partition import Dendrogram, partition
from onnxfde.lumping.threshold_frontier import ThresholdFrontier, threshold_fault
from onnxfde.neurons.layer import Layer
from onnxfde.neurons.piecewise_activations import PRELU, RELU
from onnxfde.neurons.polynomial_activations import SQUARE
from onnxfde.neurons.smooth_activations import GELU, TANH
from onnxfde.options import Linkage, Norm, Relation
from tests.activation_models import planted_layer, planted_mlp
from tests.strategies import problem_of


def near_copies(rng: np.random.Generator, size: float) -> Layer:
    """Five GELU neurons, each three times, rows and outgoing weights apart by up to `size`."""
    rows, outgoing = np.tile(rng.normal(size=(5, 4)), (3, 1)), np.tile(rng.normal(size=(2, 5)), 3)
    rows += rng.uniform(-size, size, rows.shape)
    outgoing += rng.uniform(-size, size, outgoing.shape)
    return Layer(rows, outgoing, rng.normal(size=2), GELU).stored_as(np.float32)


@pytest.mark.parametrize("relation", ["forward", "backward"])
@pytest.mark.parametrize("quotient", ["single", "refit"])
def test_near_copies_become_one_neuron_each(relation: Relation, quotient: Any) -> None:
    layer = near_copies(np.random.default_rng(0), 1e-3)
    found = ThresholdFrontier(problem_of(layer), relation, "sum", quotient=quotient).within(0.02)
    assert found is not None
    assert [len(block) for block in found.blocks] == [3] * 5
    x = np.random.default_rng(1).uniform(-1, 1, (100, 3))
    assert layer.change_to(found.layer, x) <= 2e-3
    assert found.error <= 2e-3


@pytest.mark.parametrize("activation", [RELU, TANH, PRELU])
def test_a_threshold_of_zero_joins_equal_rows_without_loss(activation: Any) -> None:
    rng = np.random.default_rng(2)
    once = planted_layer(activation, rng, 6, 1, 3, 2)
    layer = Layer(
        np.tile(once.incoming, (2, 1)),
        rng.normal(size=(2, 12)),
        once.offset,
        activation,
        tuple(np.tile(p, 2) for p in once.unit_parameters),
    ).stored_as(np.float32)
    found = ThresholdFrontier(problem_of(layer), "backward").within(0.0)
    assert found is not None
    assert found.layer.neurons == 6
    x = np.random.default_rng(3).normal(size=(50, 3))
    assert np.all(np.abs(found.layer(x) - layer(x)) <= 16 * 2.0**-24 * layer.magnitude(x))


def test_rows_of_opposite_sign_are_two_neurons_unless_they_are_squared() -> None:
    rows = np.array([[1.0, 2.0], [-1.0, -2.0]])
    for activation, blocks in ((SQUARE, ((0, 1),)), (TANH, ((0,), (1,)))):
        layer = Layer(rows, np.ones((1, 2)), np.zeros(1), activation)
        assert partition(layer, 0.0, "backward") == blocks


def test_slopes_of_single_neurons_count_in_backward_distances() -> None:
    layer = Layer(np.ones((2, 2)), np.ones((1, 2)), np.zeros(1), PRELU, (np.array([0.1, 0.4]),))
    for norm in ("sum", "max"):
        assert condensed(layer, "backward", norm) == pytest.approx([0.3])


@settings(max_examples=30)
@given(
    st.integers(0, 2**32),
    st.floats(0.01, 2.0),
    st.sampled_from(["forward", "backward"]),
    st.sampled_from(["sum", "max"]),
    st.sampled_from(["closure", "diameter"]),
)
def test_blocks_are_those_of_all_pairs(
    seed: int, eps: float, relation: Relation, norm: Norm, linkage: Linkage
) -> None:
    rng = np.random.default_rng(seed)
    layer = Layer(rng.normal(size=(12, 2)), rng.normal(size=(1, 12)), np.zeros(1), TANH)
    found = partition(layer, eps, relation, norm, linkage)
    assert sorted(i for block in found for i in block) == list(range(12))
    inner = layer.outgoing.T if relation == "forward" else layer.incoming
    total = relation == "backward" and norm == "sum"
    gaps = np.abs(inner[:, None] - inner)
    near = (gaps.sum(axis=2) if total else gaps.max(axis=2)) <= eps + 1e-11
    if linkage == "closure":
        assert found == Dendrogram.of(layer, relation, norm, linkage).cut(eps)
    else:
        assert all(near[i, j] for block in found for i, j in combinations(block, 2))


@pytest.mark.parametrize(
    ("chosen", "reason"),
    [
        (("forward", "exact", False), "--quotient exact adds up squares, and its neurons are Relu"),
        (("backward", "single", True), "ERODE compares polynomials, and its neurons are Relu"),
    ],
)
def test_what_is_for_squares_only_is_refused(chosen: Any, reason: str) -> None:
    assert threshold_fault(RELU, *chosen) == reason
    assert threshold_fault(SQUARE, *chosen) is None
    relation, quotient, erode = chosen
    semantics: Any = "erode" if erode else "paper"
    model = planted_mlp("Relu", (3, 8, 2), 2)
    report = onnxfde.optimize(
        model, 0.1, semantics=semantics, relation=relation, quotient=quotient, verify=False
    ).report
    assert not report.changed
    assert any(reason in refusal.reason for refusal in report.refused)


@pytest.mark.parametrize("semantics", ["paper", "erode"])
def test_a_network_is_merged_by_its_outgoing_weights(semantics: Any) -> None:
    model = planted_mlp("Tanh", (3, 8, 2), 2)
    report = onnxfde.optimize(model, neurons=4, semantics=semantics, verify=False).report
    assert report.layers[0].neurons_after <= 4
