"""Random inputs for a model: a Latin hypercube in a range."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from onnxfde.errors import DataError, UsageError
from onnxfde.graph.input_specs import InputSpec
from onnxfde.numbers import Array, FloatArray
from onnxfde.options import Range
from onnxfde.running.data_rows import MOST_IN_ONE_RUN, lcm_batch
from onnxfde.running.samples import Samples

FIXED_BATCH_ROWS = 1024
"""Most random rows for a model with a fixed batch, which may need a call for each. Chosen; not
tuned."""
MOST_VALUES = 2**24
"""Most numbers in random inputs: 128 MB of float64. Chosen; not tuned."""
SYMBOLIC_AXIS = 8
"""Length in random inputs of axes that the model leaves open. Chosen: small and even; not tuned."""
RANDOM_INPUTS = "random inputs"
"""How the source of random samples begins in reports."""


def parse_range(text: str) -> Range:
    """LO:HI as two numbers."""
    low, colon, high = text.partition(":")
    if not colon:
        raise UsageError(f"--input-range must be LO:HI, two numbers, not '{text}'")
    return check_range((low, high))


def check_range(limits: Any) -> Range:
    """The range as two floats; one that is empty or infinite is refused."""
    try:
        low, high = map(float, () if isinstance(limits, str) else limits)
    except (TypeError, ValueError, OverflowError):
        raise UsageError(f"--input-range must be two numbers LO, HI, not {limits!r}") from None
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise UsageError(f"--input-range needs finite LO < HI, not {low:g}:{high:g}")
    if not math.isfinite(high - low):
        raise UsageError(f"--input-range {low:g}:{high:g} is too wide for any number format")
    return low, high


def latin_hypercube(rows: int, columns: int, limits: Range, seed: int = 0) -> FloatArray:
    """Rows uniform in a box, each column stratified."""
    rng = np.random.default_rng(seed)
    strata = np.tile(np.arange(rows, dtype=np.int32)[:, None], (1, columns))
    rng.permuted(strata, axis=0, out=strata)
    unit = rng.random((rows, columns))
    unit += strata
    unit /= rows
    unit *= limits[1] - limits[0]
    unit += limits[0]
    return unit


def random_samples(
    specs: tuple[InputSpec, ...], limits: Range, rows: int, seed: int = 0
) -> Samples:
    """Random samples in a range for every input; integers ≥ 0 for integer inputs.

    DataError if a single run takes too many numbers.
    """
    arrays = {}
    lengths = random_lengths(specs, rows)
    for i, (spec, length) in enumerate(zip(specs, lengths, strict=True)):
        shape = (length, *sample_shape(spec))
        if np.issubdtype(spec.dtype, np.integer) or spec.dtype == np.bool_:
            arrays[spec.name] = random_integers(spec, shape, limits, seed)
        else:
            flat = latin_hypercube(length, math.prod(shape[1:]), limits, seed + i)
            arrays[spec.name] = rounded(flat.reshape(shape), spec, limits)
    return Samples(specs, arrays, f"{RANDOM_INPUTS} in [{limits[0]:g}, {limits[1]:g}]")


def random_lengths(specs: tuple[InputSpec, ...], rows: int) -> list[int]:
    """Rows for each input: the same number, or those of one run if that would be too many."""
    batch, widths = lcm_batch(specs), [math.prod(sample_shape(s)) for s in specs]
    if any(s.fixed_batch for s in specs):
        rows = min(rows, FIXED_BATCH_ROWS)
    rows = max(min(rows, MOST_VALUES // max(sum(widths), 1)), 1)
    rows = -(-rows // batch) * batch
    if rows * sum(widths) <= MOST_IN_ONE_RUN:
        return [rows] * len(specs)
    one_run = [s.fixed_batch or 1 for s in specs]
    size = sum(n * width for n, width in zip(one_run, widths, strict=True))
    if size > MOST_IN_ONE_RUN:
        raise DataError(f"the inputs of one run have {size:,} numbers, more than can be tried out")
    return one_run


def random_integers(spec: InputSpec, shape: tuple[int, ...], limits: Range, seed: int) -> Array:
    """Random integers ≥ 0 in a range, as far as their type goes."""
    largest = 1 if spec.dtype == np.bool_ else min(int(np.iinfo(spec.dtype).max), 2**62)
    low, high = max(0, math.ceil(limits[0])), math.floor(limits[1])
    low, high = (0, 1) if spec.dtype == np.bool_ else (low, max(low, high))
    low, high = min(low, largest), min(high, largest)
    return np.random.default_rng(seed).integers(low, high + 1, shape).astype(spec.dtype)


def rounded(values: FloatArray, spec: InputSpec, limits: Range) -> Array:
    """Values in the type of an input; DataError if they are too large for it."""
    with np.errstate(over="ignore", invalid="ignore"):
        found = values.astype(spec.dtype)
        finite = found.astype(np.float64) if found.dtype.kind == "V" else found
        if not np.isfinite(finite).all():
            text = f"{limits[0]:g}:{limits[1]:g}"
            raise DataError(f"the range {text} is too large for input '{spec.name}' ({spec.dtype})")
    return found


def sample_shape(spec: InputSpec) -> tuple[int, ...]:
    """The shape of one sample; open axes get a fixed length."""
    return tuple(d if isinstance(d, int) else SYMBOLIC_AXIS for d in spec.dims[1:])
