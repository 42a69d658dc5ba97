"""Inputs to run a model on: rows of a data file, or a Latin hypercube in a range.

The leading axis of each array counts samples. A model with a dynamic leading axis is run on
batches; a model with a fixed leading axis B is run on B rows at a time. An array with one axis more
than the model's input is fed row by row.
"""

from __future__ import annotations

import math
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from onnxfde.errors import DataError, UsageError
from onnxfde.graph.input_specs import InputSpec
from onnxfde.graph.shapes import Dims
from onnxfde.numbers import Array, FloatArray, Indices
from onnxfde.options import Range

LABELS = "y"
"""The array of a data file that holds labels or targets."""
BATCH = 1024
"""Rows per run of a model with a dynamic batch. Chosen: enough to hide the cost of a call; not
tuned."""
FIXED_BATCH_ROWS = 1024
"""Most random rows for a model with a fixed batch, which may need a call for each. Chosen; not
tuned."""
MOST_VALUES = 2**25
"""Most numbers in random inputs: 256 MB of float64. Chosen; not tuned."""
SYMBOLIC_AXIS = 8
"""Length in random inputs of axes that the model leaves open. Chosen: small and even; not tuned."""
VERDICT_SHARE = 5
"""One sample in this many is kept for the verdict. Chosen: a fifth of a few hundred rows gives an
error with a spread of about a tenth; not tuned."""
VERDICT_SEED = 20
"""Of the draw that decides which samples are kept for the verdict."""
FEWEST_PARTED = 100
"""Fewer samples are all needed for fitting. Chosen; not tuned."""
RANDOM_INPUTS = "random inputs"
"""How the source of random samples begins in reports."""


