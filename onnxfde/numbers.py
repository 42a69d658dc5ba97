"""Array types, and how numbers round."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
FloatArray = npt.NDArray[np.float64]
Indices = npt.NDArray[np.intp]
Data = str | Path | Array | Mapping[str, Array]
"""Real inputs of a model: a .npz or .npy file, a table, a folder of .npz files or of images, one
array per input by name ('y' for labels or targets), or the array of a model's only input; one row
per sample."""
IMAGE_SUFFIXES = frozenset(
    (".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")
)
"""What the names of images in a folder of data end in."""
Blocks = tuple[tuple[int, ...], ...]
"""A partition of neurons: the numbers of those in each block."""

ROUNDOFF = {"float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8, "float64": 2.0**-50}
"""Unit roundoff of the types that a layer may have (IEEE 754). That of float64 is taken eight times
as large, because our own computations round in float64 too. Chosen; not tuned."""
LARGEST = {
    "float32": 2.0**128 * (1 - 2.0**-24),
    "float16": 65504.0,
    "bfloat16": 2.0**128 * (1 - 2.0**-8),
    "float64": float(np.finfo(np.float64).max),
}
"""The largest finite number of these types."""
ROUNDING_STEPS = 16
"""Two executions of the same algebra count as equal up to rounding if they differ by at most this
many unit roundoffs of A(x), the computation on absolute values. Chosen: the worst case grows with
the number of terms in a sum, but rounding errors mostly cancel."""


def cast(a: FloatArray, dtype: npt.DTypeLike) -> FloatArray:
    """Values of `a` rounded to `dtype`; beyond its range they become infinite, silently."""
    with np.errstate(over="ignore"):
        rounded: Array = a.astype(dtype)
    return rounded.astype(np.float64)
