"""How a block of neurons becomes fewer neurons.

    single   forward   √λ·e, the top eigenpair of M_B = Σ_{i∈B} u_i u_iᵀ, with the mean of V
             backward  e, the top eigenvector of Σ ‖V_i‖ u_i u_iᵀ, with V′ = Σ V_i (u_i·e)²
    exact    forward   one neuron √λ·e for each nonzero eigenvalue of M_B, with the mean of V
    refit    V′ and c′ by least squares, so that the whole layer is closest to the original in the
             metric; the smallest correction to what it starts from

The scale of a neuron is free (u → αu, V → V/α²): `balanced` chooses it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from onnxfde.metric import Metric, features, features_fit, kernel, kernel_scale
from onnxfde.polynomial import Blocks, FloatArray, Layer

RIDGE = 1e-13
RANK_TOLERANCE = 1e-12


def forward_single(layer: Layer, blocks: Blocks) -> Layer:
    """One neuron a block, the best rank-1 part of the summed incoming squares."""
    return forward_quotient(layer, blocks, lambda members: summed_square(members)[:1])


def forward_exact(layer: Layer, blocks: Blocks) -> Layer:
    """Each block at its true rank: the summed incoming squares without loss."""
    return forward_quotient(layer, blocks, summed_square)


def forward_quotient(
    layer: Layer, blocks: Blocks, rows_of: Callable[[FloatArray], FloatArray]
) -> Layer:
    """Blocks with the rows that stand for them and the mean of their outgoing weights."""
    rows = [rows_of(layer.incoming[list(block)]) for block in blocks]
    means = [layer.outgoing[:, list(block)].mean(axis=1) for block in blocks]
    outgoing = np.repeat(np.stack(means, axis=1), [len(r) for r in rows], axis=1)
    return Layer(np.vstack(rows), outgoing, layer.offset)


def summed_square(members: FloatArray) -> FloatArray:
    """Rows r_j with Σ r_j r_jᵀ = Σ u_i u_iᵀ, as few as the rank allows, largest first."""
    if len(members) == 1:
        return members
    _, values, vectors = np.linalg.svd(members, full_matrices=False)
    rank = max(int(np.sum(values > RANK_TOLERANCE * values[0])), 1)
    return np.asarray(values[:rank, None] * vectors[:rank])


def backward_single(layer: Layer, blocks: Blocks) -> Layer:
    """One neuron a block along the direction its members share."""
    rows = np.stack([shared_direction(layer, list(block)) for block in blocks])
    columns = [
        layer.outgoing[:, list(block)] @ (layer.incoming[list(block)] @ row) ** 2
        if len(block) > 1
        else layer.outgoing[:, block[0]]
        for block, row in zip(blocks, rows, strict=True)
    ]
    return Layer(rows, np.stack(columns, axis=1), layer.offset)


def shared_direction(layer: Layer, block: list[int]) -> FloatArray:
    """The top eigenvector of Σ ‖V_i‖ u_i u_iᵀ; a single neuron keeps its row."""
    if len(block) == 1:
        return np.asarray(layer.incoming[block[0]])
    weight = np.sqrt(np.linalg.norm(layer.outgoing[:, block], axis=0))
    return np.asarray(
        np.linalg.svd(layer.incoming[block] * weight[:, None], full_matrices=False)[2][0]
    )


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
    terms = np.hstack([layer.outgoing * squared(rows), -outgoing * squared(kept)])
    change = terms.sum(axis=1)
    change[np.abs(change) <= noise * np.abs(terms).sum(axis=1)] = 0.0
    return Layer(start.incoming, outgoing, layer.offset + change)


def squared(rows: FloatArray) -> FloatArray:
    """E[(u·z)²] of whitened rows."""
    return np.asarray(np.einsum("ij,ij->i", rows, rows))


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


def balanced(layer: Layer, original: Layer, metric: Metric, exact: bool = True) -> Layer:
    """Choose the scale of each neuron, but let no hidden value outgrow the original's.

    All of 8 bits serve a hidden value that is as large as the others, and none outgrows them that
    matters less: E[h_r] ∝ (‖V_r‖·E[h_r])^¼. One factor for all evens the largest weights in U and
    V. `exact` takes the nearest powers of two: nothing is rounded.
    """
    size = squared(metric.whiten(layer.incoming))
    part = np.linalg.norm(layer.outgoing, axis=0) * size
    largest = squared(metric.whiten(original.incoming)).max()
    live = part > 0
    if not live.any():
        return layer
    size, part = np.where(live, size, 1.0), np.where(live, part, 1.0)
    most = np.sqrt(largest / size)
    scale = part ** (1 / 8) / np.sqrt(size)
    rows = np.abs(layer.incoming * scale[:, None])[live].max()
    columns = np.abs(layer.outgoing / scale**2)[:, live].max()
    scale *= min((columns / rows) ** (1 / 3), np.min((most / scale)[live]))
    if exact:
        scale = np.exp2(np.minimum(np.round(np.log2(scale)), np.floor(np.log2(most))))
    scale[~live] = 1.0
    return Layer(layer.incoming * scale[:, None], layer.outgoing / scale**2, layer.offset)
