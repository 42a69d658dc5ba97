"""The outputs of runs as arrays.

A sequence becomes its elements, stacked if their shapes agree and else one after the other; a map
becomes its values; an optional output that is absent has no elements. Their keys and shapes are
told beside them, and each of their entries over all runs: what is under one key, or at one place. A
sequence with one element for each sample, as ZipMap makes it, is taken as rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from onnxfde.numbers import Array


@dataclass(frozen=True, eq=False)
class Output:
    """One output of all runs."""

    values: Array
    structure: tuple[Any, ...] = ()
    """Of sequences, maps and optional values, for each run: the keys, and the shape of each array;
    empty for arrays."""
    entries: Mapping[str, Array] = field(default_factory=dict)
    """Of sequences and maps, by where each stands; none if runs differ in what they hold."""


def structure_of(value: Any) -> Any:
    """The keys of maps, and the shapes of all arrays, of one output of one run."""
    if isinstance(value, dict):
        return tuple((key, structure_of(value[key])) for key in sorted(value))
    if isinstance(value, list | tuple):
        return tuple(map(structure_of, value))
    return None if value is None else np.shape(value)


def output_of(parts: Sequence[Any], sizes: list[int], has_batch: bool) -> Output:
    """One output of all runs, from what each of them gave."""
    plain = all(isinstance(part, np.ndarray | np.generic) for part in parts)
    structure = () if plain else tuple(map(structure_of, parts))
    entries = {} if plain else entries_of(parts, sizes, has_batch)
    return Output(joined(list(map(output_array, parts)), sizes, has_batch), structure, entries)


def entries_of(parts: Sequence[Any], sizes: list[int], has_batch: bool) -> dict[str, Array]:
    """The entries of sequences and maps in all runs."""
    runs = [dict(entries_in(part, rows)) for part, rows in zip(parts, sizes, strict=True)]
    if any(run.keys() != runs[0].keys() for run in runs):
        return {}
    return {at: joined([run[at] for run in runs], sizes, has_batch) for at in runs[0]}


def entries_in(value: Any, rows: int, place: str = "") -> Iterator[tuple[str, Array]]:
    """The entries of one run, and where they stand."""
    if isinstance(value, dict):
        for key in sorted(value):
            yield from entries_in(value[key], rows, f"{place}[{key}]")
    elif not isinstance(value, list | tuple):
        yield place, as_stored(output_array(value))
    elif is_by_row(value, rows):
        keys = sorted(value[0]) if isinstance(value[0], dict) else [None]
        for key in keys:
            column = [one if key is None else one[key] for one in value]
            yield (place if key is None else f"{place}[{key}]"), as_stored(np.stack(column))
    else:
        for number, one in enumerate(value):
            yield from entries_in(one, rows, f"{place}[{number}]")


def is_by_row(value: Sequence[Any], rows: int) -> bool:
    """Whether a sequence has an element for each sample, all of one form."""
    forms = {structure_of(one) for one in value}
    if len(value) != rows or len(forms) != 1:
        return False
    if isinstance(value[0], dict):
        return not any(isinstance(one, dict | list | tuple) for one in value[0].values())
    return isinstance(value[0], np.ndarray) and np.shape(value[0])[:1] != (rows,)


def as_stored(values: Array) -> Array:
    """Numbers of maps, which come in double precision, in float32 if they fit."""
    if values.dtype != np.float64:
        return values
    narrow = values.astype(np.float32)
    return narrow if np.array_equal(narrow, values, equal_nan=True) else values


def output_array(value: Any) -> Array:
    """One output of one run as an array."""
    if value is None:
        return np.zeros(0)
    if isinstance(value, dict):
        return one_array([output_array(value[key]) for key in sorted(value)])
    if isinstance(value, list | tuple):
        return one_array([output_array(part) for part in value])
    return np.asarray(value)


def one_array(parts: Sequence[Array]) -> Array:
    """Arrays as one array."""
    if not parts:
        return np.zeros(0)
    if len({a.shape for a in parts}) == 1:
        return np.stack(parts)
    return np.concatenate([a.ravel() for a in parts])


def rows_in(feeds: Mapping[str, Array]) -> int:
    """How many samples the inputs of one run hold, if they have a batch axis."""
    return max((len(a) for a in feeds.values() if a.ndim), default=0)


def joined(parts: Sequence[Array], sizes: list[int], has_batch: bool) -> Array:
    """One output of all runs as an array."""
    by_rows = all(a.ndim and len(a) == n for a, n in zip(parts, sizes, strict=True))
    if has_batch and by_rows and len({a.shape[1:] for a in parts}) == 1:
        return np.concatenate(parts)
    return one_array(parts)


def is_floating(a: Array) -> bool:
    """Whether an array holds floating-point numbers of any width."""
    return a.dtype.kind == "f" or a.dtype.name.startswith(("bfloat", "float"))
