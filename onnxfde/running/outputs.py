"""The outputs of runs as arrays.

A sequence becomes its elements, stacked if their shapes agree and else one after the other; a map
becomes its values; an optional output that is absent has no elements. Their keys and shapes are
told beside them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
    return Output(joined(list(map(output_array, parts)), sizes, has_batch), structure)


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
