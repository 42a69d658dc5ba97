"""A shape for each input: the shape in the model, with a length for each free axis.

The batch is the first free leading axis, and all axes with the same name. The lengths of other free
axes come from `--shape`, from the data, or from an axis of the same name.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from onnxfde.errors import DataError
from onnxfde.graph.input_specs import InputSpec
from onnxfde.numbers import Array
from onnxfde.options import Range
from onnxfde.running.random_inputs import MOST_VALUES, random_samples
from onnxfde.running.samples import Samples

EXAMPLE_LENGTH = 128
"""The length of a free axis in an example. Chosen: a usual length of texts."""
Shapes = Mapping[str, tuple[int, ...]]
Specs = tuple[InputSpec, ...]


def batch_input(specs: Specs) -> InputSpec | None:
    """The input whose leading axis is the batch: the first free one, else the first."""
    led = [spec for spec in specs if spec.dims]
    return next((s for s in led if s.fixed_batch is None), led[0] if led else None)


def batch_sizes(specs: Specs, shapes: Shapes, asked: Sequence[int]) -> tuple[int, ...]:
    """The batch sizes to run: those asked for, else the one that the shapes give, else 1."""
    if asked:
        return tuple(dict.fromkeys(asked))
    leader = batch_input(specs)
    lead = leader and (shapes.get(leader.name) or leader.dims)[0]
    return (lead if isinstance(lead, int) else 1,)


def fixed_specs(specs: Specs, batch: int, shapes: Shapes, data: Samples | None) -> Specs:
    """The inputs with a length for every axis, for one batch size."""
    leader = batch_input(specs)
    if leader is not None and leader.fixed_batch not in (None, batch):
        raise DataError(f"its batch is fixed at {leader.fixed_batch} (input '{leader.name}')")
    lengths = {s.name: given_shape(s, shapes) or data_shape(s, data) for s in specs}
    named = axis_lengths(specs, shapes, lengths)
    if leader is not None:
        named[leader.dims[0]] = batch

    def length_of(spec: InputSpec, place: int) -> int:
        axis, known = spec.dims[place], lengths[spec.name]
        if isinstance(axis, int):
            return axis
        if isinstance(axis, str) and axis in named:
            return named[axis]
        if place == 0 and (spec is leader or spec.name not in shapes):
            return batch
        if known:
            return known[place]
        free = (1 if k == 0 else EXAMPLE_LENGTH for k in range(len(spec.dims)))
        pairs = zip(spec.dims, free, strict=True)
        example = ",".join(str(d if isinstance(d, int) else length) for d, length in pairs)
        raise DataError(
            f"input '{spec.name}' has no length for axis {place} ('{axis or '?'}'); "
            f"give one, such as --shape {spec.name}:{example}"
        )

    return tuple(replace(s, dims=tuple(length_of(s, k) for k in range(len(s.dims)))) for s in specs)


def axis_lengths(specs: Specs, shapes: Shapes, lengths: Shapes) -> dict[object, int]:
    """The length of each named axis: from the user's shapes, else from the data."""
    named: dict[object, int] = {}
    leader = batch_input(specs)
    for spec in specs:
        for axis, length in zip(spec.dims, shapes.get(spec.name, ()), strict=False):
            is_batch = leader is not None and axis == leader.dims[0]
            if isinstance(axis, str) and not is_batch and named.setdefault(axis, length) != length:
                raise DataError(f"--shape gives axis '{axis}' two lengths")
    for spec in specs:
        for axis, length in zip(spec.dims[1:], lengths[spec.name][1:], strict=False):
            named.setdefault(axis, length)
    return named


def given_shape(spec: InputSpec, shapes: Shapes) -> tuple[int, ...]:
    """The user's shape for an input, or (); raises DataError if it contradicts the model."""
    shape = shapes.get(spec.name, ())
    fits = len(shape) == len(spec.dims) and all(
        g == d for g, d in zip(shape, spec.dims, strict=True) if isinstance(d, int)
    )
    if shape and not fits:
        raise DataError(f"--shape {spec.name}:{','.join(map(str, shape))} does not fit {spec}")
    return shape


def data_shape(spec: InputSpec, data: Samples | None) -> tuple[int, ...]:
    """The shape of an input's array in the data, without an axis of samples in front."""
    return () if data is None or not spec.dims else data.arrays[spec.name].shape[-len(spec.dims) :]


def feed_for(specs: Specs, data: Samples | None, limits: Range) -> dict[str, Array]:
    """Inputs of these shapes: rows of the data, repeated if there are too few, else random."""
    size = sum(math.prod(d for d in spec.dims if isinstance(d, int)) for spec in specs)
    if size > MOST_VALUES:
        raise DataError(f"its inputs have {size:,} values, more than {MOST_VALUES:,}")
    if data is not None:
        return {spec.name: rows_for(spec, data) for spec in specs}
    return next(random_samples(specs, limits, rows=1).feeds()) if specs else {}


def rows_for(spec: InputSpec, data: Samples) -> Array:
    """As many rows of the data as an input takes; samples of several rows are concatenated."""
    array = data.arrays[spec.name]
    if not spec.dims:
        return data.as_fed(spec.name, np.asarray(array.ravel()[0]))
    axes = array.ndim - len(spec.dims) + 1
    rows = array.reshape(math.prod(array.shape[:axes]), *array.shape[axes:])
    taken = data.as_fed(spec.name, rows[np.arange(spec.fixed_batch or 1) % len(rows)])
    if taken.shape != spec.dims:
        have, want = ("×".join(map(str, shape)) for shape in (taken.shape, spec.dims))
        raise DataError(f"the data for input '{spec.name}' is {have}, --shape says {want}")
    return np.ascontiguousarray(taken)
