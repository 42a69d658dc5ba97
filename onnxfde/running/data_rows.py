"""Rows of the user's data: which are kept, and the range of all of them as inputs of a model."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from onnxfde.errors import DataError
from onnxfde.graph.input_specs import InputSpec
from onnxfde.numbers import Array, Indices
from onnxfde.running.data_files import StoredArray
from onnxfde.running.image_inputs import shape_text
from onnxfde.running.row_maps import RowMap, layout_hint

LABELS = "y"
"""The array of a data file that holds labels or targets."""
MOST_IN_ONE_RUN = 2**24
"""Most numbers in the inputs of one run: 64 MB of float32. Chosen; not tuned."""
KEPT_ROWS = 2**17
"""Most rows of the data that are kept. Chosen: a fifth of them still gives the error to 1 %, and
layers are measured on fewer; not tuned."""
KEPT_BYTES = 2**28
"""Most bytes of the data that are kept: 64 million numbers of float32, or 87,381 small images
(32×32×3) of a byte a pixel. Chosen; not tuned."""
PIXELS = (128, 255)
"""Whole numbers from 0 whose largest lies here are taken for pixels. Chosen: the brightest pixel of
several images is seldom darker than half."""


def lcm_batch(specs: tuple[InputSpec, ...]) -> int:
    """The smallest number of samples that fills every fixed batch."""
    return math.lcm(*(s.fixed_batch or 1 for s in specs))


def require_labels(labels: StoredArray, lengths: set[int], source: str) -> None:
    """Raise DataError unless labels are numbers, one row per sample."""
    if not labels.shape or labels.dtype.kind not in "fiub":
        raise DataError(f"{source}: '{LABELS}' must be an array of numbers, one row per sample")
    if labels.shape[0] not in lengths:
        others = " or ".join(map(str, sorted(lengths)))
        raise DataError(
            f"{source}: '{LABELS}' has {labels.shape[0]} rows, the inputs have {others}"
        )


def kept_rows(
    arrays: Mapping[str, StoredArray],
    maps: Mapping[str, RowMap],
    specs: tuple[InputSpec, ...],
    labels: StoredArray | None,
    source: str,
) -> Indices | None:
    """The rows to keep, evenly spread if there are many, in groups that fill a batch; None: all.

    With labels, rows that fill no batch are left out.
    """
    used = [arrays[spec.name] for spec in specs]
    sizes = [maps[s.name].kept_dtype(arrays[s.name].dtype).itemsize for s in specs]
    widths = [math.prod(a.shape[1:]) * size for a, size in zip(used, sizes, strict=True)]
    rows, step = min((a.shape[0] for a in used), default=0), lcm_batch(specs)
    if len({a.shape[0] for a in used}) > 1:
        if sum(a.shape[0] * width for a, width in zip(used, widths, strict=True)) > KEPT_BYTES:
            raise DataError(f"{source}: arrays with different numbers of rows must be shorter")
        return None
    if labels is not None:
        widths.append(math.prod(labels.shape[1:]) * labels.dtype.itemsize)
    most = max(most_rows(sum(widths)) // step, 1)
    groups = rows // step
    if groups > most:
        return (evenly_spread(groups, most)[:, None] * step + np.arange(step)).ravel()
    return np.arange(groups * step) if labels is not None and groups else None


def most_rows(width: int) -> int:
    """How many rows of so many bytes are kept."""
    return min(KEPT_ROWS, KEPT_BYTES // max(width, 1))


def evenly_spread(count: int, most: int) -> Indices:
    """At most this many of so many places, evenly spread."""
    return np.unique(np.linspace(0, count - 1, most).astype(int))


def require_shape(array: StoredArray, spec: InputSpec, source: str) -> None:
    """Raise DataError unless an array has the shape of an input and holds numbers."""
    if array.dtype.kind not in "fiub" and array.dtype.name != "bfloat16":
        raise DataError(f"{source}: '{spec.name}' holds {array.dtype}, not numbers")
    if not spec.takes(array.shape):
        wanted = shape_text(("N", *spec.dims[1:]))
        got = shape_text(array.shape) or "a single number"
        hint = layout_hint(array.shape, spec)
        raise DataError(f"{source}: '{spec.name}' is {got}, the model's input is {wanted}{hint}")
    if math.prod(array.shape[1:]) > MOST_IN_ONE_RUN:
        raise DataError(f"{source}: one row of '{spec.name}' is too large to be tried out")


def fit(
    stored: StoredArray, spec: InputSpec, row_map: RowMap, index: Indices | None, source: str
) -> tuple[Array, tuple[Array, Array]]:
    """Rows of an array as they are kept, and the range of all rows of it as inputs."""
    limits: tuple[Array, Array] | None = None

    def fitted() -> Iterator[Array]:
        nonlocal limits
        for block in stored.blocks():
            own = least_and_most(block)
            require_range(own, spec, row_map, source)
            if limits is not None:
                own = np.minimum(own[0], limits[0]), np.maximum(own[1], limits[1])
            limits = own
            yield block

    kept = row_map.kept_dtype(stored.dtype)
    found = gathered_rows(fitted(), (stored.shape, kept), index)
    if limits is None:
        limits = np.zeros(stored.shape[1:], kept), np.zeros(stored.shape[1:], kept)
    if not row_map.changes_values:
        refuse_pixels(limits, spec, source)
    ends = row_map(limits[0]), row_map(limits[1])
    return found, (np.minimum(*ends), np.maximum(*ends))


def refuse_pixels(limits: tuple[Array, Array], spec: InputSpec, source: str) -> None:
    """Raise DataError if an input of fractions gets what looks like pixels, unless told how."""
    low, high = limits
    could_be = low.dtype == np.uint8 or (low.dtype.kind in "iu" and len(spec.dims) > 2)
    if not could_be or spec.dtype.kind in "iub" or not low.size or low.min() < 0:
        return
    if PIXELS[0] <= high.max() <= PIXELS[1]:
        raise DataError(
            f"{source}: '{spec.name}' holds whole numbers up to {high.max()}, as pixels do: say "
            "how they become inputs, by --preprocess scale=1/255 (and mean=…, std=…, if it was "
            "trained so), or scale=1 for a model that takes them as they are"
        )


def least_and_most(block: Array) -> tuple[Array, Array]:
    """The smallest and largest value of each element of the rows; NaN where one is NaN.

    Narrow rows are compared many at a time, which is much faster.
    """
    rows, shape = len(block), block.shape[1:]
    together = max(1024 // max(math.prod(shape), 1), 1)
    found = []
    for least in (np.minimum, np.maximum):
        wide = block[: rows // together * together].reshape(rows // together, together, *shape)
        parts = [least.reduce(wide, axis=0)] if len(wide) else []
        parts.append(block[len(wide) * together :])
        found.append(least.reduce(np.concatenate(parts), axis=0))
    return found[0], found[1]


def require_range(
    limits: tuple[Array, Array], spec: InputSpec, row_map: RowMap, source: str
) -> None:
    """Raise DataError if values between these limits are not finite in the input's dtype."""
    low, high = limits
    if low.dtype.kind == "f" and not (np.isfinite(low).all() and np.isfinite(high).all()):
        raise DataError(f"{source}: '{spec.name}' holds NaN or infinite values; fill or drop them")
    if spec.dtype.kind in "iu" and low.size:
        known = np.iinfo(spec.dtype)
        fits = int(low.min()) >= known.min and int(high.max()) <= known.max
    else:
        with np.errstate(over="ignore"):
            ends = [row_map(end) for end in limits]
        fits = all(end.dtype.kind != "f" or np.isfinite(end).all() for end in ends)
    if not fits:
        raise DataError(f"{source}: '{spec.name}' holds values too large for {spec.dtype.name}")


def rows_of_labels(labels: StoredArray, index: Indices | None) -> Array:
    """Some rows of the labels."""
    return gathered_rows(labels.blocks(), (labels.shape, labels.dtype), index)


def gathered_rows(
    blocks: Iterator[Array], kind: tuple[tuple[int, ...], np.dtype[Any]], index: Indices | None
) -> Array:
    """Some rows of what comes in blocks, or all of them; `kind` is the shape and dtype of all."""
    shape, dtype = kind
    found = np.empty((shape[0] if index is None else len(index), *shape[1:]), dtype)
    seen = kept = 0
    for block in blocks:
        if index is None:
            found[seen : seen + len(block)] = block
        else:
            here = index[kept : np.searchsorted(index, seen + len(block))] - seen
            found[kept : kept + len(here)] = block[here]
            kept += len(here)
        seen += len(block)
    return found
