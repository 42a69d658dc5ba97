"""One shape for every input: the model's own, with its free axes filled.

A free leading axis is the batch. Other free axes come from `--shape`, from the data, or from an
axis of the same name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from onnxfde.errors import DataError, OptionError
from onnxfde.inputs import InputSpec, Range, Samples, random_samples

Array = npt.NDArray[Any]
Shapes = Mapping[str, tuple[int, ...]]
Specs = tuple[InputSpec, ...]


def parse_shape(text: str) -> tuple[str, tuple[int, ...]]:
    """`input:1,3,224,224` as a name and numbers.

    >>> parse_shape("x:0:1,3")
    ('x:0', (1, 3))
    """
    name, _, numbers = text.rpartition(":")
    try:
        shape = tuple(int(n) for n in numbers.split(","))
    except ValueError:
        shape = (0,)
    if not name or min(shape) < 1:
        raise OptionError(f"--shape {text}: write NAME:1,3,224,224, lengths of 1 or more")
    return name, shape


def batch_sizes(specs: Specs, shapes: Shapes, asked: Sequence[int]) -> tuple[int, ...]:
    """The batch sizes to run: those asked for, else the one that the shapes have, else 1."""
    leads = [d[0] for s in specs if (d := shapes.get(s.name) or s.dims) and isinstance(d[0], int)]
    return tuple(dict.fromkeys(asked)) or (*leads, 1)[:1]


def fixed_specs(specs: Specs, batch: int, shapes: Shapes, data: Samples | None) -> Specs:
    """The inputs with every axis filled, for one batch size."""
    lengths = {s.name: shapes.get(s.name) or data_shape(s, data) for s in specs}
    symbols: dict[object, int] = {}
    for spec in specs:
        refuse_unfit(spec, batch, shapes.get(spec.name))
        symbols |= dict(zip(spec.dims[1:], lengths[spec.name][1:], strict=False))
    symbols |= {spec.dims[0]: batch for spec in specs if spec.dims}
    symbols.pop(None, None)

    def length(spec: InputSpec, place: int) -> int:
        axis, given = spec.dims[place], lengths[spec.name]
        if isinstance(axis, int):
            return axis
        if place == 0:
            return batch
        if axis in symbols or given:
            return symbols[axis] if axis in symbols else given[place]
        example = ",".join("1" if k == 0 else str(d or "?") for k, d in enumerate(spec.dims))
        raise DataError(
            f"input '{spec.name}' has no length for axis {place} ('{axis or '?'}'); "
            f"give one: --shape {spec.name}:{example}"
        )

    return tuple(replace(s, dims=tuple(length(s, k) for k in range(len(s.dims)))) for s in specs)


def data_shape(spec: InputSpec, data: Samples | None) -> tuple[int, ...]:
    """The shape of an input in the data, which may have an axis of samples before it."""
    return () if data is None else data.arrays[spec.name].shape[-len(spec.dims) :]


def refuse_unfit(spec: InputSpec, batch: int, given: tuple[int, ...] | None) -> None:
    """Refuse a shape or a batch size that contradicts the model."""
    if spec.fixed_batch not in (None, batch):
        raise DataError(f"its batch is fixed at {spec.fixed_batch} (input '{spec.name}')")
    if given is not None and (
        len(given) != len(spec.dims)
        or any(isinstance(d, int) and d != g for d, g in zip(spec.dims, given, strict=True))
    ):
        raise DataError(f"--shape {spec.name}:{','.join(map(str, given))} does not fit {spec}")


def feed(specs: Specs, data: Samples | None, limits: Range) -> dict[str, Array]:
    """Inputs of these shapes: rows of the data, over again if there are too few, or random."""
    if data is None:
        return next(random_samples(specs, limits, rows=1).feeds())
    return {spec.name: rows_for(spec, data.arrays[spec.name]) for spec in specs}


def rows_for(spec: InputSpec, array: Array) -> Array:
    """As many rows of an array as an input takes."""
    if array.ndim > len(spec.dims):
        return np.ascontiguousarray(array[0])
    return array[np.arange(spec.fixed_batch or 1) % len(array)]
