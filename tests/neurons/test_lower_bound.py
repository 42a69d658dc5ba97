"""No layer comes closer than the lower bound says."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from onnxfde.neurons.completed_square import eigen_neurons
from onnxfde.neurons.kernels import Metric, features, norm
from onnxfde.neurons.layer import Layer
from onnxfde.neurons.lower_bound import lower_bounds
from onnxfde.neurons.original_layer import OriginalLayer
from onnxfde.neurons.pivoted_basis import pivoted_basis
from onnxfde.numbers import FloatArray
from tests.strategies import layers, problem_of


@given(layers(), st.integers(0, 2**32 - 1), st.data())
def test_no_layer_is_closer_than_its_lower_bound(
    layer: Layer, seed: int, data: st.DataObject
) -> None:
    """Neither the layer's own neurons nor the strongest eigenvectors, with the best weights."""
    count = data.draw(st.integers(1, layer.inputs))
    rng = np.random.default_rng(seed)
    metric = Metric(rng.normal(size=layer.inputs), np.diag(rng.uniform(0.1, 2, layer.inputs)))
    alive = layer.without_constants()
    rows, outgoing = metric.whiten(alive.incoming), alive.outgoing
    target = outgoing @ features(rows)
    assume(np.any(target))
    bound = problem_of(layer, metric).lower_bound(count)
    assert bound is not None
    for others in (rows, eigen_neurons(rows, outgoing)):
        strongest = others[pivoted_basis(others, fitted(others, target)).order[:count]]
        left = target - fitted(strongest, target) @ features(strongest)
        assert bound <= np.linalg.norm(left) / np.linalg.norm(target) + 1e-9


def fitted(rows: FloatArray, target: FloatArray) -> FloatArray:
    """The outgoing weights with which these neurons come closest to the target."""
    return np.asarray(np.linalg.lstsq(features(rows).T, target.T)[0].T)


def test_the_bound_is_reached_when_the_outputs_share_their_axes() -> None:
    incoming = np.column_stack([np.eye(3), np.zeros(3)])
    layer = Layer(incoming, np.array([[3.0, 2.0, 1.0], [3.0, -2.0, 1.0]]), np.zeros(2))
    metric = Metric.plain(3)
    kept = Layer(incoming[:2], layer.outgoing[:, :2], layer.offset)
    assert problem_of(layer, metric).lower_bound(2) == pytest.approx(
        OriginalLayer(layer, metric).error_of(kept), rel=1e-9
    )
    assert problem_of(layer, metric).lower_bound(3) == 0.0


@given(layers(), st.integers(1, 3))
def test_there_is_no_bound_for_more_neurons_than_inputs(layer: Layer, more: int) -> None:
    assert problem_of(layer).lower_bound(layer.inputs + more) is None


def test_bounds_fall_with_every_neuron_and_start_at_1_without_linear_terms() -> None:
    rng = np.random.default_rng(0)
    rows = np.column_stack([rng.normal(size=(30, 6)), np.zeros(30)])
    outgoing = rng.normal(size=(3, 30))
    bounds = lower_bounds(rows, outgoing, norm(rows, outgoing))
    assert bounds[0] == pytest.approx(1.0, rel=1e-9)
    assert np.all(np.diff(bounds) <= 0)
