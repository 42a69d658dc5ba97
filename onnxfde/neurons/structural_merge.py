"""The fewest neurons that compute the same function for all inputs, by structure alone.

One neuron stands for each family of the layer's structure (`layer_structure`), and a few for the
linear map that is left of families and of neurons on a straight piece of σ (`linear_map`): a second
neuron of some families, some of the straight neurons, or new ones, whichever are fewest. Where σ is
a polynomial, further neurons may be combinations of others (`polynomial_basis`).

Nothing is learnt from samples; they only serve to check that the stored layer is equal to the
original up to rounding. Facts that hold only within a box of inputs are used if there is one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from onnxfde.neurons.frontier import Reduced, blocks_within
from onnxfde.neurons.layer import Layer
from onnxfde.neurons.layer_structure import LayerStructure
from onnxfde.neurons.linear_map import linear_neurons, steepness
from onnxfde.neurons.linear_pieces import InputBox
from onnxfde.neurons.polynomial_basis import polynomial_basis
from onnxfde.neurons.problem import Problem
from onnxfde.numbers import ROUNDING_STEPS, Blocks, FloatArray, Indices

CHECKED_PRODUCTS = 2**28
"""Products of inputs and weights for the check on samples, about 30 ms on one core; larger layers
are checked on some of them. Chosen; not tuned."""


def structural_merge(problem: Problem) -> Reduced | None:
    """The fewest neurons of the same function, or None when that is all of them.

    What holds for all inputs is preferred to what holds in a box of them and leaves as few. A
    second search finds no fewer.
    """
    anywhere = [] if problem.box is None else [replace(problem, box=None)]
    found = [one for one in map(merged_often, (*anywhere, problem)) if one is not None]
    return min(found, key=lambda one: one.layer.neurons, default=None)


def merged_often(problem: Problem) -> Reduced | None:
    """The fewest neurons that are found by looking again at what was found."""
    found = merged_once(problem)
    while found is not None:
        again = merged_once(replace(problem, layer=found.layer))
        if again is None or not stays_equal(problem, again.layer):
            break
        blocks = blocks_within(found.blocks, again.blocks)
        found = Reduced(again.layer, blocks, observed_change(problem, again.layer))
    return found


def merged_once(problem: Problem) -> Reduced | None:
    """The fewest neurons that one look at the layer finds."""
    layer, alive = problem.layer.without_constants(), np.flatnonzero(problem.layer.alive)
    if not layer.finite:
        return None
    if not layer.neurons:
        return problem.constant()
    for structure in structures(layer, problem.dtype, problem.box):
        for draft in sorted(drafts(structure), key=lambda draft: draft.layer.neurons):
            if draft.layer.neurons >= problem.layer.neurons:
                break
            stored = problem.read_back(draft.layer)
            if stays_equal(problem, stored):
                blocks = tuple(tuple(int(alive[i]) for i in block) for block in draft.blocks)
                return Reduced(stored, blocks, observed_change(problem, stored))
    return None


def structures(
    layer: Layer, dtype: np.dtype[Any], box: InputBox | None
) -> Iterator[LayerStructure]:
    """What can be known of a layer, from what finds most to what can hardly be wrong."""
    for known in (box, None) if box is not None else (None,):
        loose = LayerStructure(layer, dtype, known)
        if loose.sound():
            yield loose
        if loose.families.loose.any():
            yield LayerStructure(layer, dtype, known, strict=True)


@dataclass(frozen=True, eq=False)
class Draft:
    """A smaller layer before it is stored; blocks number the neurons of the larger one."""

    layer: Layer
    blocks: Blocks


def drafts(structure: LayerStructure) -> Iterator[Draft]:
    """The layers that can be made of a structure."""
    if structure.plain and structure.layer.activation.power is None:
        yield Draft(structure.layer, tuple((i,) for i in range(structure.layer.neurons)))
        return
    terms = structure.terms
    everything = np.arange(len(terms.rows))
    whole = drafted(structure, everything, terms.weights)
    yield whole
    if not len(everything):
        if found := polynomial_basis(whole.layer, structure.dtype):
            layer, blocks = found
            yield Draft(layer, blocks_within(whole.blocks, blocks))
        return
    if own := terms.own_rows():
        yield drafted(structure, *own)
    if new := terms.new_rows():
        made = linear_neurons(structure.layer, *new, structure.dtype, structure.box)
        if made is not None and terms.bears(
            made.incoming[:, -1], made.outgoing * steepness(made), structure.box
        ):
            yield drafted(structure, everything[:0], terms.weights[:, :0], made)


def drafted(
    structure: LayerStructure, chosen: Indices, weights: FloatArray, new: Layer | None = None
) -> Draft:
    """The layer whose linear part is made of some terms with these weights, or of new neurons."""
    layer, terms = structure.layer, structure.terms
    outgoing = np.zeros_like(layer.outgoing)
    outgoing[:, structure.representatives] = structure.shapes
    offset = structure.offset + terms.map[:, -1] - weights @ terms.rows[chosen, -1]
    offset -= add_straight(structure, outgoing, chosen, weights)
    offset -= add_seconds(structure, outgoing, chosen, weights)
    kept = np.flatnonzero(np.any(outgoing != 0, axis=0))
    smaller = replace(layer, outgoing=outgoing, offset=offset).only(kept)
    blocks = named_blocks(structure, kept, 0 if new is None else new.neurons)
    if new is not None and new.neurons:
        smaller = joined_layers(smaller, new)
    if not smaller.neurons:
        return Draft(replace(layer.only([0]).mapped(np.zeros_like), offset=smaller.offset), ((),))
    return Draft(smaller, blocks)


def add_straight(
    structure: LayerStructure, outgoing: FloatArray, chosen: Indices, weights: FloatArray
) -> FloatArray:
    """Let straight neurons carry their terms; returns the constants that come with them."""
    slope, intercept = structure.lines
    count = len(structure.straight)
    own = structure.straight[chosen[chosen < count]]
    outgoing[:, own] = weights[:, chosen < count] / slope[own]
    return np.asarray(outgoing[:, own] @ intercept[own])


def add_seconds(
    structure: LayerStructure, outgoing: FloatArray, chosen: Indices, weights: FloatArray
) -> FloatArray:
    """Let second neurons of families carry their terms; returns the constants they come with."""
    count, parts = len(structure.straight), structure.parts
    family = structure.lined[chosen[chosen >= count] - count]
    second, first = structure.seconds[family], structure.families.representatives[family]
    share = weights[:, chosen >= count] / structure.rest[second]
    outgoing[:, structure.curved[second]] = share
    outgoing[:, structure.curved[first]] -= share * (parts.shape[second] / parts.shape[first])
    return np.asarray(share @ parts.constant[second])


def joined_layers(first: Layer, second: Layer) -> Layer:
    """The neurons of two layers side by side."""
    both = zip(first.unit_parameters, second.unit_parameters, strict=True)
    return replace(
        first,
        incoming=np.vstack([first.incoming, second.incoming]),
        outgoing=np.hstack([first.outgoing, second.outgoing]),
        offset=first.offset + second.offset,
        unit_parameters=tuple(np.concatenate(pair) for pair in both),
    )


def named_blocks(structure: LayerStructure, kept: Indices, new: int) -> Blocks:
    """The neurons that each kept one stands for; straight ones that went are with the first."""
    place = np.full(structure.layer.neurons, -1)
    place[kept] = np.arange(len(kept))
    home = place[structure.representatives][structure.families.home]
    second = place[structure.curved[structure.seconds]][structure.families.home]
    other = (structure.rest != 0) & (second >= 0)
    owner = np.full(structure.layer.neurons, -1)
    owner[structure.curved] = np.where(other | (home < 0), second, home)
    straight = structure.straight
    carriers = place[straight][place[straight] >= 0]
    first = carriers[0] if len(carriers) else len(kept) if new else -1
    owner[straight] = np.where(place[straight] >= 0, place[straight], first)
    members: list[list[int]] = [[] for _ in range(len(kept) + new)]
    for number, at in enumerate(owner.tolist()):
        if at >= 0:
            members[at].append(number)
    return tuple(map(tuple, members))


def stays_equal(problem: Problem, layer: Layer) -> bool:
    """Whether a stored layer is equal to the original up to rounding on the samples."""
    original = problem.layer
    x = checked_samples(problem)
    with np.errstate(invalid="ignore", over="ignore"):
        allowed = ROUNDING_STEPS / 2 * problem.roundoff * original.magnitude(x)
        return layer.finite and bool(np.all(np.abs(layer(x) - original(x)) <= allowed))


def checked_samples(problem: Problem) -> FloatArray:
    """As many of the samples as can be looked at quickly."""
    weights = problem.layer.incoming.size + problem.layer.outgoing.size
    return problem.samples[:: 1 + len(problem.samples) * weights // CHECKED_PRODUCTS]


def observed_change(problem: Problem, layer: Layer) -> float:
    """The relative change on the samples."""
    x = checked_samples(problem)
    return problem.layer.change_to(layer, x) if len(x) else 0.0
