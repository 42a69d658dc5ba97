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

from onnxfde.neurons.layer import Layer
from onnxfde.numbers import Blocks, FloatArray

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
