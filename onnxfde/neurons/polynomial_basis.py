"""Neurons that are combinations of others because their activation is a polynomial.

    σ(w·x + b) = Σ_β φ_β x^β,     φ_β = |β|!/β! · w^β · σ^(|β|)(b)/|β|!      |β| ≤ p, the degree

φ has C(d + p, p) numbers, one of which is a constant and goes into the offset. Whatever the inputs
are, a layer needs no more neurons than these φ have dimensions, and some of its own will do.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cached_property
from itertools import combinations_with_replacement
from typing import Any

import numpy as np

from onnxfde.neurons.activation import Activation
from onnxfde.neurons.layer import Layer
from onnxfde.neurons.linear_map import LinearTerms
from onnxfde.neurons.polynomial_activations import SQUARE
from onnxfde.numbers import Blocks, FloatArray, Indices

MOST_MONOMIALS = 2**11
"""Monomials up to which they are written out: pivoted QR takes their square times neurons, 4 s for
1,000 neurons. Chosen; not tuned."""
MOST_COEFFICIENTS = 2**22
"""Numbers in φ of all neurons up to which it is written out, 32 MB. Chosen; not tuned."""


class PolynomialTerms(LinearTerms):
    """Neurons as polynomials: rows are φ, the constant last."""

    @cached_property
    def size(self) -> FloatArray:
        """|V||φ|."""
        return np.asarray(np.abs(self.weights) @ np.abs(self.rows))


def polynomial_basis(layer: Layer, dtype: np.dtype[Any]) -> tuple[Layer, Blocks] | None:
    """Fewer of its neurons, each with the others it is most similar to; None if all are needed."""
    chosen = independent_neurons(layer, dtype)
    if chosen is None:
        return None
    terms, kept, weights = chosen
    order = np.argsort(kept)
    kept, weights = kept[order], weights[:, order]
    offset = layer.offset + terms.map[:, -1] - weights @ terms.rows[kept, -1]
    smaller = replace(layer.only(kept), outgoing=weights, offset=offset)
    unit = terms.rows / np.linalg.norm(terms.rows, axis=1, keepdims=True)
    home = np.abs(unit @ unit[kept].T).argmax(axis=1)
    home[kept] = np.arange(len(kept))
    return smaller, tuple(tuple(np.flatnonzero(home == k).tolist()) for k in range(len(kept)))


def independent_neurons(
    layer: Layer, dtype: np.dtype[Any]
) -> tuple[LinearTerms, Indices, FloatArray] | None:
    """Neurons that span all, with the outgoing weights that make up for the others."""
    activation, power = layer.activation, layer.activation.power
    if power is None or power < 2 or activation == SQUARE or activation.parameters:
        return None
    count = math.comb(layer.inputs + power, power)
    if count > MOST_MONOMIALS or count * layer.neurons > MOST_COEFFICIENTS:
        return None
    coefficients = polynomial_coefficients(activation)
    if coefficients is None:
        return None
    with np.errstate(over="ignore", invalid="ignore"):
        rows = monomial_coefficients(layer.incoming, coefficients)
    if not np.isfinite(rows).all():
        return None
    terms = PolynomialTerms(rows, layer.outgoing, layer, dtype)
    found = terms.own_rows()
    return None if found is None else (terms, *found)


def polynomial_coefficients(activation: Activation) -> FloatArray | None:
    """The a_k of σ(t) = Σ a_k tᵏ; its constants are these, or these and a factor."""
    constants, probes = np.array(activation.constants), np.array([-0.5, 0.25, 1.5])
    for found in (constants, constants[:-1] * constants[-1:]):
        values = np.polynomial.polynomial.polyval(probes, found) if len(found) else 0 * probes
        if np.allclose(values, activation.value(probes), rtol=1e-12, atol=1e-12):
            return np.asarray(found)
    return None


def monomial_coefficients(incoming: FloatArray, coefficients: FloatArray) -> FloatArray:
    """φ of rows, the constant last."""
    weights, bias = incoming[:, :-1], incoming[:, -1]
    polynomial = np.polynomial.Polynomial(coefficients)
    columns = [polynomial(bias)]
    for degree in range(1, len(coefficients)):
        taylor = polynomial.deriv(degree)(bias) / math.factorial(degree)
        for chosen in combinations_with_replacement(range(weights.shape[1]), degree):
            counts = np.bincount(chosen)
            ways = math.factorial(degree) / math.prod(math.factorial(int(c)) for c in counts)
            columns.append(ways * taylor * np.prod(weights[:, list(chosen)], axis=1))
    return np.stack([*columns[1:], columns[0]], axis=1)
