"""Which neuron of a merged layer stands for a neuron of the original.

    h_i ≈ β·h′_r      β > 0 if the scale is free, else 1; also negative if σ can be reflected

They are found by running both networks on random inputs, so they may be wrong: what is made of
them is sound for any choice.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from onnxfde.numbers import FloatArray
from onnxfde.proof.hidden_functions import HiddenFunction

PROBES = 128
"""Random inputs that the neurons are compared on: enough to tell rows of any length apart, as
different directions agree on all of them with probability 0. Chosen; not tuned."""
PAIRED_AT_ONCE = 1024
"""Neurons that are compared with all others at once. Chosen to bound the memory; not tuned."""
EXACTLY_ONE = 1e-9
"""How close to ±1 a factor is taken for ±1: it is found up to the rounding of float64 only, and
exact merges keep rows as they are. Chosen; not tuned."""


@dataclass(frozen=True, eq=False)
class NeuronPairs:
    """For each neuron of the original the one that stands for it, and the factor β; 0: none."""

    partner: npt.NDArray[np.intp]
    factor: FloatArray

    @classmethod
    def same(cls, count: int) -> NeuronPairs:
        """Each neuron with itself."""
        return cls(np.arange(count), np.ones(count))


def found_pairs(
    old: FloatArray, new: FloatArray, before: HiddenFunction, after: HiddenFunction
) -> NeuronPairs:
    """Partners for the columns of `old` among those of `new`, hidden values of the same inputs."""
    count = old.shape[1]
    if not new.shape[1]:
        return NeuronPairs(np.zeros(count, dtype=np.intp), np.zeros(count))
    parts = [
        pairs_of_part(old, new, before, after, slice(i, i + PAIRED_AT_ONCE))
        for i in range(0, count, PAIRED_AT_ONCE)
    ]
    partner = np.concatenate([part[0] for part in parts])
    factor = np.concatenate([part[1] for part in parts])
    near = np.abs(np.abs(factor) - 1) <= EXACTLY_ONE
    return NeuronPairs(partner, np.where(near, np.sign(factor), factor))


def pairs_of_part(
    old: FloatArray, new: FloatArray, before: HiddenFunction, after: HiddenFunction, part: slice
) -> tuple[npt.NDArray[np.intp], FloatArray]:
    """Partners and factors of some columns."""
    activation = before.activation
    own, other = np.sum(old[:, part] ** 2, axis=0)[:, None], np.sum(new**2, axis=0)
    products = old[:, part].T @ new
    signed = products if activation.reflection is None else np.abs(products)
    if activation.degree is None:
        likeness = 2 * signed - own - other
    else:
        likeness = signed / np.sqrt(np.maximum(own * other, np.finfo(np.float64).tiny))
    for mine, theirs in zip(before.unit_parameters, after.unit_parameters, strict=True):
        likeness = np.where(mine[part, None] == theirs, likeness, -np.inf)
    partner = likeness.argmax(axis=1)
    rows = np.arange(len(partner))
    product = products[rows, partner]
    length = product / np.maximum(other[partner], np.finfo(np.float64).tiny)
    factor = np.sign(product) if activation.degree is None else length
    possible = np.isfinite(likeness[rows, partner])
    if activation.reflection is None:
        possible &= factor > 0
    return partner, np.where(possible, factor, 0.0)
