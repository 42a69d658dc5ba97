"""Rows as they are stored → rows of an input: value = (x · scale − mean) / std, in its type.

Rows are kept as they are stored, in the model's layout, and become floating-point numbers run by
run: images of a byte a pixel take a quarter of the memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from onnxfde.errors import DataError
from onnxfde.graph.input_specs import InputSpec
from onnxfde.numbers import Array, FloatArray
from onnxfde.running.data_files import StoredArray
from onnxfde.running.image_inputs import image_input, shape_text
from onnxfde.running.preprocessing import NUMBER_WORDS, ImageLayout, Preprocessing


@dataclass(frozen=True, eq=False)
class RowMap:
    """Rows as they are kept → rows of an input, any number at a time."""

    dtype: np.dtype[Any]
    """Of the input."""
    scale: FloatArray | None = None
    mean: FloatArray | None = None
    std: FloatArray | None = None

    @property
    def changes_values(self) -> bool:
        """Whether more happens than a change of type."""
        return not (self.scale is None and self.mean is None and self.std is None)

    def kept_dtype(self, stored: np.dtype[Any]) -> np.dtype[Any]:
        """The type in which rows are kept: as stored, unless the type of the input is smaller."""
        small = stored.kind in "iub" and stored.itemsize < self.dtype.itemsize
        return stored if self.changes_values or small else self.dtype

    def __call__(self, rows: Array) -> Array:
        """Rows of the input."""
        if not self.changes_values:
            return rows.astype(self.dtype, copy=False)
        kind = np.result_type(rows.dtype, np.float32)
        values = np.array(rows, kind)
        with np.errstate(over="ignore", invalid="ignore"):
            if self.scale is not None:
                values *= self.scale.astype(kind)
            if self.mean is not None:
                values -= self.mean.astype(kind)
            if self.std is not None:
                values /= self.std.astype(kind)
            return values.astype(self.dtype, copy=False)


def mapped_array(
    stored: StoredArray, spec: InputSpec, wanted: Preprocessing, source: str
) -> tuple[StoredArray, RowMap]:
    """An array in the model's layout, and how its rows become rows of the input."""
    stored, axis = laid_out(stored, spec, wanted.layout, source)
    numbers = {word: getattr(wanted, word) for word in NUMBER_WORDS if getattr(wanted, word)}
    if numbers and spec.dtype.kind in "iub":
        raise DataError(
            f"--preprocess {next(iter(numbers))}: input '{spec.name}' takes {spec.dtype.name}, "
            "which holds whole numbers: drop it"
        )
    parts = {
        word: per_channel(word, values, stored.shape, spec, axis)
        for word, values in numbers.items()
    }
    return stored, RowMap(spec.dtype, **parts)


def laid_out(
    stored: StoredArray, spec: InputSpec, layout: ImageLayout | None, source: str
) -> tuple[StoredArray, int | None]:
    """An array with its channels where the model wants them, and their axis if it is known."""
    if layout is None:
        return stored, None
    if len(stored.shape) < 4:
        got = shape_text(stored.shape)
        raise DataError(f"{source}: layout={layout} is for images, '{spec.name}' is {got}")
    other = moved(stored, layout)
    image = image_input(spec)
    wants = "nhwc" if image is not None and image.channels_last else "nchw"
    as_it_is, otherwise = spec.takes(stored.shape), spec.takes(other.shape)
    moves = otherwise and (not as_it_is or layout != wants)
    return (other if moves else stored), -3 if moves == (layout == "nhwc") else -1


def moved(stored: StoredArray, layout: ImageLayout) -> StoredArray:
    """An array of images with its channels at the other end."""
    ends = (-1, -3) if layout == "nhwc" else (-3, -1)

    def blocks() -> Iterator[Array]:
        return (np.moveaxis(block, *ends) for block in stored.blocks())

    return StoredArray(shape_moved(stored.shape, layout), stored.dtype, blocks)


def shape_moved(shape: tuple[int, ...], layout: ImageLayout) -> tuple[int, ...]:
    """The shape of images with their channels at the other end."""
    *lead, a, b, c = shape
    return (*lead, c, a, b) if layout == "nhwc" else (*lead, b, c, a)


def per_channel(
    word: str, values: tuple[float, ...], shape: tuple[int, ...], spec: InputSpec, axis: int | None
) -> FloatArray:
    """Numbers in a shape that meets the channels of rows, counted from the last axis."""
    if len(values) == 1:
        return np.array(values[0])
    rank = len(spec.dims)
    places = (1 - rank, -rank, -1) if len(shape) > rank else (1 - rank, -1)
    for place in places if axis is None else (axis,):
        if 0 < -place < len(shape) and shape[place] == len(values):
            return np.array(values).reshape(-1, *[1] * (-place - 1))
    raise DataError(
        f"--preprocess {word} has {len(values)} numbers, '{spec.name}' is "
        f"{shape_text(('N', *shape[1:]))}: give one number, or one for each channel"
    )


def layout_hint(shape: tuple[int, ...], spec: InputSpec) -> str:
    """What to do about an array that would fit if its channels were elsewhere."""
    if len(shape) < 4:
        return ""
    ends: Mapping[ImageLayout, str] = {"nhwc": "last", "nchw": "first"}
    for layout, end in ends.items():
        if spec.takes(shape_moved(shape, layout)):
            return f"; if the data has its channels {end}, add --preprocess layout={layout}"
    return ""