@dataclass(frozen=True, eq=False)
class Samples:
    """Arrays for every input of a model, with labels if there are any."""

    specs: tuple[InputSpec, ...]
    arrays: Mapping[str, Array]
    source: str
    labels: Array | None = None

    @property
    def rows(self) -> int:
        """How many samples there are."""
        return min((len(a) for a in self.arrays.values()), default=0)

    @property
    def has_batch(self) -> bool:
        """Whether the leading axis of every input counts samples, as far as the shapes can tell."""
        return all(
            self._rows_per_run(spec)
            and (spec.fixed_batch is None or (len(spec.dims) > 1 and spec.is_static))
            for spec in self.specs
        )

    def some(self, most: int) -> Samples:
        """At most this many samples, evenly spread over all of them."""
        rows, step = self.rows, self._together
        if rows <= most or (step > 1 and rows < 2 * step):
            return self
        pick = np.unique(np.linspace(0, rows // step - 1, max(most // step, 1)).astype(int))
        index = (pick[:, None] * step + np.arange(step)).ravel()
        return self.only(index)

    def parted(self) -> tuple[Samples, Samples] | None:
        """Samples to work with, and those kept for the verdict; None if there are too few.

        The same samples are kept whenever as many are given: nothing else decides.
        """
        step, lengths = self._together, {len(a) for a in self.arrays.values()}
        groups = self.rows // step
        if self.rows < FEWEST_PARTED or groups < VERDICT_SHARE or len(lengths) > 1:
            return None
        order = np.random.default_rng(VERDICT_SEED).permutation(groups)
        kept = np.repeat(order % VERDICT_SHARE == 0, step)
        return self.only(np.flatnonzero(~kept)), self.only(np.flatnonzero(kept))

    def only(self, index: Indices) -> Samples:
        """Some of the samples, with their labels."""
        arrays = {name: a[index] for name, a in self.arrays.items()}
        whole = self.labels is not None and len(self.labels) == self.rows
        labels = self.labels[index] if self.labels is not None and whole else None
        return Samples(self.specs, arrays, self.source, labels)

    @property
    def runs(self) -> int:
        """How many runs of the model the samples take."""
        counts = [(len(self.arrays[s.name]), self._rows_per_run(s) or 1) for s in self.specs]
        dynamic = self._dynamic
        return min((-(-rows // n) if dynamic else rows // n for rows, n in counts), default=1)

    @property
    def fed(self) -> int:
        """How many samples the runs use: all except those that do not fill a fixed batch."""
        sizes = [self._rows_per_run(s) or 1 for s in self.specs]
        return self.rows if self._dynamic else self.runs * max(sizes, default=1)

    def feeds(self) -> Iterator[dict[str, Array]]:
        """The inputs of each run."""
        sizes = {s.name: self._rows_per_run(s) for s in self.specs}
        for i in range(self.runs):
            yield {
                name: np.asarray(self.arrays[name][i])
                if not size
                else self.arrays[name][i * size : (i + 1) * size]
                for name, size in sizes.items()
            }

    def _rows_per_run(self, spec: InputSpec) -> int:
        """Rows of an array that one run takes; 0 if it takes one row without the leading axis."""
        if self.arrays[spec.name].ndim == len(spec.dims) + 1:
            return 0
        return BATCH if self._dynamic else spec.fixed_batch or 1

    @property
    def _together(self) -> int:
        """How many consecutive samples fill every fixed batch."""
        whole = [s for s in self.specs if self.arrays[s.name].ndim == len(s.dims)]
        return lcm_batch(tuple(whole))

    @property
    def _dynamic(self) -> bool:
        return all(s.fixed_batch is None for s in self.specs)


def lcm_batch(specs: tuple[InputSpec, ...]) -> int:
    """The smallest number of samples that fills every fixed batch."""
    return int(np.lcm.reduce([s.fixed_batch or 1 for s in specs])) if specs else 1


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
    except (TypeError, ValueError):
        raise UsageError(f"--input-range must be two numbers LO, HI, not {limits!r}") from None
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise UsageError(f"--input-range needs finite LO < HI, not {low:g}:{high:g}")
    return low, high


def latin_hypercube(rows: int, columns: int, limits: Range, seed: int = 0) -> FloatArray:
    """Rows uniform in a box, each column stratified."""
    rng = np.random.default_rng(seed)
    strata = np.tile(np.arange(rows)[:, None], (1, columns))
    unit = (rng.permuted(strata, axis=0) + rng.random((rows, columns))) / rows
    return np.asarray(limits[0] + (limits[1] - limits[0]) * unit)


def random_samples(
    specs: tuple[InputSpec, ...], limits: Range, rows: int, seed: int = 0
) -> Samples:
    """Random samples in a range for every input; integers ≥ 0 for integer inputs."""
    batch = lcm_batch(specs)
    if any(s.fixed_batch for s in specs):
        rows = min(rows, FIXED_BATCH_ROWS)
    width = sum(int(np.prod(sample_shape(s))) for s in specs)
    rows = max(min(rows, MOST_VALUES // max(width, 1)), 1)
    rows = -(-rows // batch) * batch
    arrays = {}
    for i, spec in enumerate(specs):
        shape = sample_shape(spec)
        if np.issubdtype(spec.dtype, np.integer) or spec.dtype == np.bool_:
            low, high = max(0, math.ceil(limits[0])), math.floor(limits[1])
            low, high = (0, 1) if spec.dtype == np.bool_ else (low, max(low, high))
            flat: Array = np.random.default_rng(seed).integers(low, high + 1, (rows, *shape))
        else:
            flat = latin_hypercube(rows, int(np.prod(shape)), limits, seed + i)
        arrays[spec.name] = flat.reshape(rows, *shape).astype(spec.dtype)
    return Samples(specs, arrays, f"{RANDOM_INPUTS} in [{limits[0]:g}, {limits[1]:g}]")


def sample_shape(spec: InputSpec) -> tuple[int, ...]:
    """The shape of one sample; open axes get a fixed length."""
    return tuple(d if isinstance(d, int) else SYMBOLIC_AXIS for d in spec.dims[1:])


def load_samples(path: Path, specs: tuple[InputSpec, ...]) -> Samples:
    """Read a .npz with one array per input (and `y` for labels), or a .npy for a single input."""
    arrays = read_arrays(path, specs)
    return make_samples(arrays, specs, str(path))


def read_arrays(path: Path, specs: tuple[InputSpec, ...]) -> dict[str, Array]:
    """The arrays of a data file by name."""
    try:
        with path.open("rb") as stream:
            found = np.load(stream, allow_pickle=False)
            if not isinstance(found, np.ndarray):
                return {name: found[name] for name in found.files}
    except FileNotFoundError:
        raise DataError(f"{path}: no such file") from None
    except (ValueError, EOFError, zipfile.BadZipFile) as error:
        if "pickle" in str(error) or "Object arrays" in str(error):
            raise DataError(f"{path} is not a .npz or .npy file of plain numbers") from None
        raise DataError(f"{path} cannot be read as .npz or .npy ({error})") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error})") from None
    if len(specs) != 1:
        raise DataError(f"{path} holds one array, the model has {len(specs)} inputs: use .npz")
    return {specs[0].name: found}


def make_samples(arrays: Mapping[str, Array], specs: tuple[InputSpec, ...], source: str) -> Samples:
    """Samples from arrays that fit the inputs of a model; DataError if they do not."""
    fitted = {}
    for spec in specs:
        if spec.name not in arrays:
            known = ", ".join(sorted(arrays)) or "nothing"
            raise DataError(
                f"{source} has no array '{spec.name}' for the model's input (it has {known})"
            )
        fitted[spec.name] = fit(np.asarray(arrays[spec.name]), spec, source)
    lengths = {len(a) for a in fitted.values()}
    if len(lengths) > 1 and lcm_batch(specs) == 1:
        raise DataError(f"{source}: its arrays have different numbers of rows {sorted(lengths)}")
    labels = arrays.get(LABELS) if LABELS not in fitted else None
    if labels is not None and (labels.ndim == 0 or labels.dtype.kind not in "fiub"):
        raise DataError(f"{source}: '{LABELS}' must be an array of numbers, one row per sample")
    if labels is not None and len(labels) not in lengths:
        others = " or ".join(map(str, sorted(lengths)))
        raise DataError(f"{source}: '{LABELS}' has {len(labels)} rows, the inputs have {others}")
    full = len(labels) // lcm_batch(specs) * lcm_batch(specs) if labels is not None else 0
    if labels is not None and lengths == {len(labels)} and full:
        labels, fitted = labels[:full], {name: a[:full] for name, a in fitted.items()}
    samples = Samples(specs, fitted, source, labels)
    if fitted and next(samples.feeds(), None) is None:
        rows, batch = samples.rows, lcm_batch(specs)
        raise DataError(f"{source} has {rows} rows; the model takes at least {batch} at a time")
    return samples


def fit(array: Array, spec: InputSpec, source: str) -> Array:
    """The array in the input's dtype, if its shape fits."""
    if array.dtype.kind not in "fiub" and array.dtype.name != "bfloat16":
        raise DataError(f"{source}: '{spec.name}' holds {array.dtype}, not numbers")
    whole = array.ndim == len(spec.dims) and matches(array.shape[1:], spec.dims[1:])
    row_by_row = array.ndim == len(spec.dims) + 1 and matches(array.shape[1:], spec.dims)
    if not (whole or row_by_row):
        wanted = "×".join(str(d or "?") for d in ("N", *spec.dims[1:]))
        got = "×".join(map(str, array.shape)) or "a single number"
        raise DataError(f"{source}: '{spec.name}' is {got}, the model's input is {wanted}")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise DataError(f"{source}: '{spec.name}' holds NaN or infinite values")
    with np.errstate(over="ignore"):
        fitted = array.astype(spec.dtype)
    if fitted.dtype.kind == "f" and not np.isfinite(fitted).all():
        raise DataError(f"{source}: '{spec.name}' holds values too large for {spec.dtype.name}")
    return fitted


def matches(shape: tuple[int, ...], wanted: Dims) -> bool:
    """Whether a shape is what a model asks for."""
    return len(shape) == len(wanted) and all(
        a == b for a, b in zip(shape, wanted, strict=True) if isinstance(b, int)
    )
