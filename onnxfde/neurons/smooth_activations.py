"""Activations that are made of exponentials, sines and error functions."""

from __future__ import annotations

import numpy as np

from onnxfde.neurons.activation import GATED, ODD, Activation, Reflection, steep
from onnxfde.neurons.activation_curves import (
    ERF_CURVE,
    SIGMOID_CURVE,
    SOFTPLUS_CURVE,
    TANH_CURVE,
    bell,
    elu_curve,
    scaled_curve,
    sine_curve,
    smooth_curve,
)
from onnxfde.neurons.activation_functions import (
    error_function,
    error_function_slope,
    gelu,
    gelu_slope,
    logistic,
    logistic_slope,
    mish,
    mish_slope,
    softplus,
    softsign,
    softsign_slope,
    tanh_gelu,
    tanh_gelu_slope,
    tanh_slope,
)
from onnxfde.numbers import FloatArray

SELU_ALPHA = 1.67326319217681884765625
"""The default of ONNX's Selu."""

SELU_GAMMA = 1.05070102214813232421875
"""The default of ONNX's Selu."""

GELU_TURN, GELU_BEND = -0.7517915246935645, float(np.sqrt(2))
"""Where Gelu is least, and where it is steepest (and at −√2 least steep): its second derivative is
(2 − x²) times the density of N(0, 1)."""

TANH_GELU_TURN, TANH_GELU_BEND = -0.7524614220710162, 1.4185040087908283
"""The same of its approximation by tanh, by bisection in 50 digits, as all that follow."""

SILU_TURN, SILU_BEND = -1.2784645427610737, 2.3993572805154675
"""Where x·logistic(x) is least, and where (and opposite) its slope turns."""

MISH_TURN, MISH_BENDS = -1.1924312145154952, (-2.256376396360793, 1.4905711794854284)
"""Where Mish is least, and where its slope turns."""

STEEPEST_GELU = 1.13
"""At least the slope of Gelu, and of its approximation, anywhere: 1.12890 and 1.12899."""

STEEPEST_SILU = 1.1
"""At least the slope of Silu, 1.09984, and of Mish, 1.08850, anywhere."""

SIGMOID = Activation(
    "Sigmoid",
    value=logistic,
    slope=logistic_slope,
    reflection=Reflection(-1.0, 0.0, 1.0),
    curve=SIGMOID_CURVE,
    magnitude=lambda size: 0.5 + size / 4,
)

TANH = Activation(
    "Tanh",
    value=np.tanh,
    slope=tanh_slope,
    reflection=ODD,
    curve=TANH_CURVE,
    magnitude=steep(1.0),
)

ERF = Activation(
    "Erf",
    value=error_function,
    slope=error_function_slope,
    reflection=ODD,
    curve=ERF_CURVE,
    magnitude=steep(STEEPEST_GELU),
)

SIN = Activation(
    "Sin",
    value=np.sin,
    slope=np.cos,
    reflection=ODD,
    curve=sine_curve(),
    magnitude=steep(1.0),
)

SOFTSIGN = Activation(
    "Softsign",
    value=softsign,
    slope=softsign_slope,
    kinks=(0.0,),
    reflection=ODD,
    curve=bell(softsign, softsign_slope),
    magnitude=steep(1.0),
)

SOFTPLUS = Activation(
    "Softplus",
    value=softplus,
    slope=logistic,
    reflection=GATED,
    curve=SOFTPLUS_CURVE,
    magnitude=lambda size: np.log(2) + size,
)

GELU = Activation(
    "Gelu",
    value=gelu,
    slope=gelu_slope,
    reflection=GATED,
    curve=smooth_curve(gelu, gelu_slope, (GELU_TURN,), (-GELU_BEND, GELU_BEND), np.abs),
    magnitude=steep(STEEPEST_GELU),
)

TANH_GELU = Activation(
    "TanhGelu",
    value=tanh_gelu,
    slope=tanh_gelu_slope,
    reflection=GATED,
    curve=smooth_curve(
        tanh_gelu,
        tanh_gelu_slope,
        (TANH_GELU_TURN,),
        (-TANH_GELU_BEND, TANH_GELU_BEND),
        np.abs,
    ),
    magnitude=steep(STEEPEST_GELU),
)

MISH = Activation(
    "Mish",
    value=mish,
    slope=mish_slope,
    curve=smooth_curve(mish, mish_slope, (MISH_TURN,), MISH_BENDS, np.abs),
    magnitude=steep(STEEPEST_SILU),
)


def elu(alpha: float = 1.0) -> Activation:
    """α·(eˣ − 1) below 0, x above."""
    return selu(alpha, 1.0, "Elu", (alpha,))


def selu(
    alpha: float = SELU_ALPHA,
    gamma: float = SELU_GAMMA,
    name: str = "Selu",
    constants: tuple[float, ...] | None = None,
) -> Activation:
    """γ·α·(eˣ − 1) below 0, γ·x above."""
    return Activation(
        name,
        (alpha, gamma) if constants is None else constants,
        value=lambda x: gamma * np.where(x < 0, alpha * np.expm1(np.minimum(x, 0.0)), x),
        slope=lambda x: gamma * np.where(x < 0, alpha * np.exp(np.minimum(x, 0.0)), 1.0),
        kinks=(0.0,),
        curve=scaled_curve(elu_curve(alpha), gamma),
        magnitude=lambda size: abs(gamma) * max(abs(alpha), 1.0) * (1 + size),
    )


def celu(alpha: float = 1.0) -> Activation:
    """α·(e^(x/α) − 1) below 0, x above."""

    def value(x: FloatArray) -> FloatArray:
        return np.where(x < 0, alpha * np.expm1(np.minimum(x, 0.0) / alpha), x)

    def slope(x: FloatArray) -> FloatArray:
        return np.where(x < 0, np.exp(np.minimum(x, 0.0) / alpha), 1.0)

    return Activation(
        "Celu",
        (alpha,),
        value=value,
        slope=slope,
        kinks=(0.0,),
        curve=smooth_curve(value, slope),
        magnitude=lambda size: abs(alpha) + slope(-size if alpha < 0 else size) * size,
    )


def silu(beta: float = 1.0) -> Activation:
    """x·logistic(βx); β = 1.702 is also called QuickGelu."""

    def slope(x: FloatArray) -> FloatArray:
        gate = logistic(beta * x)
        return np.asarray(gate * (1 + beta * x * (1 - gate)))

    def value(x: FloatArray) -> FloatArray:
        return x * logistic(beta * x)

    turns = (SILU_TURN / beta,) if beta else ()
    bends = (-SILU_BEND / beta, SILU_BEND / beta) if beta else ()
    return Activation(
        "Silu",
        (beta,),
        value=value,
        slope=slope,
        reflection=GATED,
        curve=smooth_curve(value, slope, turns, bends, np.abs),
        magnitude=steep(STEEPEST_SILU),
    )
