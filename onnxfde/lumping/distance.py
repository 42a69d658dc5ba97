"""Distances between neurons of a layer, in the condensed order of `scipy.spatial.distance.pdist`.

    forward        max_k |V_ki − V_kj|                              (outgoing weights)
    erode forward  3 Σ_k |V_ki − V_kj|
    backward sum   Σ_jk |a_j a_k − b_j b_k|                         (incoming polynomials, L1)
    backward max   max(max_j |a_j² − b_j²|, 2 max_{j<k} |a_j a_k − b_j b_k|)

Backward distances are those of squares. Neurons with another activation are compared by what is
inside it, and by the parameters that it reads for each neuron: Σ_j |a_j − b_j|, max_j |a_j − b_j|.

With s = (a+b)/2 and t = (a−b)/2, a_j a_k − b_j b_k = 2 (s_j t_k + t_j s_k): no polynomial is
expanded and nothing cancels. With r = t/s the L1 sum is 2 Σ_jk |s_j||s_k||r_j + r_k|, which takes
O(d log d) operations: r is sorted, and the sums are differences of prefix sums.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from onnxfde.neurons.layer import Layer
from onnxfde.neurons.polynomial_activations import SQUARE
from onnxfde.numbers import FloatArray
from onnxfde.options import Norm, Relation

TIE_TOLERANCE = 1e-12
"""How far a distance may exceed ε and still count as equal, relative to the largest coefficient or
1: well above float64 rounding, since exact ties in decimals are not ties in binary."""


def condensed(
    layer: Layer, relation: Relation, norm: Norm = "sum", erode: bool = False
) -> FloatArray:
    """Distances of all pairs i < j, row after row."""
    if relation == "forward":
        return pair_distances(layer.outgoing.T, erode_gaps if erode else largest_gaps)
    if layer.activation != SQUARE:
        gaps = summed_gaps if norm == "sum" else largest_gaps
        return pair_distances(inner_coefficients(layer), gaps)
    return pair_distances(layer.incoming, square_gaps_sum if norm == "sum" else square_gaps_max)


def largest_coefficients(layer: Layer, relation: Relation) -> FloatArray:
    """The largest coefficient in the distances of each neuron: their rounding is relative to it."""
    if relation == "forward":
        return np.asarray(np.abs(layer.outgoing).max(axis=0, initial=0.0))
    if layer.activation != SQUARE:
        return np.asarray(np.abs(inner_coefficients(layer)).max(axis=1, initial=0.0))
    ordered = np.sort(np.abs(layer.incoming), axis=1)[:, ::-1]
    first, second = ordered[:, 0], ordered[:, 1:2].sum(axis=1)
    return np.asarray(np.maximum(first**2, 2 * first * second))


def inner_coefficients(layer: Layer) -> FloatArray:
    """What tells the incoming side of neurons apart that are not squares, one row for each."""
    return np.column_stack([layer.incoming, *layer.unit_parameters])


def tie_tolerances(layer: Layer, relation: Relation) -> FloatArray:
    """By how much the distances of each neuron may exceed ε; of a pair the larger value counts."""
    return TIE_TOLERANCE * np.maximum(1.0, largest_coefficients(layer, relation))


def tolerant_distances(
    layer: Layer, relation: Relation, norm: Norm = "sum", erode: bool = False
) -> FloatArray:
    """Condensed distances minus what they may exceed ε by."""
    slack = tie_tolerances(layer, relation)
    first, second = np.triu_indices(layer.neurons, 1)
    gaps = condensed(layer, relation, norm, erode)
    return np.maximum(gaps - np.maximum(slack[first], slack[second]), 0.0)


def pair_distances(
    rows: FloatArray, gaps: Callable[[FloatArray, FloatArray], FloatArray]
) -> FloatArray:
    """Distances from each row to all later rows."""
    found = [gaps(rows[i], rows[i + 1 :]) for i in range(len(rows) - 1)]
    return np.concatenate(found) if found else np.zeros(0)


def largest_gaps(a: FloatArray, others: FloatArray) -> FloatArray:
    """Largest difference of weights."""
    return np.asarray(np.abs(others - a).max(axis=1))


def summed_gaps(a: FloatArray, others: FloatArray) -> FloatArray:
    """Sum of the differences of weights."""
    return np.asarray(np.abs(others - a).sum(axis=1))


def erode_gaps(a: FloatArray, others: FloatArray) -> FloatArray:
    """ERODE's distance of outgoing weights."""
    return np.asarray(3 * summed_gaps(a, others))


