"""Eigenvectors of the quadratic forms reproduce a layer."""

from __future__ import annotations

import numpy as np
import pytest

from onnxfde.neurons.completed_square import eigen_neurons
from onnxfde.neurons.kernels import norm
from onnxfde.neurons.objective import summed


@pytest.mark.parametrize(("inputs", "neurons"), [(5, 40), (10, 300)])
def test_one_output_needs_as_many_neurons_as_inputs(inputs: int, neurons: int) -> None:
    rng = np.random.default_rng(1)
    rows, outgoing = rng.normal(size=(neurons, inputs + 1)), rng.normal(size=(1, neurons))
    found = eigen_neurons(rows, outgoing)
    assert len(found) == inputs
    assert residual(found, rows, outgoing) < 1e-11


def test_a_linear_part_outside_the_range_of_the_squares_takes_two_neurons_more() -> None:
    rows = np.array([[1.0, 0, 0, 0], [0, 1.0, 0, 1.0], [0, 1.0, 0, -1.0], [0, 0, 0, 1.0]])
    outgoing = np.array([[1.0, 1.0, -1.0, 0.0]])
    found = eigen_neurons(rows, outgoing)
    assert len(found) == 3
    assert residual(found, rows, outgoing) < 1e-12


def residual(found: np.ndarray, rows: np.ndarray, outgoing: np.ndarray) -> float:
    squares = np.stack([summed(row[None], np.ones((1, 1)))[0].ravel() for row in found], axis=1)
    target = summed(rows, outgoing).reshape(len(outgoing), -1).T
    weights = np.linalg.lstsq(squares, target)[0]
    return float(np.linalg.norm(squares @ weights - target)) / norm(rows, outgoing)
