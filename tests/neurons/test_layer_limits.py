"""Layers that are too large to be compared pair by pair."""

from __future__ import annotations

import numpy as np
import pytest

import onnxfde
from onnxfde.neurons.layer import Layer
from onnxfde.neurons.layer_limits import size_fault
from tests.models import build


def layer_of(inputs: int, neurons: int, outputs: int) -> Layer:
    """A layer whose weights take no memory."""
    nothing = np.broadcast_to(0.0, (1, 1))
    incoming = np.broadcast_to(nothing, (neurons, inputs + 1))
    return Layer(incoming, np.broadcast_to(nothing, (outputs, neurons)), np.zeros(outputs))


@pytest.mark.parametrize(
    "sizes", [(6, 120, 1), (10, 100_000, 10), (64, 4_096, 10), (25_088, 4_096, 9)]
)
def test_ordinary_layers_are_not_too_large(sizes: tuple[int, int, int]) -> None:
    assert size_fault(layer_of(*sizes)) is None


def test_lopsided_layers_are_too_large() -> None:
    neurons = "a matrix of all pairs of its 50,000 neurons would take 18.6 GiB"
    assert size_fault(layer_of(400, 50_000, 1)) == neurons
    inputs = "a matrix of all pairs of its 100,000 inputs would take 74.5 GiB"
    assert size_fault(layer_of(100_000, 2, 1)) == inputs


def test_a_layer_that_is_too_large_is_left_alone() -> None:
    rng = np.random.default_rng(0)
    model = build(
        "h = MatMul(x, W) s = Mul(h, h) y = MatMul(s, V)",
        inputs="float[N,20000] x",
        outputs="float[N,1] y",
        W=rng.normal(size=(20_000, 2)).astype(np.float32),
        V=np.ones((2, 1), np.float32),
    )
    report = onnxfde.optimize(model, verify=False).report
    assert "all pairs of its 20,000 inputs" in report.refused[0].reason
    assert report.unchanged is not None
