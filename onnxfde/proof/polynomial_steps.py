"""A polynomial inside a chain, as what it adds to the maps before and after its square.

    V p(F) = V·a (F + β)² + V (c − a·β²),     β = b / 2a

a, b, c are read in float64, each within γ_k of the absolute values A ≥ |a|, B ≥ |b|, C ≥ |c| of the
parts it is made of. Then with S = (B + |b|·A/|a|) / 4|a|, which is at least |β|, if γ_k·A ≤ |a|/4,

    β is off by at most 3·γ_k·S,     c − a·β² by at most 10·γ_k·(C + A·S²),     a by γ_k·A.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from onnxfde.graph.affine_maps import Layout, NoMatch
from onnxfde.graph.model import Graph
from onnxfde.graph.polynomials import polynomial_of
from onnxfde.graph.regions import Region
from onnxfde.neurons.intervals import gamma
from onnxfde.neurons.quadratics import Quadratic
from onnxfde.numbers import FloatArray
from onnxfde.proof.affine_bounds import Map

NODE_STEPS = 8
"""Roundings of a coefficient in one node: a product of two polynomials takes 5, a
BatchNormalization 6."""
COMPLETION = 10
"""The largest factor in front of γ_k above."""


@dataclass(frozen=True, eq=False)
class PolynomialStep:
    """A polynomial of a chain, its parts on absolute values, and how often these were rounded."""

    region: Region
    p: Quadratic
    size: Quadratic
    steps: int

    @property
    def squares(self) -> bool:
        """Whether it has a square term."""
        return bool(np.all(self.p.square != 0))

    def shifted(self, first: Map) -> Map:
        """F + β; the whole polynomial of F if it is linear."""
        w, b = first.size
        if not self.squares:
            scale, shift, size = self.p.linear, self.p.constant, self.size.linear
            return Map(
                scale[:, None] * first.weight,
                scale * first.bias + shift,
                first.steps + self.steps,
                (size[:, None] * w, size * b + self.size.constant),
            )
        steps = first.steps + self.steps
        return Map(first.weight, first.bias + self.p.centre, steps, (w, b + self._centre_size))

    def preceding(self, second: Map) -> Map:
        """V·a and the constant that the completed square leaves."""
        w, b = second.size
        rest = self.size.constant + self.size.square * self._centre_size**2
        return Map(
            second.weight * self.p.square,
            second.bias + second.weight @ self.p.rest,
            second.steps + self.steps + second.weight.shape[1],
            (w * self.size.square, b + w @ rest),
        )

    @property
    def _centre_size(self) -> FloatArray:
        a, b = np.abs(self.p.square), np.abs(self.p.linear)
        return np.asarray((self.size.linear + b * self.size.square / a) / (4 * a))


def polynomial_step(graph: Graph, region: Region, features: int, layout: Layout) -> PolynomialStep:
    """Read a polynomial; NoMatch if it is not of one degree, or its square terms nearly cancel."""
    read = (graph, region.nodes, region.first.output[0], region.value, features, layout)
    p, size = polynomial_of(*read), polynomial_of(*read, absolute=True)
    steps = NODE_STEPS * (len(region.nodes) + 1)
    if np.any(size.square) and not np.all(gamma(steps) * size.square <= np.abs(p.square) / 4):
        raise NoMatch("its square terms are missing or nearly cancel")
    finite = all(np.isfinite(a).all() for a in (size.square, size.linear, size.constant))
    if not finite:
        raise NoMatch("a constant is not a number")
    return PolynomialStep(region, p, size, COMPLETION * steps)
