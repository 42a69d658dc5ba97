"""The table of activations that neurons may have.

    h = σ(u·z)      degree p:     σ(αx) = αᵖ σ(x) for α > 0, so a neuron's scale is free:
                                  u → αu, V → V/αᵖ
                    reflection:   σ(−x) = sign·σ(x) + line·x + constant
                    parameters:   σ may read numbers of its own for each neuron (PRelu's slope)

To add one, add a row here and its spelling in a graph to `graph/activation_patterns.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from onnxfde.neurons.activation_curves import (
    ABS_CURVE,
    ERF_CURVE,
    RELU_CURVE,
    SIGMOID_CURVE,
    SOFTPLUS_CURVE,
    TANH_CURVE,
    Curve,
    bell,
    broken,
    clipped,
    elu_curve,
    hard_swish_curve,
    scaled_curve,
    sine_curve,
    smooth_curve,
    threshold_curve,
)
from onnxfde.neurons.activation_functions import (
    error_function,
    error_function_slope,
    gelu,
    gelu_slope,
    hard_swish,
    hard_swish_slope,
    logistic,
    logistic_slope,
    mish,
    mish_slope,
    positive_square,
    positive_square_slope,
    softplus,
    softsign,
    softsign_slope,
    tanh_gelu,
    tanh_gelu_slope,
    tanh_slope,
)
from onnxfde.neurons.polynomial_curves import polynomial_curve
from onnxfde.numbers import FloatArray

Elementwise = Callable[..., FloatArray]
"""A function of hidden values, and of one array per parameter with one number per neuron."""

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


class Reflection(NamedTuple):
    """σ(−x) = sign·σ(x) + line·x + constant."""

    sign: float
    line: float = 0.0
    constant: float = 0.0


EVEN, ODD = Reflection(1.0), Reflection(-1.0)
GATED = Reflection(1.0, -1.0)
"""Of Relu and of all x·g(x) with g(−x) = 1 − g(x)."""


@dataclass(frozen=True)
class Activation:
    """A function that is applied to each hidden value by itself."""

    name: str
    constants: tuple[float, ...] = ()
    """The numbers that single it out among functions of this name."""
    value: Elementwise = field(kw_only=True, compare=False, repr=False)
    slope: Elementwise = field(kw_only=True, compare=False, repr=False)
    kinks: tuple[float, ...] = field(default=(), kw_only=True, compare=False)
    """Where the slope jumps, or the function is least like a polynomial."""
    degree: int | None = field(default=None, kw_only=True, compare=False)
    """The power of a positive factor that can be taken out of the function, if one can."""
    reflection: Reflection | None = field(default=None, kw_only=True, compare=False)
    """What a negative argument does, if that is simple."""
    power: int | None = field(default=None, kw_only=True, compare=False)
    """The largest power if it is a polynomial."""
    parameters: int = field(default=0, kw_only=True, compare=False)
    """How many numbers each neuron has beside its row of weights."""
    curve: Curve | Callable[..., Curve] = field(kw_only=True, compare=False, repr=False)
    """Its range and that of its slope over intervals; with parameters, what makes it from them."""
    magnitude: Elementwise = field(kw_only=True, compare=False, repr=False)
    """How rounding grows: for |x| ≤ A at least |σ(x)|, and at least the steepest slope times A (of
    the square, half of that), jumps aside."""

    def curve_of(self, *unit_parameters: FloatArray) -> Curve:
        """Its curve, with the parameters of the neurons if it reads any."""
        return self.curve if isinstance(self.curve, Curve) else self.curve(*unit_parameters)

    @property
    def even(self) -> bool:
        """Whether the sign of its argument makes no difference."""
        return self.reflection == EVEN

    @property
    def title(self) -> str:
        """The name with its constants, such as "LeakyRelu(0.2)"."""
        inside = ", ".join(f"{c:g}" for c in self.constants)
        return f"{self.name}({inside})" if inside else self.name


def steep(factor: float) -> Elementwise:
    """The magnitude of a function with σ(0) = 0 and slopes up to the factor."""
    return lambda size: factor * size


SQUARE = Activation(
    name="square",
    value=lambda x: np.asarray(x**2),
    slope=lambda x: 2 * x,
    degree=2,
    reflection=EVEN,
    power=2,
    curve=smooth_curve(lambda x: np.asarray(x**2), lambda x: 2 * x, (0.0,)),
    magnitude=lambda size: np.asarray(size**2),
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


def polynomial(coefficients: tuple[float, ...]) -> Activation:
    """Σ_k a_k xᵏ, the coefficients from a_0 on."""
    found = np.polynomial.Polynomial(coefficients)
    powers = [k for k, a in enumerate(coefficients) if a and k]
    largest = max(powers, default=0)
    parities = {k % 2 for k in powers}
    reflection = None
    if len(parities) == 1:
        sign = -1.0 if parities == {1} else 1.0
        reflection = Reflection(sign, 0.0, (1 - sign) * coefficients[0])
    return Activation(
        "Polynomial",
        coefficients,
        value=found,
        slope=found.deriv(),
        degree=largest if len(powers) == 1 and not coefficients[0] else None,
        reflection=reflection,
        power=largest,
        curve=polynomial_curve(coefficients),
        magnitude=np.polynomial.Polynomial(
            [max(k, 1) * abs(a) for k, a in enumerate(coefficients)]
        ),
    )


def scaled_activation(activation: Activation, factor: float) -> Activation:
    """The function times a constant."""
    if factor == 1:
        return activation
    if activation.name == "Polynomial":
        return polynomial(tuple(factor * a for a in activation.constants))
    reflection = activation.reflection
    if reflection is not None:
        sign, line, constant = reflection
        reflection = Reflection(sign, factor * line, factor * constant)
    return Activation(
        activation.name,
        (*activation.constants, factor),
        value=lambda x, *p: factor * activation.value(x, *p),
        slope=lambda x, *p: factor * activation.slope(x, *p),
        kinks=activation.kinks,
        degree=activation.degree,
        reflection=reflection,
        power=activation.power,
        parameters=activation.parameters,
        curve=lambda *p: scaled_curve(activation.curve_of(*p), factor),
        magnitude=lambda size, *p: abs(factor) * activation.magnitude(size, *p),
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
