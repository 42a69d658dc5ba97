"""Outgoing weights and offset by least squares, for neurons that are given.

    V′ = V₀ + Δ,   Δ minimises ‖V φ(U) − (V₀ + Δ) φ(U′)‖² + λ‖Δ S‖²,   S = diag √K(u′_r, u′_r)
    c′ = c + V E[(U z)²] − V′ E[(U′ z)²]

φ are the features of squares in the metric (`kernels`), V₀ the weights it starts from. The tiny
ridge λ picks the smallest correction where several fit. It is solved in normalised features: by
Gram matrices, or with all digits by a QR factorisation of φ(U′) itself.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from onnxfde.neurons.kernels import (
    features,
    features_fit,
    kernel,
    kernel_scale,
    mean_square,
    unit_rows,
)
from onnxfde.neurons.layer import Layer
from onnxfde.neurons.original_layer import OriginalLayer
from onnxfde.neurons.positive_matrices import solve_positive
from onnxfde.numbers import FloatArray

RIDGE = 1e-13
"""λ for features of norm 1: 450 times float64's machine epsilon. Taken from prototypes; not
tuned."""
QR_PASSES = 2
"""How often the QR solution is corrected: the second pass removes what the ridge left."""
LEAST_OFFSET = 1e-8
"""A change of c below this share of the terms it is the sum of counts as 0, so that no bias is
added for it: Gram matrices are certain to half the digits of float64, which is 1.5e-8."""
OFFSET_ROUNDOFFS = 1 / 64
"""The same by QR, in unit roundoffs of the stored type. Chosen so that it cannot be seen there."""
LEAST_EXACT_OFFSET = 1e-14
"""But by QR no less than this: 45 times float64's machine epsilon. Chosen; not tuned."""


def refit(original: OriginalLayer, start: Layer, roundoff: float | None = None) -> Layer:
    """`start` with the outgoing weights and the offset that bring it closest to the original.

    A `roundoff`, that of the stored type, asks for all digits: for neurons that can reproduce the
    layer up to rounding. φ may be too large for that; then Gram matrices have to do.
    """
    layer, rows, kept = original.layer, original.rows, original.metric.whiten(start.incoming)
    exact = roundoff is not None and features_fit(2 * len(kept) + layer.outputs, rows.shape[1])
    outgoing = exact_fit(original, start, kept) if exact else gram_fit(original, start, kept)
    least = LEAST_OFFSET
    if roundoff is not None and exact:
        least = max(OFFSET_ROUNDOFFS * roundoff, LEAST_EXACT_OFFSET)
    terms = np.hstack([layer.outgoing * mean_square(rows), -outgoing * mean_square(kept)])
    change = terms.sum(axis=1)
    change[np.abs(change) <= least * np.abs(terms).sum(axis=1)] = 0.0
    return replace(start, outgoing=outgoing, offset=layer.offset + change)


def exact_fit(original: OriginalLayer, start: Layer, kept: FloatArray) -> FloatArray:
    """V₀ + Δ, with the smallest Δ (in normalised features) that fits what V₀ leaves of F."""
    basis, scale, outgoing = features(kept), kernel_scale(kept), start.outgoing
    design = np.vstack([(basis / scale[:, None]).T, np.sqrt(RIDGE) * np.eye(len(kept))])
    q, r = np.linalg.qr(design)
    top = q[: basis.shape[1]]
    for _ in range(QR_PASSES):
        left = (original.summed - outgoing @ basis).T
        outgoing = outgoing + np.linalg.solve(r, top.T @ left).T / scale
    return np.asarray(outgoing)


def gram_fit(original: OriginalLayer, start: Layer, kept: FloatArray) -> FloatArray:
    """The same from Gram matrices: half the digits, and φ need not fit in memory."""
    scale = kernel_scale(kept)
    target = original.overlap_with(start.incoming) / scale + RIDGE * scale * start.outgoing
    return solve_positive(ridged_gram(kept), target.T).T / scale


def ridged_gram(rows: FloatArray) -> FloatArray:
    """The kernel of whitened rows scaled to norm 1, plus the ridge, so that it is not singular."""
    units = unit_rows(rows)
    gram = kernel(units, units)
    gram[np.diag_indices(len(gram))] += RIDGE
    return gram
