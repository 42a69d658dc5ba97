"""Activations that are made of pieces of polynomials: Relu and its relatives."""

from __future__ import annotations

import numpy as np

from onnxfde.neurons.activation import EVEN, GATED, ODD, Activation, Reflection, steep
from onnxfde.neurons.activation_curves import (
    ABS_CURVE,
    RELU_CURVE,
    broken,
    clipped,
    hard_swish_curve,
    smooth_curve,
    threshold_curve,
)
from onnxfde.neurons.activation_functions import (
    hard_swish,
    hard_swish_slope,
    positive_square,
    positive_square_slope,
)

RELU = Activation(
    "Relu",
    value=lambda x: np.maximum(x, 0.0),
    slope=lambda x: (x > 0) * 1.0,
    kinks=(0.0,),
    degree=1,
    reflection=GATED,
    curve=RELU_CURVE,
    magnitude=steep(1.0),
)

PRELU = Activation(
    "PRelu",
    value=lambda x, a: np.where(x < 0, a * x, x),
    slope=lambda x, a: np.where(x < 0, a, 1.0),
    kinks=(0.0,),
    degree=1,
    parameters=1,
    curve=lambda a: broken(a, 1.0),
    magnitude=lambda size, a: np.maximum(np.abs(a), 1.0) * size,
)

RELU_SQUARED = Activation(
    "Relu²",
    value=positive_square,
    slope=positive_square_slope,
    kinks=(0.0,),
    degree=2,
    curve=smooth_curve(positive_square, positive_square_slope),
    magnitude=lambda size: 2 * size**2,
)

ABS = Activation(
    "Abs",
    value=np.abs,
    slope=np.sign,
    kinks=(0.0,),
    degree=1,
    reflection=EVEN,
    curve=ABS_CURVE,
    magnitude=steep(1.0),
)

IDENTITY = Activation(
    "Identity",
    value=lambda x: x,
    slope=np.ones_like,
    degree=1,
    reflection=ODD,
    power=1,
    curve=broken(1.0, 1.0),
    magnitude=steep(1.0),
)

HARD_SWISH = Activation(
    "HardSwish",
    value=hard_swish,
    slope=hard_swish_slope,
    kinks=(-3.0, 3.0),
    reflection=GATED,
    curve=hard_swish_curve(),
    magnitude=steep(1.5),
)


def leaky_relu(alpha: float = 0.01) -> Activation:
    """α·x below 0, x above."""
    return Activation(
        "LeakyRelu",
        (alpha,),
        value=lambda x: np.where(x < 0, alpha * x, x),
        slope=lambda x: np.where(x < 0, alpha, 1.0),
        kinks=(0.0,),
        degree=1,
        reflection=Reflection(1.0, -(1 + alpha)),
        curve=broken(alpha, 1.0),
        magnitude=steep(max(abs(alpha), 1.0)),
    )


def clip(least: float = -np.inf, most: float = np.inf) -> Activation:
    """Clipped to two limits, of which one may be infinite."""
    if (least, most) == (0.0, np.inf):
        return RELU
    return Activation(
        "Clip",
        (least, most),
        value=lambda x: np.clip(x, least, most),
        slope=lambda x: ((x > least) & (x < most)) * 1.0,
        kinks=tuple(k for k in (least, most) if np.isfinite(k)),
        reflection=ODD if least == -most else None,
        curve=clipped(least, most),
        magnitude=lambda size: size + abs(np.clip(0.0, least, most)),
    )


def thresholded_relu(alpha: float = 1.0) -> Activation:
    """X above α, else 0."""
    return Activation(
        "ThresholdedRelu",
        (alpha,),
        value=lambda x: np.where(x > alpha, x, 0.0),
        slope=lambda x: (x > alpha) * 1.0,
        kinks=(alpha,),
        curve=threshold_curve(alpha),
        magnitude=steep(1.0),
    )


def hard_sigmoid(alpha: float = 0.2, beta: float = 0.5) -> Activation:
    """α·x + β, clipped to [0, 1]."""
    return Activation(
        "HardSigmoid",
        (alpha, beta),
        value=lambda x: np.clip(alpha * x + beta, 0.0, 1.0),
        slope=lambda x: ((alpha * x + beta > 0) & (alpha * x + beta < 1)) * alpha,
        kinks=tuple(sorted((-beta / alpha, (1 - beta) / alpha))) if alpha else (),
        reflection=Reflection(-1.0, 0.0, 1.0) if beta == 0.5 else None,
        curve=clipped(0.0, 1.0, alpha, beta),
        magnitude=lambda size: abs(alpha) * size + abs(beta),
    )
