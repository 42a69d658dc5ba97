"""The table of activations that neurons may have.

To add one, add a row here, made in `piecewise_activations`, `smooth_activations` or
`polynomial_activations`, and its spelling in a graph to `graph/activation_patterns.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from onnxfde.neurons.activation import Activation
from onnxfde.neurons.piecewise_activations import (
    ABS,
    HARD_SWISH,
    IDENTITY,
    PRELU,
    RELU,
    RELU_SQUARED,
    clip,
    hard_sigmoid,
    leaky_relu,
    thresholded_relu,
)
from onnxfde.neurons.polynomial_activations import SQUARE, polynomial
from onnxfde.neurons.smooth_activations import (
    ERF,
    GELU,
    MISH,
    SIGMOID,
    SIN,
    SOFTPLUS,
    SOFTSIGN,
    TANH,
    TANH_GELU,
    celu,
    elu,
    selu,
    silu,
)

ACTIVATIONS: dict[str, Activation | Callable[..., Activation]] = {
    "square": SQUARE,
    "Relu": RELU,
    "LeakyRelu": leaky_relu,
    "PRelu": PRELU,
    "Relu²": RELU_SQUARED,
    "Abs": ABS,
    "Clip": clip,
    "ThresholdedRelu": thresholded_relu,
    "HardSigmoid": hard_sigmoid,
    "HardSwish": HARD_SWISH,
    "Sigmoid": SIGMOID,
    "Tanh": TANH,
    "Erf": ERF,
    "Softsign": SOFTSIGN,
    "Softplus": SOFTPLUS,
    "Elu": elu,
    "Selu": selu,
    "Celu": celu,
    "Mish": MISH,
    "Gelu": GELU,
    "TanhGelu": TANH_GELU,
    "Silu": silu,
    "Sin": SIN,
    "Polynomial": polynomial,
    "Identity": IDENTITY,
}
"""Every activation by name: itself, or what makes it from its constants."""


def activation_named(name: str, **constants: Any) -> Activation:
    """A row of the table, with other constants than the usual ones if they are given."""
    row = ACTIVATIONS[name]
    return row if isinstance(row, Activation) else row(**constants)
