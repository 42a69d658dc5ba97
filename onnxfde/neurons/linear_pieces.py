"""Neurons that only ever use one straight piece of their activation.

    σ(t) = a·t + b   for t between two kinks,   t = u·z in a known range over the box of inputs

The range is that of exact arithmetic: computed in float64 and rounded outward, or with fractions
where that decides. Without a box only activations that are straight everywhere count.
"""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from onnxfde.neurons.activation import Activation
from onnxfde.neurons.intervals import TINY, gamma
from onnxfde.neurons.layer import Layer
from onnxfde.numbers import FloatArray

InputBox = tuple[FloatArray, FloatArray]
"""The lowest and the highest value of each input of a layer."""

STRAIGHT_PIECES = {
    "Relu": (True, True),
    "LeakyRelu": (True, True),
    "PRelu": (True, True),
    "Abs": (True, True),
    "ThresholdedRelu": (True, True),
    "Relu²": (True, False),
    "Elu": (False, True),
    "Selu": (False, True),
    "Celu": (False, True),
    "HardSwish": (True, False, True),
    "Identity": (True,),
}
"""Which pieces between the kinks are straight; all pieces of `Clip` and `HardSigmoid` are."""
MOST_EXACT = 2**18
"""Weights of the neurons that are looked at with fractions, about a second. Chosen; not tuned."""


class StraightPiece(NamedTuple):
    """Where an activation is straight, and a point inside."""

    low: float
    high: float
    inside: float
    low_belongs: bool
    """Whether the lower end is part of it: not where the function jumps."""


def straight_pieces(activation: Activation) -> list[StraightPiece]:
    """The pieces of an activation that are straight."""
    kinks = activation.kinks
    if activation.name == "Polynomial":
        straight: tuple[bool, ...] = (activation.power is not None and activation.power <= 1,)
    elif activation.name in ("Clip", "HardSigmoid"):
        straight = (True,) * (len(kinks) + 1)
    else:
        straight = STRAIGHT_PIECES.get(activation.name, ())
    ends = (-np.inf, *kinks, np.inf)
    belongs = activation.name != "ThresholdedRelu"
    return [
        StraightPiece(low, high, point_inside(low, high), belongs)
        for low, high, is_straight in zip(ends[:-1], ends[1:], straight, strict=False)
        if is_straight
    ]


def point_inside(low: float, high: float) -> float:
    """A number well inside an interval that may be unbounded."""
    if np.isinf(low) and np.isinf(high):
        return 0.0
    if np.isinf(low):
        return high - 1
    return low + 1 if np.isinf(high) else (low + high) / 2


def straight_neurons(layer: Layer, box: InputBox | None) -> tuple[FloatArray, FloatArray]:
    """Slope a and intercept b of the neurons that are a·t + b on the box; nan for the others."""
    slope, intercept = np.full(layer.neurons, np.nan), np.full(layer.neurons, np.nan)
    for piece in straight_pieces(layer.activation):
        if box is None and np.isfinite([piece.low, piece.high]).any():
            continue
        at = np.full(layer.neurons, piece.inside)
        steep = layer.activation.slope(at, *layer.unit_parameters)
        shift = layer.activation.value(at, *layer.unit_parameters) - steep * at
        inside = (
            np.ones(layer.neurons, dtype=bool) if box is None else stay_in_piece(layer, box, piece)
        )
        slope[inside], intercept[inside] = steep[inside], shift[inside]
    if layer.activation.name == "PRelu":
        straight = layer.unit_parameters[0] == 1
        slope[straight] = layer.activation.slope(np.ones(1), 1.0)
        intercept[straight] = 0.0
    return slope, intercept


def stay_in_piece(layer: Layer, box: InputBox, piece: StraightPiece) -> npt.NDArray[np.bool_]:
    """Which neurons stay within a piece for all inputs in the box."""
    low, low_slack = lowest_sums(layer.incoming, box)
    high, high_slack = lowest_sums(-layer.incoming, box)
    high = -high
    sure = ranges_in_piece(piece, low - low_slack, high + high_slack)
    unsure = np.flatnonzero(ranges_in_piece(piece, low + low_slack, high - high_slack) & ~sure)
    for i in unsure[: MOST_EXACT // layer.incoming.shape[1]]:
        sure[i] = stays_in_piece_exactly(layer.incoming[i], box, piece)
    return sure


def ranges_in_piece(
    piece: StraightPiece, low: FloatArray, high: FloatArray
) -> npt.NDArray[np.bool_]:
    """Which ranges lie within a piece."""
    above = low >= piece.low if piece.low_belongs else low > piece.low
    return np.asarray(above & (high <= piece.high))


@np.errstate(invalid="ignore", over="ignore")
def lowest_sums(incoming: FloatArray, box: InputBox) -> tuple[FloatArray, FloatArray]:
    """The lowest u·z over a box, and how much rounding may have changed it: nothing if all is 0."""
    weights, bias = incoming[:, :-1], incoming[:, -1]
    up, down = np.maximum(weights, 0.0), np.minimum(weights, 0.0)
    low, high = box
    size = up @ np.abs(low) - down @ np.abs(high) + np.abs(bias)
    slack = 2 * gamma(incoming.shape[1] + 4) * size + TINY
    return up @ low + down @ high + bias, np.where(size == 0, 0.0, slack)


def stays_in_piece_exactly(row: FloatArray, box: InputBox, piece: StraightPiece) -> bool:
    """The same for one neuron, without rounding."""
    low, high = box
    lowest = highest = Fraction(float(row[-1]))
    for w, least, most in zip(row[:-1].tolist(), low.tolist(), high.tolist(), strict=True):
        ends = Fraction(w) * Fraction(least), Fraction(w) * Fraction(most)
        lowest, highest = lowest + min(ends), highest + max(ends)
    above = lowest >= piece.low if piece.low_belongs else lowest > piece.low
    return bool(above and highest <= piece.high)
