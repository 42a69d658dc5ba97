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

from onnxfde.neurons.activation_curves import error_function, logistic, logistic_slope
from onnxfde.numbers import FloatArray

Elementwise = Callable[..., FloatArray]
"""A function of hidden values, and of one array per parameter with one number per neuron."""

SELU_ALPHA = 1.67326319217681884765625
"""The default of ONNX's Selu."""
SELU_GAMMA = 1.05070102214813232421875
"""The default of ONNX's Selu."""
TANH_CUBE = 0.044715
"""The factor of x³ in the approximation of Gelu by tanh (Hendrycks and Gimpel 2016)."""
TANH_SLOPE = float(np.sqrt(2 / np.pi))
"""The factor of x in the same."""


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

    @property
    def even(self) -> bool:
        """Whether the sign of its argument makes no difference."""
        return self.reflection == EVEN

    @property
    def title(self) -> str:
        """The name with its constants, such as "LeakyRelu(0.2)"."""
        inside = ", ".join(f"{c:g}" for c in self.constants)
        return f"{self.name}({inside})" if inside else self.name


def normal_density(x: FloatArray) -> FloatArray:
    """The density of N(0, 1)."""
    return np.asarray(np.exp(-(x**2) / 2) / np.sqrt(2 * np.pi))


def normal_share(x: FloatArray) -> FloatArray:
    """The distribution function of N(0, 1)."""
    return np.asarray((1 + error_function(x / np.sqrt(2))) / 2)


SQUARE = Activation(
    name="square",
    value=lambda x: np.asarray(x**2),
    slope=lambda x: 2 * x,
    degree=2,
    reflection=EVEN,
    power=2,
)
RELU = Activation(
    "Relu",
    value=lambda x: np.maximum(x, 0.0),
    slope=lambda x: (x > 0) * 1.0,
    kinks=(0.0,),
    degree=1,
    reflection=GATED,
)
PRELU = Activation(
    "PRelu",
    value=lambda x, a: np.where(x < 0, a * x, x),
    slope=lambda x, a: np.where(x < 0, a, 1.0),
    kinks=(0.0,),
    degree=1,
    parameters=1,
)
RELU_SQUARED = Activation(
    "Relu²",
    value=lambda x: np.maximum(x, 0.0) ** 2,
    slope=lambda x: 2 * np.maximum(x, 0.0),
    kinks=(0.0,),
    degree=2,
)
ABS = Activation(
    "Abs",
    value=np.abs,
    slope=np.sign,
    kinks=(0.0,),
    degree=1,
    reflection=EVEN,
)
IDENTITY = Activation(
    "Identity",
    value=lambda x: x,
    slope=np.ones_like,
    degree=1,
    reflection=ODD,
    power=1,
)
SIGMOID = Activation(
    "Sigmoid", value=logistic, slope=logistic_slope, reflection=Reflection(-1.0, 0.0, 1.0)
)
TANH = Activation("Tanh", value=np.tanh, slope=lambda x: 4 * logistic_slope(2 * x), reflection=ODD)
ERF = Activation(
    "Erf",
    value=error_function,
    slope=lambda x: np.asarray(2 / np.sqrt(np.pi) * np.exp(-(x**2))),
    reflection=ODD,
)
SIN = Activation("Sin", value=np.sin, slope=np.cos, reflection=ODD)
SOFTSIGN = Activation(
    "Softsign",
    value=lambda x: x / (1 + np.abs(x)),
    slope=lambda x: (1 + np.abs(x)) ** -2,
    kinks=(0.0,),
    reflection=ODD,
)
SOFTPLUS = Activation(
    "Softplus", value=lambda x: np.logaddexp(0.0, x), slope=logistic, reflection=GATED
)
GELU = Activation(
    "Gelu",
    value=lambda x: x * normal_share(x),
    slope=lambda x: normal_share(x) + x * normal_density(x),
    reflection=GATED,
)


def tanh_gelu_parts(x: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Tanh inside Gelu's approximation, and the slope of its argument."""
    inner = np.tanh(TANH_SLOPE * (x + TANH_CUBE * x**3))
    return inner, TANH_SLOPE * (1 + 3 * TANH_CUBE * x**2)


def tanh_gelu_slope(x: FloatArray) -> FloatArray:
    """The slope of Gelu's approximation."""
    inner, steep = tanh_gelu_parts(x)
    return np.asarray((1 + inner) / 2 + x / 2 * (1 - inner**2) * steep)


TANH_GELU = Activation(
    "TanhGelu",
    value=lambda x: x / 2 * (1 + tanh_gelu_parts(x)[0]),
    slope=tanh_gelu_slope,
    reflection=GATED,
)


def mish_slope(x: FloatArray) -> FloatArray:
    """The slope of x·tanh(softplus(x))."""
    inner = np.tanh(np.logaddexp(0.0, x))
    return np.asarray(inner + x * (1 - inner**2) * logistic(x))


MISH = Activation("Mish", value=lambda x: x * np.tanh(np.logaddexp(0.0, x)), slope=mish_slope)
HARD_SWISH = Activation(
    "HardSwish",
    value=lambda x: x * np.clip(x / 6 + 0.5, 0.0, 1.0),
    slope=lambda x: np.where(np.abs(x) < 3, x / 3 + 0.5, (x > 0) * 1.0),
    kinks=(-3.0, 3.0),
    reflection=GATED,
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
    )


def thresholded_relu(alpha: float = 1.0) -> Activation:
    """X above α, else 0."""
    return Activation(
        "ThresholdedRelu",
        (alpha,),
        value=lambda x: np.where(x > alpha, x, 0.0),
        slope=lambda x: (x > alpha) * 1.0,
        kinks=(alpha,),
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
    )


def celu(alpha: float = 1.0) -> Activation:
    """α·(e^(x/α) − 1) below 0, x above."""
    return Activation(
        "Celu",
        (alpha,),
        value=lambda x: np.where(x < 0, alpha * np.expm1(np.minimum(x, 0.0) / alpha), x),
        slope=lambda x: np.where(x < 0, np.exp(np.minimum(x, 0.0) / alpha), 1.0),
        kinks=(0.0,),
    )


def silu(beta: float = 1.0) -> Activation:
    """x·logistic(βx); β = 1.702 is also called QuickGelu."""

    def slope(x: FloatArray) -> FloatArray:
        gate = logistic(beta * x)
        return np.asarray(gate * (1 + beta * x * (1 - gate)))

    return Activation(
        "Silu", (beta,), value=lambda x: x * logistic(beta * x), slope=slope, reflection=GATED
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
    )


def scaled_activation(activation: Activation, factor: float) -> Activation:
    """The function times a constant."""
    if factor == 1:
        return activation
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
