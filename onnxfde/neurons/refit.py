"""Refit."""

from __future__ import annotations

import numpy as np

from onnxfde.neurons.kernels import (
    Metric,
    features,
    features_fit,
    kernel,
    kernel_scale,
    mean_square,
)
from onnxfde.neurons.layer import Layer
from onnxfde.numbers import FloatArray

RIDGE = 1e-13


def refit(layer: Layer, start: Layer, metric: Metric, roundoff: float | None = None) -> Layer:
    """`start` with outgoing weights and offset that bring it closest to `layer`.

    A `roundoff` asks for all digits, where the two are equal up to rounding: least squares by QR on
    φ, if φ is not too large, and not by the Gram matrix, and once more against the ridge.
    """
    rows, kept = metric.whiten(layer.incoming), metric.whiten(start.incoming)
    scale = kernel_scale(kept)
    exact = roundoff is not None and features_fit(2 * len(rows), rows.shape[1])
    solve = correction if exact else gram_correction
    outgoing = start.outgoing
    for _ in range(2 if exact else 1):
        outgoing = outgoing + solve(rows, kept, scale, layer.outgoing, outgoing)
    noise = max(roundoff / 64, 1e-14) if roundoff is not None and exact else 1e-8
    terms = np.hstack([layer.outgoing * mean_square(rows), -outgoing * mean_square(kept)])
    change = terms.sum(axis=1)
    change[np.abs(change) <= noise * np.abs(terms).sum(axis=1)] = 0.0
    return Layer(start.incoming, outgoing, layer.offset + change)


def correction(
    rows: FloatArray, kept: FloatArray, scale: FloatArray, outgoing: FloatArray, start: FloatArray
) -> FloatArray:
    """The smallest ΔV (in normalised features) that fits what `start` leaves of the layer."""
    basis = features(kept)
    target = outgoing @ features(rows) - start @ basis
    design = np.vstack([(basis / scale[:, None]).T, np.sqrt(RIDGE) * np.eye(len(kept))])
    padded = np.vstack([target.T, np.zeros((len(kept), len(target)))])
    q, r = np.linalg.qr(design)
    return np.asarray(np.linalg.solve(r, q.T @ padded).T / scale)


def gram_correction(
    rows: FloatArray, kept: FloatArray, scale: FloatArray, outgoing: FloatArray, start: FloatArray
) -> FloatArray:
    """The same from Gram matrices: half the digits, none of the memory."""
    gram = ridged_gram(kept, scale)
    target = (outgoing @ kernel(rows, kept) - start @ kernel(kept, kept)) / scale
    return np.asarray(np.linalg.solve(gram, target.T).T / scale)


def ridged_gram(rows: FloatArray, scale: FloatArray) -> FloatArray:
    """The normalised kernel of whitened rows, kept away from singular."""
    return kernel(rows, rows) / np.outer(scale, scale) + RIDGE * np.eye(len(rows))
