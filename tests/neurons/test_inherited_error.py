"""A layer answers for its own error, not for what smaller layers before it brought in."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from onnxfde.neurons.activation import Activation
from onnxfde.neurons.frontier import Reduced
from onnxfde.neurons.held_out import Evidence
from onnxfde.neurons.layer import Layer
from onnxfde.neurons.piecewise_activations import RELU
from onnxfde.neurons.polynomial_activations import SQUARE
from onnxfde.neurons.problem import Problem
from tests.strategies import problem_of

ROWS = 3000


def problem_behind_others(layer: Layer) -> Problem:
    """The layer reads inputs that earlier layers have changed by a tenth of what they vary."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(ROWS, layer.inputs))
    changed = x + 0.1 * rng.normal(size=x.shape)
    return problem_of(layer, evidence=Evidence(changed, layer(x)))


@pytest.mark.parametrize("activation", [RELU, SQUARE], ids=lambda a: a.name)
def test_what_is_inherited_is_not_charged_to_the_layer(activation: Activation) -> None:
    """The margin for new inputs is on the layer's own error alone."""
    rng = np.random.default_rng(0)
    incoming, outgoing = rng.normal(size=(8, 6)), rng.normal(size=(3, 8))
    problem = problem_behind_others(Layer(incoming, outgoing, np.zeros(3), activation))
    layer = problem.layer
    assert problem.inherited_error > 0.1
    assert problem.expected_error(Reduced(layer, (), 0.0)) == 0.0
    assert problem.evidence is not None
    size = np.sqrt(problem.evidence.outputs.var(axis=0).sum())
    for share in (0.05, 0.2):
        offset = layer.offset + share * size * np.array([1.0, -1.0, 1.0]) / np.sqrt(3)
        expected = problem.expected_error(Reduced(replace(layer, offset=offset), (), 0.0))
        assert expected == pytest.approx(share, rel=0.2, abs=0)
