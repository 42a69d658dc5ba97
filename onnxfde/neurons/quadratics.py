"""Polynomials of degree 2 as activations, one per neuron, and the layers of squares they equal.

    p(t) = a·t² + b·t + c = a·(t + β)² + (c − a·β²),     β = b / 2a

So o = d + V p(U z) is the layer of squares with the rows u + (0, β), the outgoing weights V·a and
the offset d + V (c − a·β²). Computed that way, a value t rounds by u·|a|·(|t| + |β|)² and not by
u·(|a|·t² + |b|·|t| + |c|). Where that is much more, the polynomial stays in the graph, with the
same a, b, c for all neurons: the scale α of a neuron of a square layer is free, so it is chosen
such that t = α·u·z − β is about as large as it was.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from onnxfde.neurons.kernels import Metric
from onnxfde.neurons.layer import Layer
from onnxfde.numbers import FloatArray

SQUARE_COST = 4.0
"""Most times the rounding of a polynomial that completing its square may cost. Of the 16 roundoffs
within which results count as equal, 8 are left to the runtime, which needs one or two for a sum of
a few products. Chosen; not tuned."""

FAR = 4.0
"""A neuron is scaled if it rounds by more than this many times what it has to; others keep their
weights exactly. Chosen; not tuned."""


@dataclass(frozen=True, eq=False)
class Quadratic:
    """a·t² + b·t + c, with one coefficient per neuron, or a single one for all of them."""

    square: FloatArray
    linear: FloatArray
    constant: FloatArray

    @classmethod
    def of_line(cls, scale: FloatArray, shift: FloatArray) -> Quadratic:
        """scale·t + shift."""
        return cls(np.zeros_like(scale), scale, shift)

    @classmethod
    def around(cls, centre: float) -> Quadratic:
        """t·(t + 2β), the square of t + β but for a constant."""
        return cls(np.ones(1), np.full(1, 2 * centre), np.zeros(1))

    def plus(self, other: Quadratic) -> Quadratic:
        """The sum."""
        return Quadratic(
            self.square + other.square,
            self.linear + other.linear,
            self.constant + other.constant,
        )

    def scaled(self, scale: FloatArray, shift: FloatArray) -> Quadratic:
        """scale·p + shift."""
        return Quadratic(scale * self.square, scale * self.linear, scale * self.constant + shift)

    def times(self, other: Quadratic) -> Quadratic | None:
        """The product, or None if its degree is above 2."""
        cubic = self.square * other.linear + self.linear * other.square
        if np.any(self.square * other.square) or np.any(cubic):
            return None
        return Quadratic(
            self.square * other.constant
            + self.linear * other.linear
            + self.constant * other.square,
            self.linear * other.constant + self.constant * other.linear,
            self.constant * other.constant,
        )

    def __call__(self, t: FloatArray) -> FloatArray:
        """The value at t; neurons along the last axis."""
        return np.asarray((self.square * t + self.linear) * t + self.constant)

    @property
    def centre(self) -> FloatArray:
        """β."""
        return np.asarray(self.linear / (2 * self.square))

    @property
    def rest(self) -> FloatArray:
        """C − a·β²."""
        return np.asarray(self.constant - self.square * self.centre**2)

    @property
    def first(self) -> Quadratic:
        """The polynomial of the first neuron, for all of them."""
        return Quadratic(self.square[:1], self.linear[:1], self.constant[:1])

    @property
    def absolute(self) -> Quadratic:
        """The polynomial with the absolute values of its coefficients."""
        return Quadratic(np.abs(self.square), np.abs(self.linear), np.abs(self.constant))


def completed_layer(spelled: Layer, p: Quadratic) -> Layer:
    """The layer of squares that equals a layer with these polynomials."""
    return replace(
        spelled,
        incoming=with_bias_moved(spelled.incoming, p.centre),
        outgoing=spelled.outgoing * p.square,
        offset=spelled.offset + spelled.outgoing @ np.broadcast_to(p.rest, spelled.neurons),
    )


def spelled_layer(squares: Layer, p: Quadratic) -> Layer:
    """The weights that a layer of squares has if it is written with these polynomials."""
    outgoing = squares.outgoing / p.square
    return replace(
        squares,
        incoming=with_bias_moved(squares.incoming, -p.centre),
        outgoing=outgoing,
        offset=squares.offset - outgoing @ np.broadcast_to(p.rest, squares.neurons),
    )


def with_bias_moved(incoming: FloatArray, step: FloatArray) -> FloatArray:
    """Rows whose biases are larger by a step."""
    return np.column_stack([incoming[:, :-1], incoming[:, -1] + step])


def spelled_magnitude(squares: Layer, p: Quadratic, x: FloatArray) -> FloatArray:
    """A(x): the layer, written with these polynomials, evaluated on absolute values."""
    size = spelled_layer(squares, p).mapped(np.abs)
    hidden = p.absolute(np.abs(x) @ size.incoming[:, :-1].T + size.incoming[:, -1])
    return np.asarray(hidden @ size.outgoing.T + size.offset)


def square_cost(squares: Layer, p: Quadratic, x: FloatArray) -> float:
    """How many times the rounding of these polynomials a layer of squares rounds by, at most."""
    wanted = spelled_magnitude(squares, p, x)
    found = squares.magnitude(x)
    return float(np.max(found / np.where(wanted > 0, wanted, 1.0), initial=0.0))


def common_centre(squares: Layer, metric: Metric) -> float:
    """A β for all neurons: a power of two near the size of most of their values."""
    size = np.median(np.linalg.norm(metric.whiten(squares.incoming), axis=1))
    return float(np.exp2(np.round(np.log2(size)))) if size > 0 else 1.0


def recentred(squares: Layer, p: Quadratic, metric: Metric) -> Layer:
    """The same layer, scaled so that its polynomials round little.

    A neuron's part of the output rounds by u·|V|/α²·(t² + 2|β|·|t|) with t = α·u·z − β, which is
    small if α takes the mean of u·z to β, or its spread if that is larger.
    """
    centre = float(p.centre[0])
    rows = metric.whiten(squares.incoming)
    mean, spread = rows[:, -1], np.linalg.norm(rows[:, :-1], axis=1)
    size = np.where(mean < 0, -1.0, 1.0) * np.maximum(np.abs(mean), spread)
    scale = centre / np.where(size == 0, centre, size)

    def rounding(scale: FloatArray) -> FloatArray:
        t = np.hypot(scale * spread, scale * mean - centre)
        return np.asarray(t * (t + 2 * abs(centre)) / scale**2)

    scale[rounding(np.ones_like(scale)) <= FAR * rounding(scale)] = 1.0
    return replace(
        squares, incoming=squares.incoming * scale[:, None], outgoing=squares.outgoing / scale**2
    )
