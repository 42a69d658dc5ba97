"""How the neurons of a block of an ε-partition become one neuron, or a few.

    forward    M_B = Σ_{i∈B} u_i u_iᵀ = Σ_j λ_j e_j e_jᵀ, and V′ the mean of the V_i
               single   one neuron √λ₁·e₁, the best of rank 1
               exact    one neuron √λ_j·e_j for each nonzero eigenvalue
    backward   single   e, the top eigenvector of Σ ‖V_i‖ u_i u_iᵀ, and V′ = Σ V_i (u_i·e)²

That is for squares. Neurons with another activation become σ(u·z) with

    single     u the mean of the u_i, weighted by ‖V_i‖, and V′ = Σ V_i

whatever the relation: exact if they are equal, else off by the second order of their differences.
Outgoing weights can be improved afterwards (`refit`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from onnxfde.neurons.layer import Layer
from onnxfde.numbers import Blocks, FloatArray

RANK_TOLERANCE = 1e-12
"""Singular values of a block's rows below this share of the largest count as 0: well above float64
rounding (2e-16), well below what float32 weights resolve (6e-8). Chosen; not tuned."""


def forward_single(layer: Layer, blocks: Blocks) -> Layer:
    """One neuron per block, the best rank-1 part of the summed incoming squares."""
    return forward_quotient(layer, blocks, lambda members: summed_square(members)[:1])


def forward_exact(layer: Layer, blocks: Blocks) -> Layer:
    """As many neurons per block as its rank: the summed incoming squares without loss."""
    return forward_quotient(layer, blocks, summed_square)


def forward_quotient(
    layer: Layer, blocks: Blocks, rows_of: Callable[[FloatArray], FloatArray]
) -> Layer:
    """For each block the rows that `rows_of` gives it, with the mean of its outgoing weights."""
    rows = [rows_of(layer.incoming[list(block)]) for block in blocks]
    means = [layer.outgoing[:, list(block)].mean(axis=1) for block in blocks]
    outgoing = np.repeat(np.stack(means, axis=1), [len(r) for r in rows], axis=1)
    return replace(layer, incoming=np.vstack(rows), outgoing=outgoing)


def summed_square(members: FloatArray) -> FloatArray:
    """Rows r_j with Σ r_j r_jᵀ = Σ u_i u_iᵀ, as few as the rank allows, largest first."""
    if len(members) == 1:
        return members
    _, values, vectors = np.linalg.svd(as_few_rows(members), full_matrices=False)
    rank = max(int(np.sum(values > RANK_TOLERANCE * values[0])), 1)
    return np.asarray(values[:rank, None] * vectors[:rank])


def backward_single(layer: Layer, blocks: Blocks) -> Layer:
    """One neuron per block, along the direction that its members share."""
    rows = np.stack([shared_direction(layer, list(block)) for block in blocks])
    columns = [
        layer.outgoing[:, list(block)] @ (layer.incoming[list(block)] @ row) ** 2
        if len(block) > 1
        else layer.outgoing[:, block[0]]
        for block, row in zip(blocks, rows, strict=True)
    ]
    return replace(layer, incoming=rows, outgoing=np.stack(columns, axis=1))


def mean_single(layer: Layer, blocks: Blocks) -> Layer:
    """One neuron per block, with the mean of its members' rows and the sum of what they feed."""
    weight = np.linalg.norm(layer.outgoing, axis=0)
    parameters = [
        [weighted_mean(p, weight, block) for block in blocks] for p in layer.unit_parameters
    ]
    return replace(
        layer,
        incoming=np.stack([weighted_mean(layer.incoming, weight, block) for block in blocks]),
        outgoing=np.stack([layer.outgoing[:, list(b)].sum(axis=1) for b in blocks], axis=1),
        unit_parameters=tuple(np.array(p) for p in parameters),
    )


def weighted_mean(values: FloatArray, weight: FloatArray, block: tuple[int, ...]) -> FloatArray:
    """The mean over the members of a block; that of a single neuron is its own value."""
    members = list(block)
    if len(members) == 1:
        return np.asarray(values[members[0]])
    return np.asarray(np.average(values[members], axis=0, weights=weight[members]))


def shared_direction(layer: Layer, block: list[int]) -> FloatArray:
    """The top eigenvector of Σ ‖V_i‖ u_i u_iᵀ; a single neuron keeps its row."""
    if len(block) == 1:
        return np.asarray(layer.incoming[block[0]])
    weight = np.sqrt(np.linalg.norm(layer.outgoing[:, block], axis=0))
    members = as_few_rows(layer.incoming[block] * weight[:, None])
    return np.asarray(np.linalg.svd(members, full_matrices=False)[2][0])


def as_few_rows(members: FloatArray) -> FloatArray:
    """No more rows than columns, with the same sum of squares u uᵀ."""
    if len(members) <= members.shape[1]:
        return members
    return np.asarray(np.linalg.qr(members, mode="r"))