def square_gaps_sum(a: FloatArray, others: FloatArray) -> FloatArray:
    """L1 distance of the coefficients of (a·z)² and of each other row's square."""
    s, t = (a + others) / 2, (a - others) / 2
    magnitude, signed = np.abs(s), np.where(s == 0, 0.0, t * np.sign(s))
    ratio = np.divide(t, s, out=np.zeros_like(t), where=s != 0)
    below, order = ranks_of_negatives(ratio)
    prefix_magnitude = prefix_sums(np.take_along_axis(magnitude, order, axis=1))
    prefix_signed = prefix_sums(np.take_along_axis(signed, order, axis=1))
    left_magnitude = np.take_along_axis(prefix_magnitude, below, axis=1)
    left_signed = np.take_along_axis(prefix_signed, below, axis=1)
    both = signed * (prefix_magnitude[:, -1:] - 2 * left_magnitude)
    both += magnitude * (prefix_signed[:, -1:] - 2 * left_signed)
    lonely = np.where(s == 0, np.abs(t), 0.0).sum(axis=1)
    return np.asarray(2 * both.sum(axis=1) + 4 * lonely * magnitude.sum(axis=1))


def square_gaps_max(a: FloatArray, others: FloatArray) -> FloatArray:
    """Largest difference of the coefficients of (a·z)² and of each other row's square.

    Coefficients of monomials with z_j differ by at most 4(|s_j| max|t| + |t_j| max|s|). The j are
    visited from the largest of these bounds down, until no bound exceeds the largest difference.
    """
    s, t = (a + others) / 2, (a - others) / 2
    largest_s, largest_t = (np.abs(x).max(axis=1, keepdims=True) for x in (s, t))
    bound = 4 * (np.abs(s) * largest_t + np.abs(t) * largest_s)
    order = np.argsort(-bound, axis=1)
    best = 4 * np.abs(s * t).max(axis=1)
    active = np.arange(len(others))
    for rank in range(s.shape[1]):
        j = order[active, rank]
        hopeful = bound[active, j] > best[active]
        active, j = active[hopeful], j[hopeful]
        if not len(active):
            break
        mixed = s[active, j, None] * t[active] + t[active, j, None] * s[active]
        mixed[np.arange(len(active)), j] = 0.0
        best[active] = np.maximum(best[active], 4 * np.abs(mixed).max(axis=1))
    return np.asarray(best)


def ranks_of_negatives(ratio: FloatArray) -> tuple[np.ndarray, np.ndarray]:
    """Per row, how many entries lie below −r_j for each j; and the order that sorts the row."""
    width = ratio.shape[1]
    merged = np.argsort(np.concatenate([-ratio, ratio], axis=1), axis=1, kind="stable")
    is_entry = merged >= width
    entries_before = np.cumsum(is_entry, axis=1)
    counts = np.empty_like(merged)
    np.put_along_axis(counts, merged, entries_before, axis=1)
    order = merged[is_entry].reshape(ratio.shape) - width
    return counts[:, :width], order


def prefix_sums(a: FloatArray) -> FloatArray:
    """Cumulative sums of each row with a leading 0."""
    return np.concatenate([np.zeros((len(a), 1)), np.cumsum(a, axis=1)], axis=1)
