"""Array types, and how numbers round: what every room needs of numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
FloatArray = npt.NDArray[np.float64]
Indices = npt.NDArray[np.intp]
Blocks = tuple[tuple[int, ...], ...]
"""A partition of neurons: the numbers of those in each block."""

ROUNDOFF = {"float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8, "float64": 2.0**-50}
"""Unit roundoff of the types a layer may have; three bits of float64 are left to our own work."""
ROUNDING_STEPS = 16
"""Two executions of the same algebra count as equal up to rounding if they differ by at most this
many unit roundoffs of A(x), the computation on absolute values. Chosen: sums of hundreds of terms
in another order stay far below it."""


def cast(a: FloatArray, dtype: npt.DTypeLike) -> FloatArray:
    """Values of `a` rounded to `dtype`; beyond its range they become infinite, silently."""
    with np.errstate(over="ignore"):
        rounded: Array = a.astype(dtype)
    return rounded.astype(np.float64)
