"""The coarsest ε-FDE or ε-BDE inside an initial partition, for any polynomial system.

With f_H = Σ_{k∈H} q_k for a block H, and i, j in one block,

    φ^H_ij = f_H − f_H[x_i := s(x_i+x_j), x_j := (1−s)(x_i+x_j)].

Terms of f_H are grouped by their other variables and by their degree t in x_i and x_j. If a group
has the coefficients c_p of x_i^p x_j^(t−p), φ has c_k − C(t,k) S(s) for x_i^k x_j^(t−k), where
S(s) = Σ_p c_p s^p (1−s)^(t−p) = Σ_r S_r s^r. Hence each group contributes

    erode, forward   Σ_k |c_k − C(t,k) S_0| + 2^t Σ_{r≥1} |S_r|      summed over all H
    paper, forward   Σ_k |c_k − C(t,k) S(1)|                          the largest H counts

and the larger of the two directions, (i, j) and (j, i), counts. Backward: variables are replaced by
their blocks, and the coefficients of q_i and q_j are compared by the sum or (paper only) the
largest of their differences.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import combinations
from typing import get_args

import numpy as np
import numpy.typing as npt

from onnxfde.errors import AlgebraError
from onnxfde.lumping.distance import TIE_TOLERANCE
from onnxfde.lumping.partition import split_block
from onnxfde.lumping.polynomial_system import IntArray, Partition, PolynomialSystem, membership
from onnxfde.numbers import FloatArray
from onnxfde.options import Linkage, Norm, Relation, Threshold

CHUNK_ENTRIES = 2_000_000
"""Pairs × monomials × blocks compared at once: 16 MB of float64. Chosen; not tuned."""


def refine(
    system: PolynomialSystem,
    initial_partition: Partition | Iterable[Iterable[str]],
    eps: float,
    relation: Relation = "forward",
    semantics: Threshold = "paper",
    norm: Norm = "sum",
    linkage: Linkage = "closure",
) -> Partition:
    """Split blocks until all their members are within ε of each other.

    >>> terms = {"x": [(-1, {"x": 1}), (1, {"y": 1}), (1, {"z": 1})]}
    >>> system = PolynomialSystem.from_terms(["x", "y", "z"], terms)
    >>> refine(system, [["x"], ["y", "z"]], 0.0).blocks
    (('x',), ('y', 'z'))
    """
    if not (math.isfinite(eps) and eps >= 0):
        raise AlgebraError(f"ε = {eps} is not a number ≥ 0")
    for value, kind in (
        (relation, Relation),
        (semantics, Threshold),
        (norm, Norm),
        (linkage, Linkage),
    ):
        if value not in get_args(kind):
            raise AlgebraError(f"'{value}' is not one of {', '.join(get_args(kind))}")
    if semantics == "erode" and norm == "max":
        raise AlgebraError("ERODE always sums: norm 'max' needs semantics 'paper'")
    start = initial_partition
    blocks = Partition.of(start.blocks if isinstance(start, Partition) else start, system.variables)
    while True:
        finer = refined_once(system, blocks, eps, relation, semantics, norm, linkage)
        if len(finer.blocks) == len(blocks.blocks):
            return blocks
        blocks = finer


def refined_once(
    system: PolynomialSystem,
    partition: Partition,
    eps: float,
    relation: Relation,
    semantics: Threshold,
    norm: Norm,
    linkage: Linkage,
) -> Partition:
    """Split every block by the distances under the current partition."""
    position = {name: i for i, name in enumerate(system.variables)}
    member = membership(system.variables, partition)
    parts: list[tuple[str, ...]] = []
    for block in partition.blocks:
        if len(block) == 1:
            parts.append(block)
            continue
        indices = np.array([position[name] for name in block])
        if relation == "forward":
            gaps, largest = forward_gaps(system, member, indices, semantics)
        else:
            gaps, largest = backward_gaps(system, member, indices, norm)
        tolerant = np.maximum(gaps - TIE_TOLERANCE * np.maximum(1.0, largest), 0.0)
        found = split_block(tolerant, len(block), eps, linkage)
        parts.extend(tuple(block[i] for i in part) for part in found)
    return Partition.of(parts, system.variables)


def backward_gaps(
    system: PolynomialSystem, member: IntArray, indices: IntArray, norm: Norm
) -> tuple[FloatArray, FloatArray]:
    """Distances of right-hand sides with variables replaced by blocks, and largest coefficients."""
    indicator = np.eye(member.max() + 1, dtype=np.int64)[member]
    _, column = np.unique(system.exponents @ indicator, axis=0, return_inverse=True)
    rows = system.coefficients[indices].toarray()
    merged = np.zeros((len(rows), column.max(initial=-1) + 1))
    np.add.at(merged.T, column.reshape(-1), rows.T)
    first, second = np.triu_indices(len(rows), 1)
    gap = np.abs(merged[first] - merged[second])
    size = np.abs(merged).max(axis=1, initial=0.0)
    folded = gap.sum(axis=1) if norm == "sum" else gap.max(axis=1, initial=0.0)
    return folded, np.maximum(size[first], size[second])


def forward_gaps(
    system: PolynomialSystem, member: IntArray, indices: IntArray, semantics: Threshold
) -> tuple[FloatArray, FloatArray]:
    """Distances of what pairs contribute to the block drifts, and largest coefficients."""
    drift = np.zeros((member.max() + 1, len(system.exponents)))
    np.add.at(drift, member, system.coefficients.toarray())
    pairs = np.array(list(combinations(indices, 2)))
    touched = (system.exponents[:, indices] > 0).any(axis=1)
    exponents, drift = system.exponents[touched], drift[:, touched]
    chunk = max(1, CHUNK_ENTRIES // max(1, exponents.shape[0] * len(drift)))
    found = [
        pair_gaps(exponents, drift, pairs[start : start + chunk], semantics)
        for start in range(0, len(pairs), chunk)
    ]
    return np.concatenate([f[0] for f in found]), np.concatenate([f[1] for f in found])


def pair_gaps(
    exponents: IntArray, drift: FloatArray, pairs: IntArray, semantics: Threshold
) -> tuple[FloatArray, FloatArray]:
    """The same for some pairs: sums [pair, block] over groups of monomials, in both directions."""
    first, second = exponents[:, pairs[:, 0]].T, exponents[:, pairs[:, 1]].T
    pair, monomial = np.nonzero(first + second)
    p, q = first[pair, monomial], second[pair, monomial]
    rest = hashes_without(exponents[monomial], pairs[pair])
    there, back = (np.zeros((len(pairs), len(drift))) for _ in range(2))
    for degree in np.unique(p + q):
        mine = p + q == degree
        group = np.stack([pair[mine].astype(np.uint64), rest[mine]], axis=1)
        unique, where = np.unique(group, axis=0, return_inverse=True)
        terms = np.zeros((len(unique), degree + 1, len(drift)))
        np.add.at(terms, (where.reshape(-1), p[mine]), drift[:, monomial[mine]].T)
        owner = unique[:, 0].astype(np.int64)
        np.add.at(there, owner, group_gaps(terms, semantics))
        np.add.at(back, owner, group_gaps(terms[:, ::-1], semantics))
    largest = np.zeros(len(pairs))
    np.maximum.at(largest, pair, np.abs(drift).max(axis=0)[monomial])
    if semantics == "erode":
        return np.maximum(there.sum(axis=1), back.sum(axis=1)), largest
    return np.maximum(there, back).max(axis=1), largest


def hashes_without(exponents: IntArray, pairs: IntArray) -> npt.NDArray[np.uint64]:
    """A 64-bit hash of each monomial without the two variables of its pair."""
    width = exponents.shape[1]
    keys = np.random.default_rng(0).integers(0, 2**63, width, dtype=np.uint64)
    others = exponents.astype(np.uint64)
    np.put_along_axis(others, pairs, 0, axis=1)
    return np.asarray(others @ keys, dtype=np.uint64)


def group_gaps(terms: FloatArray, semantics: Threshold) -> FloatArray:
    """Σ |coefficients of φ| of each group: terms[group, p, block] → [group, block]."""
    degree = terms.shape[1] - 1
    binomials = np.array([math.comb(degree, k) for k in range(degree + 1)], dtype=float)
    if semantics == "paper":
        return np.asarray(np.abs(terms - binomials[:, None] * terms[:, -1:]).sum(axis=1))
    powers = np.zeros((degree + 1, degree + 1))
    for p in range(degree + 1):
        for r in range(p, degree + 1):
            powers[r, p] = (-1) ** (r - p) * math.comb(degree - p, r - p)
    series = np.einsum("rp,gph->grh", powers, terms)
    plain = np.abs(terms - binomials[:, None] * series[:, :1]).sum(axis=1)
    return np.asarray(plain + 2**degree * np.abs(series[:, 1:]).sum(axis=1))
