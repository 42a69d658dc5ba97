"""Every row of the table of activations, some with several constants."""

from __future__ import annotations

import numpy as np

from onnxfde.neurons.activation import Activation
from onnxfde.neurons.activations import ACTIVATIONS
from onnxfde.neurons.piecewise_activations import clip, hard_sigmoid, leaky_relu, thresholded_relu
from onnxfde.neurons.polynomial_activations import polynomial, scaled_activation
from onnxfde.neurons.smooth_activations import celu, elu, selu, silu
from onnxfde.numbers import FloatArray

SINGLE = [row for row in ACTIVATIONS.values() if isinstance(row, Activation)]
WITH_CONSTANTS = [
    leaky_relu(0.2),
    leaky_relu(-1.5),
    clip(0.0, 6.0),
    clip(-1.0, 1.0),
    clip(most=0.5),
    clip(0.25, 2.0),
    thresholded_relu(0.5),
    thresholded_relu(-0.75),
    hard_sigmoid(),
    hard_sigmoid(-0.7, 0.3),
    elu(1.5),
    selu(),
    celu(0.5),
    celu(-2.0),
    silu(),
    silu(1.702),
    silu(-0.5),
    polynomial((0.5, -1.0, 0.0, 0.7)),
    polynomial((0.0, 0.3, -1.0, 0.1, 0.2, -0.05)),
    polynomial((0.0, 0.0, 0.0, 1.0)),
]
SCALED = [
    scaled_activation(row, factor)
    for row, factor in zip((*SINGLE, *WITH_CONSTANTS), [-2.5, 0.5] * len(ACTIVATIONS), strict=False)
]
ROWS = {row.title: row for row in (*SINGLE, *WITH_CONSTANTS)}
"""Rows of the table, each name at least once."""
ALL_ROWS = {**ROWS, **{f"{row.title} scaled": row for row in SCALED}}
"""The same, and all of them times a constant."""


def unit_parameters(row: Activation, neurons: int) -> tuple[FloatArray, ...]:
    """Numbers for each neuron, some equal, if an activation reads any."""
    numbers = np.resize([0.25, -0.5, 0.25, 1.5], neurons)
    return (numbers,) * row.parameters
