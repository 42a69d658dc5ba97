"""Activation functions that numpy does not have, and their slopes."""

from __future__ import annotations

import numpy as np

from onnxfde.numbers import FloatArray

TANH_CUBE = 0.044715
"""The factor of x³ in the approximation of Gelu by tanh (Hendrycks and Gimpel 2016)."""
TANH_SLOPE = float(np.sqrt(2 / np.pi))
"""The factor of x in the same."""


def logistic(x: FloatArray) -> FloatArray:
    """1/(1 + e⁻ˣ), accurate to a few roundings on both sides of 0."""
    falling = np.exp(-np.abs(x))
    return np.asarray(np.where(x >= 0, 1.0, falling) / (1.0 + falling))


def logistic_slope(x: FloatArray) -> FloatArray:
    """The slope of the logistic function."""
    return logistic(x) * logistic(-x)


def error_function(x: FloatArray) -> FloatArray:
    """The error function, element by element."""
    from scipy.special import erf

    return np.asarray(erf(x))


def error_function_slope(x: FloatArray) -> FloatArray:
    """The slope of the error function."""
    return np.asarray(2 / np.sqrt(np.pi) * np.exp(-(x**2)))


def tanh_slope(x: FloatArray) -> FloatArray:
    """The slope of tanh."""
    return 4 * logistic_slope(2 * x)


def softplus(x: FloatArray) -> FloatArray:
    """log(1 + eˣ)."""
    return np.asarray(np.logaddexp(0.0, x))


def normal_density(x: FloatArray) -> FloatArray:
    """The density of N(0, 1)."""
    return np.asarray(np.exp(-(x**2) / 2) / np.sqrt(2 * np.pi))


def normal_share(x: FloatArray) -> FloatArray:
    """The distribution function of N(0, 1)."""
    return np.asarray((1 + error_function(x / np.sqrt(2))) / 2)


def gelu(x: FloatArray) -> FloatArray:
    """X times the distribution function of N(0, 1)."""
    return x * normal_share(x)


def gelu_slope(x: FloatArray) -> FloatArray:
    """The slope of Gelu."""
    return normal_share(x) + x * normal_density(x)


def tanh_gelu_parts(x: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Tanh inside Gelu's approximation, and the slope of its argument."""
    inner = np.tanh(TANH_SLOPE * (x + TANH_CUBE * x**3))
    return inner, TANH_SLOPE * (1 + 3 * TANH_CUBE * x**2)


def tanh_gelu(x: FloatArray) -> FloatArray:
    """Gelu's approximation by tanh."""
    return np.asarray(x / 2 * (1 + tanh_gelu_parts(x)[0]))


def tanh_gelu_slope(x: FloatArray) -> FloatArray:
    """The slope of Gelu's approximation."""
    inner, steep = tanh_gelu_parts(x)
    return np.asarray((1 + inner) / 2 + x / 2 * (1 - inner**2) * steep)


def mish(x: FloatArray) -> FloatArray:
    """x·tanh(softplus(x))."""
    return np.asarray(x * np.tanh(softplus(x)))


def mish_slope(x: FloatArray) -> FloatArray:
    """The slope of Mish."""
    inner = np.tanh(softplus(x))
    return np.asarray(inner + x * (1 - inner**2) * logistic(x))


def softsign(x: FloatArray) -> FloatArray:
    """X / (1 + |x|)."""
    return np.asarray(x / (1 + np.abs(x)))


def softsign_slope(x: FloatArray) -> FloatArray:
    """The slope of softsign."""
    return np.asarray((1 + np.abs(x)) ** -2.0)


def hard_swish(x: FloatArray) -> FloatArray:
    """x·(x/6 + ½), the factor clipped to [0, 1]."""
    return np.asarray(x * np.clip(x / 6 + 0.5, 0.0, 1.0))


def hard_swish_slope(x: FloatArray) -> FloatArray:
    """The slope of HardSwish."""
    return np.where(np.abs(x) < 3, x / 3 + 0.5, (x > 0) * 1.0)


def positive_square(x: FloatArray) -> FloatArray:
    """The square of a positive number, else 0."""
    return np.asarray(np.maximum(x, 0.0) ** 2)


def positive_square_slope(x: FloatArray) -> FloatArray:
    """The slope of the square of the positive part."""
    return 2 * np.maximum(x, 0.0)
