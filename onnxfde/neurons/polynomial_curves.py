"""A polynomial of any degree as a curve.

    p turns at the roots of p′, and its slope at those of p″

Between two neighbouring roots of p′, p is monotone and has at most one root, which bisection finds;
so the roots of p follow from those of p′, down to a line. Signs are those of exact rational
arithmetic. Where p′ vanishes without a change of sign p does not turn, and if rounding hides two
roots from each other, p changes by less than rounding between them.
"""

from __future__ import annotations

from fractions import Fraction
from functools import cache
from itertools import pairwise

import numpy as np

from onnxfde.neurons.activation_curves import Curve, Ends
from onnxfde.numbers import FloatArray

ROOT_HALVINGS = 300
"""Most halvings of an interval that holds a root: enough for float64 to have no number between its
ends unless the root is 1e-70 times smaller than the largest one may be."""
Coefficients = tuple[float, ...]
"""Of a polynomial, from the constant on."""


def polynomial_curve(coefficients: Coefficients) -> Curve:
    """Σ_k a_k xᵏ."""
    found = np.polynomial.Polynomial(coefficients)
    slope, rounded = found.deriv(), 1 + len(coefficients) / 2

    def on_absolute_values(size: FloatArray) -> FloatArray:
        return np.asarray(rounded * np.polynomial.polynomial.polyval(size, np.abs(coefficients)))

    def ends(p: np.polynomial.Polynomial, low: FloatArray, high: FloatArray) -> Ends:
        places = roots_between(derivative(tuple(p.coef.tolist())))
        values = [p(low), p(high), *(p(np.clip(place, low, high)) for place in places)]
        return np.minimum.reduce(values), np.maximum.reduce(values)

    def slopes(low: FloatArray, high: FloatArray) -> Ends:
        least, most = ends(slope, low, high)
        size = np.maximum(np.abs(low), np.abs(high))
        terms = np.polynomial.polynomial.polyval(size, np.abs(slope.coef))
        slack = 2.0**-50 * rounded * terms
        return least - slack, most + slack

    return Curve(
        found,
        slopes,
        smooth=True,
        terms=on_absolute_values,
        extremes=lambda low, high: ends(found, low, high),
    )


def derivative(coefficients: Coefficients) -> Coefficients:
    """The coefficients of the derivative."""
    return tuple(k * a for k, a in enumerate(coefficients))[1:]


@cache
def roots_between(coefficients: Coefficients) -> tuple[float, ...]:
    """All places where a polynomial changes its sign, and maybe others, in rising order."""
    exact = tuple(Fraction(a) for a in coefficients)
    while exact and not exact[-1]:
        exact = exact[:-1]
    if len(exact) < 2:
        return ()
    largest = 1 + max(abs(a / exact[-1]) for a in exact[:-1])
    limit = float(min(largest, Fraction(2) ** 1000))
    inner = roots_between(derivative(coefficients))
    places = [-limit, *(place for place in inner if abs(place) < limit), limit]
    found = [bisected(exact, *ends) for ends in pairwise(places)]
    return tuple(sorted({*inner, *(place for place in found if place is not None)}))


def bisected(exact: tuple[Fraction, ...], low: float, high: float) -> float | None:
    """A place between two points where a polynomial changes its sign, if it does."""
    below, above = sign_at(exact, low), sign_at(exact, high)
    if below * above >= 0:
        return low if below == 0 else high if above == 0 else None
    for _ in range(ROOT_HALVINGS):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        if sign_at(exact, middle) == below:
            low = middle
        else:
            high = middle
    return high


def sign_at(exact: tuple[Fraction, ...], place: float) -> int:
    """The sign of a polynomial."""
    x, total = Fraction(place), Fraction(0)
    for a in reversed(exact):
        total = total * x + a
    return (total > 0) - (total < 0)
