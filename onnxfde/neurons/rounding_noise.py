"""How much rounding to 8 bits disturbs a hidden value.

    h = (w·x + b)²      variance (R/255)²/12 + 4·E[h]·(max|w|/64)²/12·E‖x‖², R the range of h

relative to E[h]²: values are stored in 255 steps, weights in 64 on each side of zero.
"""

from __future__ import annotations

import numpy as np

from onnxfde.neurons.layer import Layer
from onnxfde.numbers import FloatArray

VALUE_STEPS = 255
"""Steps of an unsigned 8-bit value."""
WEIGHT_STEPS = 64
"""Steps on each side of zero of a signed 8-bit weight: half of its range (`running/runtime.py`)."""


def rounding_noise(layer: Layer, x: FloatArray) -> float:
    """The variance of a hidden value of mean 1 when it and its incoming weights are rounded."""
    hidden = np.abs(layer.hidden(x))
    mean = hidden.mean(axis=0)
    mean[mean == 0] = 1.0
    reach = float(np.max(hidden / mean))
    step = np.abs(layer.incoming[:, :-1]).max(axis=1) / WEIGHT_STEPS
    length = float(np.sum(x**2)) / len(x)
    return (reach / VALUE_STEPS) ** 2 / 12 + float(np.median(step**2 / mean)) * length / 3
