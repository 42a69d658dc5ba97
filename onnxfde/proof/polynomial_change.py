"""How far two layers of a polynomial of any degree can be apart, whatever their neurons are.

    o′ − o = Σ_i w_i p(a_i·z),   z = (t, 1),  x = m + r·t,  t ∈ [−1, 1]ᵈ;   p(s) = Σ_k c_k sᵏ

With e·z = 1 this is one form of degree K, Σ_i w_i Σ_k c_k (a_i·z)ᵏ (e·z)ᴷ⁻ᵏ, whose symmetric tensor
need not be written out to know its length:

    |o′ − o| ≤ ‖z‖ᴷ·√(Σ_ij w_i w_j G_ij),   ‖z‖² ≤ d + 1
    G_ij = Σ_kl c_k c_l Σ_n C(k, n) C(K − k, l − n) / C(K, l) · (a_i·a_j)ⁿ (a_i·e)ᵏ⁻ⁿ (a_j·e)ˡ⁻ⁿ

A layer without neurons that were linear combinations of others, as polynomials are of enough
others, has no neuron that stands for them, but this sum is 0. It cannot resolve changes below 1e-8
of the same sum on absolute values.
"""

from __future__ import annotations

from math import comb

import numpy as np

from onnxfde.neurons.intervals import Interval, gamma
from onnxfde.numbers import FloatArray
from onnxfde.proof.affine_bounds import OUTWARD, Map
from onnxfde.proof.hidden_functions import HiddenFunction

MOST_TENSOR_WORK = 6e10
"""Multiplications that the products of all neurons may take: six seconds at 1e10 per second.
Chosen; not tuned."""
PolynomialLayer = tuple[Map, HiddenFunction, Map]
"""The maps around a polynomial."""


def polynomial_change(
    before: PolynomialLayer, after: PolynomialLayer, x: Interval
) -> Interval | None:
    """The range of o′(x) − o(x) over a box; None if it takes too long, or is no polynomial."""
    layers, activation = (before, after), before[1].activation
    weight = np.hstack(
        [-before[2].weight, after[2].weight, (after[2].bias - before[2].bias)[:, None]]
    )
    count, width, degree = weight.shape[1], len(x.low) + 1, activation.power or 0
    work = float(count) ** 2 * (width + len(weight) + degree**3)
    if activation.name != "Polynomial" or not degree or work > MOST_TENSOR_WORK:
        return None
    rows = np.vstack([*(centred_rows(first, x) for first, _, _ in layers), np.zeros((1, width))])
    factors = np.tile(activation.constants[: degree + 1], (count, 1))
    factors[-1] = np.eye(1, degree + 1)
    gram, size = tensor_products(rows, factors), tensor_sizes(rows, factors)
    square = np.einsum("ki,ki->k", weight, weight @ gram)
    steps = 4 * (degree + 2) * (width + 8) + 2 * count
    most = gamma(steps) * OUTWARD * (np.abs(weight) @ size) ** 2
    reach = np.sqrt(np.maximum(square, 0.0) + most) * OUTWARD * float(width) ** (degree / 2)
    return Interval(-reach, reach).widened(weight_rounding(layers, x))


def centred_rows(first: Map, x: Interval) -> FloatArray:
    """Neurons as rows a of products with z."""
    return np.column_stack([first.weight * x.rad, first.weight @ x.mid + first.bias])


def tensor_products(rows: FloatArray, factors: FloatArray) -> FloatArray:
    """G."""
    degree, last = factors.shape[1] - 1, rows[:, -1]
    products = rows @ rows.T
    found = np.zeros_like(products)
    for k in range(degree + 1):
        for j in range(degree + 1):
            for n in range(max(0, k + j - degree), min(k, j) + 1):
                share = comb(k, n) * comb(degree - k, j - n) / comb(degree, j)
                one, other = factors[:, k] * last ** (k - n), factors[:, j] * last ** (j - n)
                found += share * one[:, None] * other * products**n
    return found


def tensor_sizes(rows: FloatArray, factors: FloatArray) -> FloatArray:
    """At least the length of each neuron's tensor: Σ_k |c_k| |a|ᵏ."""
    lengths = np.linalg.norm(rows, axis=1)
    powers = lengths[:, None] ** np.arange(factors.shape[1])
    return np.asarray((np.abs(factors) * powers).sum(axis=1))


def weight_rounding(layers: tuple[PolynomialLayer, ...], x: Interval) -> FloatArray:
    """What the rounding of the weights and the spelling of the polynomial may add."""
    total = np.zeros(len(layers[0][2].weight))
    for first, function, second in layers:
        size = function.activation.magnitude(first.magnitude(x.size[None]))
        degree = function.activation.power or 1
        steps = degree * (first.steps + first.weight.shape[1] + 8) + second.steps + 8
        off = function.deviation(first(Interval(x.low[None], x.high[None])))
        total += gamma(steps) * second.magnitude(size)[0] + off * second.size[0].sum(axis=1)
    return np.asarray(total * OUTWARD)
