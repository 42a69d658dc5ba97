"""Activations that are polynomials, and multiples of any activation."""

from __future__ import annotations

import numpy as np

from onnxfde.neurons.activation import EVEN, Activation, Reflection
from onnxfde.neurons.activation_curves import scaled_curve, smooth_curve
from onnxfde.neurons.polynomial_curves import polynomial_curve

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
