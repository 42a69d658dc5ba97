"""Inputs to run a model on, one row per sample; the user's data, read as far as it is used.

The leading axis of each array counts samples. A model with a dynamic leading axis is run on
batches; a model with a fixed leading axis B is run on B rows at a time. An array with one axis more
than the model's input is fed row by row.

Of long data, rows evenly spread over all of it are kept, and the range of every row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from onnxfde.errors import DataError
from onnxfde.graph.input_specs import InputSpec
from onnxfde.numbers import Array, Indices
from onnxfde.running.data_files import ArrayFile, StoredArray
from onnxfde.running.data_rows import (
    LABELS,
    fit,
    kept_rows,
    lcm_batch,
    require_labels,
    require_shape,
    rows_of_labels,
)

BATCH = 1024
"""Rows per run of a model with a dynamic batch. Chosen: enough to hide the cost of a call; not
tuned."""
VERDICT_SHARE = 5
"""One sample in this many is kept for the verdict. Chosen: a fifth of a few hundred rows gives an
error with a spread of about a tenth; not tuned."""
VERDICT_SEED = 20
"""Of the draw that decides which samples are kept for the verdict."""
FEWEST_PARTED = 100
"""Fewer samples are all needed for fitting. Chosen; not tuned."""


@dataclass(frozen=True, eq=False)
class Samples:
    """Arrays for every input of a model, with labels if there are any."""

    specs: tuple[InputSpec, ...]
    arrays: Mapping[str, Array]
    source: str
    labels: Array | None = None
    limits: Mapping[str, tuple[Array, Array]] | None = None
    """The range of all rows of the data, of which these may be a part; None if it is not known."""
    batch: int = BATCH
    """Rows per run of a model with a dynamic batch."""
    work: float = 0.0
    """Multiply-adds that all runs are estimated to take."""

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
        work = self.work * len(index) / max(self.rows, 1)
        return replace(self, arrays=arrays, labels=labels, work=work)

    @property
    def runs(self) -> int:
        """How many runs of the model the samples take."""
        counts = [(len(self.arrays[s.name]), self._rows_per_run(s) or 1) for s in self.specs]
        dynamic = self.is_dynamic
        return min((-(-rows // n) if dynamic else rows // n for rows, n in counts), default=1)

    @property
    def fed(self) -> int:
        """How many samples the runs use: all except those that do not fill a fixed batch."""
        sizes = [self._rows_per_run(s) or 1 for s in self.specs]
        return self.rows if self.is_dynamic else self.runs * max(sizes, default=1)

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

    def run_shapes(self, rows: int) -> dict[str, tuple[int, ...]]:
        """The shapes of the inputs of a run, on so many rows if their number is free."""
        found = {}
        for spec in self.specs:
            shape = self.arrays[spec.name].shape[1:]
            size = rows if self.is_dynamic else spec.fixed_batch or 1
            found[spec.name] = (size, *shape) if self._rows_per_run(spec) else shape
        return found

    def _rows_per_run(self, spec: InputSpec) -> int:
        """Rows of an array that one run takes; 0 if it takes one row without the leading axis."""
        if self.arrays[spec.name].ndim == len(spec.dims) + 1:
            return 0
        return self.batch if self.is_dynamic else spec.fixed_batch or 1

    @property
    def _together(self) -> int:
        """How many consecutive samples fill every fixed batch."""
        whole = [s for s in self.specs if self.arrays[s.name].ndim == len(s.dims)]
        return lcm_batch(tuple(whole))

    @property
    def is_dynamic(self) -> bool:
        """Whether a run may take any number of rows."""
        return all(s.fixed_batch is None for s in self.specs)


def load_samples(path: Path, specs: tuple[InputSpec, ...]) -> Samples:
    """Read a .npz with one array per input (and `y` for labels), or a .npy for a single input."""
    file = ArrayFile.opened(path)
    if file.names is None:
        if len(specs) != 1:
            raise DataError(f"{path} holds one array, the model has {len(specs)} inputs: use .npz")
        return samples_of_stored({specs[0].name: file.array()}, specs, str(path))
    wanted = {spec.name for spec in specs} | {LABELS}
    require_arrays(specs, file.names, str(path))
    arrays = {name: file.array(name) for name in file.names if name in wanted}
    return samples_of_stored(arrays, specs, str(path))


def make_samples(arrays: Mapping[str, Array], specs: tuple[InputSpec, ...], source: str) -> Samples:
    """Samples from arrays that fit the inputs of a model; DataError if they do not."""
    require_arrays(specs, arrays, source)
    stored = {name: StoredArray.of(np.asarray(array)) for name, array in arrays.items()}
    return samples_of_stored(stored, specs, source)


def require_arrays(specs: tuple[InputSpec, ...], names: Iterable[str], source: str) -> None:
    """Raise DataError unless there is an array for every input."""
    missing = [spec.name for spec in specs if spec.name not in names]
    if missing:
        known = ", ".join(sorted(names)) or "nothing"
        raise DataError(
            f"{source} has no array '{missing[0]}' for the model's input (it has {known})"
        )


def samples_of_stored(
    arrays: Mapping[str, StoredArray], specs: tuple[InputSpec, ...], source: str
) -> Samples:
    """Samples from arrays that are read as far as they are used."""
    for spec in specs:
        require_shape(arrays[spec.name], spec, source)
    lengths = {arrays[spec.name].shape[0] for spec in specs}
    if len(lengths) > 1 and lcm_batch(specs) == 1:
        raise DataError(f"{source}: its arrays have different numbers of rows {sorted(lengths)}")
    own = {spec.name for spec in specs}
    labels = arrays.get(LABELS) if LABELS not in own else None
    if labels is not None:
        require_labels(labels, lengths, source)
    index = kept_rows(arrays, specs, labels, source)
    fitted, limits = {}, {}
    for spec in specs:
        stored = arrays[spec.name]
        fitted[spec.name], limits[spec.name] = fit(stored, spec, index, source)
    taken = None if labels is None else rows_of_labels(labels, index)
    if index is not None and max(lengths) - len(index) >= lcm_batch(specs):
        source = f"{source} ({len(index):,} of its {max(lengths):,} rows)"
    samples = Samples(specs, fitted, source, taken, limits)
    if fitted and next(samples.feeds(), None) is None:
        rows, batch = samples.rows, lcm_batch(specs)
        raise DataError(f"{source} has {rows} rows; the model takes at least {batch} at a time")
    return samples
