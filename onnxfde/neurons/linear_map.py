"""Few neurons that together compute a linear map M x.

    M = C T,   T the rows of neurons that contribute something linear, C their weights

Some of the rows may be enough (pivoted QR finds a basis among them), or new rows: those outputs of
M of which the others are combinations, or the inputs themselves. A row q alone makes a linear
neuron where σ has a straight piece that q·x + bias never leaves; elsewhere the pair (q, −q) does,
if σ(−t) = sign·σ(t) + line·t + constant.

A choice is taken only if it changes M by no more than rounding and rounds no worse than the layer,
weight by weight:   |A Q − M| ≤ 2u·|V||U|,   |A||Q| ≤ 4·|V||U|,   biases included.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from onnxfde.neurons.activation import Activation
from onnxfde.neurons.layer import Layer
from onnxfde.neurons.linear_pieces import (
    InputBox,
    StraightPiece,
    lowest_sums,
    stay_in_piece,
    straight_pieces,
)
from onnxfde.numbers import ROUNDOFF, FloatArray, Indices, cast

RANK_STEPS = 16
"""A row counts as a combination of others if what is left of it is at most this many unit roundoffs
of the largest row. Chosen: a combination of rounded rows is off by about one; not tuned."""
MAP_STEPS = 2
"""The factor 2 above. With both, a map stays within the 8 roundoffs that a layer may change."""
MAP_GROWTH = 4
"""The factor 4 above. Chosen; not tuned."""
BIAS_MARGIN = 8
"""Unit roundoffs by which new neurons stay away from the ends of their straight piece, since they
are rounded afterwards. Chosen; not tuned."""


@dataclass(frozen=True, eq=False)
class LinearTerms:
    """Rows that contribute linearly to a layer, with their outgoing weights."""

    rows: FloatArray
    weights: FloatArray
    layer: Layer
    dtype: np.dtype[Any]
    """What the layer is stored as."""

    @property
    def roundoff(self) -> float:
        """Its unit roundoff."""
        return ROUNDOFF[self.dtype.name]

    @cached_property
    def size(self) -> FloatArray:
        """|V||U| of the whole layer times the slopes of σ: the scale of its rounding errors."""
        layer = self.layer
        return np.asarray(np.abs(layer.outgoing) * steepness(layer) @ np.abs(layer.incoming))

    @cached_property
    def map(self) -> FloatArray:
        """M, the last column of which is a constant."""
        return np.asarray(self.weights @ self.rows)

    def own_rows(self) -> tuple[Indices, FloatArray] | None:
        """Fewer of the rows, and weights A for them; None if all are needed."""
        slopes = self.rows[:, :-1]
        size = np.abs(self.rows).max(axis=1)
        some, others, combined = spanning_rows(slopes / size[:, None], self.roundoff)
        if not len(others):
            return None
        scaled = self.weights * size
        weights = (scaled[:, some] + scaled[:, others] @ combined) / size[some]
        good = self.reproduced(slopes[some], weights)
        return (some, weights) if good and self.bears(self.rows[some, -1], weights) else None

    def new_rows(self) -> tuple[FloatArray, FloatArray] | None:
        """As few rows as the rank of M, and weights A; None if rounding spoils them."""
        slopes = self.map[:, :-1]
        rank_size = np.maximum(self.size[:, :-1].max(axis=1), np.finfo(float).tiny)
        some, others, combined = spanning_rows(slopes / rank_size[:, None], self.roundoff)
        if len(some) >= slopes.shape[1]:
            rows, weights = np.eye(slopes.shape[1]), slopes
        else:
            exponent = np.frexp(np.abs(slopes[some]).max(axis=1, initial=0.0))[1]
            rows = cast(np.ldexp(slopes[some], -exponent[:, None]), self.dtype)
            weights = np.zeros((len(slopes), len(some)))
            weights[some, np.arange(len(some))] = 1.0
            weights[others] = combined / rank_size[some] * rank_size[others, None]
            weights = np.ldexp(weights, exponent)
        return (rows, weights) if self.reproduced(rows, weights) else None

    def reproduced(self, rows: FloatArray, weights: FloatArray) -> bool:
        """Whether rows with these weights are M up to rounding."""
        size = self.size[:, :-1]
        change = np.abs(weights @ rows - self.map[:, :-1])
        grown = np.abs(weights) @ np.abs(rows)
        close = np.all(change <= MAP_STEPS * self.roundoff * size)
        return bool(close and np.all(grown <= MAP_GROWTH * size))

    def bears(self, biases: FloatArray, weights: FloatArray, box: InputBox | None = None) -> bool:
        """Whether biases of new neurons round no worse than the layer, however small inputs are."""
        size = self.size[:, -1]
        if box is not None:
            size = size + self.size[:, :-1] @ np.maximum(np.maximum(box[0], -box[1]), 0.0)
        return bool(np.all(np.abs(weights) @ np.abs(biases) <= MAP_GROWTH * size))


def steepness(layer: Layer) -> FloatArray:
    """The steepest slope of σ, for each neuron, as far as rounding is concerned."""
    grown = layer.activation.magnitude
    one, parameters = np.ones(layer.neurons), layer.unit_parameters
    return np.asarray(grown(one, *parameters) - grown(0 * one, *parameters))


def rounds_linearly(layer: Layer) -> bool:
    """Whether the rounding of neurons grows like their arguments: σ has a steepest slope."""
    grown, two, parameters = (
        layer.activation.magnitude,
        np.full(layer.neurons, 2.0),
        layer.unit_parameters,
    )
    return np.allclose(grown(two, *parameters) - grown(two / 2, *parameters), steepness(layer))


def spanning_rows(rows: FloatArray, roundoff: float) -> tuple[Indices, Indices, FloatArray]:
    """Rows that span all, the others, and C with others = C·some."""
    from scipy.linalg import qr, solve_triangular

    if not rows.any():
        return np.arange(0), np.arange(len(rows)), np.zeros((len(rows), 0))
    used = rows[:, rows.any(axis=0)]
    upper, order = qr((used / np.abs(used).max(axis=0)).T, mode="r", pivoting=True)
    left = np.abs(np.diag(upper))
    rank = int(np.sum(left > RANK_STEPS * roundoff * left[0]))
    combined = solve_triangular(upper[:rank, :rank], upper[:rank, rank:]).T
    return order[:rank].astype(np.intp), order[rank:].astype(np.intp), np.asarray(combined)


def linear_neurons(
    like: Layer, rows: FloatArray, weights: FloatArray, dtype: np.dtype[Any], box: InputBox | None
) -> Layer | None:
    """Neurons that compute A Q x; None if the activation cannot make any."""
    activation = like.activation
    plain = np.column_stack([rows, np.zeros(len(rows))])
    if activation.name == "PRelu":
        slope = float(activation.slope(np.ones(1), 1.0)[0])
        return neurons_like(like, plain, weights / slope, (np.ones(len(rows)),))
    if activation.parameters:
        return None
    for piece in straight_pieces(activation):
        slope, start = line_of(activation, piece)
        placed = in_piece(plain, piece, dtype, box) if slope else None
        if placed is not None:
            placed_rows, scale = placed
            columns = weights / scale / slope
            found = neurons_like(like, placed_rows, columns)
            shift = columns @ (slope * placed_rows[:, -1] + start)
            return Layer(found.incoming, found.outgoing, -shift, activation)
    return mirrored(like, plain, weights)


def neurons_like(
    like: Layer, rows: FloatArray, weights: FloatArray, parameters: tuple[FloatArray, ...] = ()
) -> Layer:
    """Neurons with no offset."""
    return Layer(rows, weights, np.zeros(like.outputs), like.activation, parameters)


def line_of(activation: Activation, piece: StraightPiece) -> tuple[float, float]:
    """Slope and intercept of a straight piece."""
    at = np.array([piece.inside])
    slope = float(activation.slope(at)[0])
    return slope, float(activation.value(at)[0]) - slope * piece.inside


def mirrored(like: Layer, plain: FloatArray, weights: FloatArray) -> Layer | None:
    """The pairs (q, −q): line·q + constant = σ(−q) − sign·σ(q)."""
    reflection = like.activation.reflection
    if reflection is None or not reflection.line:
        return None
    share = weights / reflection.line
    rows = np.vstack([-plain, plain])
    outgoing = np.hstack([share, -reflection.sign * share])
    return Layer(rows, outgoing, -share.sum(axis=1) * reflection.constant, like.activation)


def in_piece(
    rows: FloatArray, piece: StraightPiece, dtype: np.dtype[Any], box: InputBox | None
) -> tuple[FloatArray, FloatArray] | None:
    """Rows with a scale and a bias that keep them within a piece; the scales."""
    low, high = piece.low, piece.high
    if np.isinf(low) and np.isinf(high):
        return rows, np.ones(len(rows))
    if box is None:
        return None
    least, most = lowest_sums(rows, box)[0], -lowest_sums(-rows, box)[0]
    scale = np.ones(len(rows))
    if np.isfinite(high - low):
        room = (high - low) / 2 / np.maximum(most - least, np.finfo(float).tiny)
        scale = np.exp2(np.minimum(np.floor(np.log2(room)), 0.0))
    least, most = least * scale, most * scale
    bias = bias_within(piece, least, most, ROUNDOFF[dtype.name])
    placed = cast(np.column_stack([rows[:, :-1] * scale[:, None], bias]), dtype)
    probe = Layer(placed, np.zeros((0, len(rows))), np.zeros(0))
    return (placed, scale) if stay_in_piece(probe, box, piece).all() else None


def bias_within(
    piece: StraightPiece, least: FloatArray, most: FloatArray, roundoff: float
) -> FloatArray:
    """Biases that move ranges into a piece."""
    margin = BIAS_MARGIN * roundoff * (np.abs(least) + np.abs(most))
    if np.isinf(piece.high):
        return np.asarray(piece.low + BIAS_MARGIN * roundoff * abs(piece.low) - least + margin)
    if np.isinf(piece.low):
        return np.asarray(piece.high - BIAS_MARGIN * roundoff * abs(piece.high) - most - margin)
    return np.asarray((piece.low + piece.high) / 2 - (least + most) / 2)
