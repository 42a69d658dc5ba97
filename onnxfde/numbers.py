"""Array types, and how numbers round: what every room needs of numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
Indices = npt.NDArray[np.intp]
Blocks = tuple[tuple[int, ...], ...]
"""The neurons of each block of a partition."""


def cast(a: FloatArray, dtype: npt.DTypeLike) -> FloatArray:
    """Values of `a` rounded to `dtype`; beyond its range they become infinite, silently."""
    with np.errstate(over="ignore"):
        rounded: npt.NDArray[Any] = a.astype(dtype)
    return rounded.astype(np.float64)


Array = npt.NDArray[Any]

ROUNDOFF = {"float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8, "float64": 2.0**-50}
"""Unit roundoff of the dtypes a layer may have; three bits of float64 are left to our own work."""
