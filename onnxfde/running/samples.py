"""Inputs to run a model on, one row per sample; the user's data, read as far as it is used.

The leading axis of each array counts samples. A model with a dynamic leading axis is run on
batches; a model with a fixed leading axis B is run on B rows at a time. An array with one axis more
than the model's input is fed row by row.

Of long data, rows evenly spread over all of it are kept, and the range of every row. Rows are kept
as they are stored and become inputs when they are fed (`row_maps`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from onnxfde.data_use import DataUse
from onnxfde.errors import DataError, OptionError
from onnxfde.graph.input_specs import InputSpec
from onnxfde.numbers import Array, Indices
from onnxfde.row_split import CHOSEN, CHOSEN_FOR_LOSS, JUDGED, Mask, split_rows
from onnxfde.running.array_folder import ArrayFolder
from onnxfde.running.array_names import places_of_inputs, require_single
from onnxfde.running.csv_files import CsvTable, is_table
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
from onnxfde.running.image_folder import ImageFolder
from onnxfde.running.preprocessing import Preprocessing, preprocessing_by_input
from onnxfde.running.row_maps import RowMap, mapped_array

BATCH = 1024
"""Rows per run of a model with a dynamic batch. Chosen: enough to hide the cost of a call; not
tuned."""
FEWEST_PARTED = 100
"""Fewer samples are all needed for fitting. Chosen; not tuned."""
NO_USE = DataUse()
"""Data that is fed as it is."""


@dataclass(frozen=True, eq=False)
class Samples:
    """Arrays for every input of a model, with labels if there are any."""

    specs: tuple[InputSpec, ...]
    arrays: Mapping[str, Array]
    """Rows in the model's layout, as they are kept; `as_fed` makes inputs of them."""
    source: str
    labels: Array | None = None
    limits: Mapping[str, tuple[Array, Array]] | None = None
    """The range of all rows of the data, of which these may be a part; None if it is not known."""
    batch: int = BATCH
    """Rows per run of a model with a dynamic batch."""
    work: float = 0.0
    """Multiply-adds that all runs are estimated to take."""
    maps: Mapping[str, RowMap] = field(default_factory=dict)
    """How rows of an input become what the model takes, where they are not that already."""
    absolute: bool = False
    """Whether absolute values are fed in place of the values."""
    chosen_by: Mask | None = None
    """Which samples decide between results that were fitted to the others; None: the usual ones."""
    spared: bool = False
    """Whether nothing at all may be fitted to these, because they stand for new rows."""

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

    def parted(self, for_loss: bool = False) -> tuple[Samples, Samples] | None:
        """Samples to fit to and choose by, and those to judge by; None if there are too few."""
        step, lengths = self._together, {len(a) for a in self.arrays.values()}
        groups = self.rows // step
        if self.rows < FEWEST_PARTED or groups < JUDGED or len(lengths) > 1:
            return None
        split = split_rows(groups, judged=True, chosen=CHOSEN_FOR_LOSS if for_loss else CHOSEN)
        choose, judge = (np.repeat(mask, step) for mask in split)
        learned = replace(self, chosen_by=choose, spared=for_loss).only(np.flatnonzero(~judge))
        return learned, self.only(np.flatnonzero(judge))

    @property
    def to_choose_by(self) -> Mask:
        """Which of the samples are chosen by; the others are fitted to."""
        if self.chosen_by is not None:
            return self.chosen_by
        step = self._together
        found = np.repeat(split_rows(self.rows // step).choose, step)
        return np.pad(found, (0, self.rows - len(found)))

    def only(self, index: Indices) -> Samples:
        """Some of the samples, with their labels."""
        arrays = {name: a[index] for name, a in self.arrays.items()}
        whole = self.labels is not None and len(self.labels) == self.rows
        labels = self.labels[index] if self.labels is not None and whole else None
        work = self.work * len(index) / max(self.rows, 1)
        chosen_by = None if self.chosen_by is None else self.chosen_by[index]
        return replace(self, arrays=arrays, labels=labels, work=work, chosen_by=chosen_by)

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
                name: self.as_fed(
                    name,
                    np.asarray(self.arrays[name][i])
                    if not size
                    else self.arrays[name][i * size : (i + 1) * size],
                )
                for name, size in sizes.items()
            }

    def as_fed(self, name: str, rows: Array) -> Array:
        """Rows of an input as the model takes them."""
        found = self.maps[name](rows) if name in self.maps else rows
        return np.abs(found) if self.absolute else found

    @property
    def parts(self) -> tuple[Samples, Samples]:
        """The samples to fit to, and those to choose by."""
        chosen = self.to_choose_by
        return self.only(np.flatnonzero(~chosen)), self.only(np.flatnonzero(chosen))

    def chosen_by_run(self, wanted: bool) -> Iterator[Mask | None]:
        """Which of the samples of each run are chosen by; None for each run if not `wanted`."""
        mask = self.to_choose_by if wanted else None
        size = max((self._rows_per_run(s) or 1 for s in self.specs), default=1)
        for i in range(self.runs):
            yield None if mask is None else mask[i * size : (i + 1) * size]

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


def load_samples(path: Path, specs: tuple[InputSpec, ...], use: DataUse = NO_USE) -> Samples:
    """Read data of any kind from a file or a folder.

    .npz    arrays for the inputs, and `y` for labels; a folder of them is read as one
    .npy    an array for the only input, as a folder of images is
    .csv    columns (`csv_files`)
    """
    if is_table(path) and not os.path.isdir(path):
        arrays = CsvTable.opened(path).arrays(specs, use)
        return samples_of_stored(arrays, specs, str(path), use)
    if os.path.isdir(path):
        several = ArrayFolder.opened(path)
        if several is None:
            return samples_of_images(path, specs, use)
        places, source = places_of_inputs(specs, several.names, use, several.source)
        return samples_of_stored(several.arrays(places), specs, source, use)
    file = ArrayFile.opened(path)
    if file.names is None:
        require_single(specs, use, f"{path} holds one array without a name")
        return samples_of_stored({specs[0].name: file.array()}, specs, str(path), use)
    places, source = places_of_inputs(specs, file.names, use, str(path))
    arrays = {name: file.array(place) for name, place in places.items()}
    return samples_of_stored(arrays, specs, source, use)


def samples_of_images(folder: Path, specs: tuple[InputSpec, ...], use: DataUse) -> Samples:
    """Read a folder of images."""
    require_single(specs, use, f"{folder} is a folder of images")
    images = ImageFolder.opened(folder, specs[0])
    name = specs[0].name
    own = preprocessing_by_input(use.preprocess, specs).get(name, Preprocessing())
    if own.layout is not None:
        raise OptionError(
            f"--preprocess layout={own.layout} is for arrays; images of a folder are put into the "
            "model's layout: drop it"
        )
    labels = {} if images.labels is None else {LABELS: StoredArray.of(images.labels)}
    return samples_of_stored({name: images.array(), **labels}, specs, images.source, use)


def make_samples(
    arrays: Mapping[str, Array], specs: tuple[InputSpec, ...], source: str, use: DataUse = NO_USE
) -> Samples:
    """Samples from arrays that fit the inputs of a model; DataError if they do not."""
    places, source = places_of_inputs(specs, tuple(arrays), use, source)
    stored = {name: StoredArray.of(np.asarray(arrays[place])) for name, place in places.items()}
    return samples_of_stored(stored, specs, source, use)


def samples_of_stored(
    arrays: Mapping[str, StoredArray],
    specs: tuple[InputSpec, ...],
    source: str,
    use: DataUse = NO_USE,
) -> Samples:
    """Samples from arrays that are read as far as they are used."""
    arrays, maps = mapped_arrays(arrays, specs, source, use)
    lengths = {arrays[spec.name].shape[0] for spec in specs}
    if len(lengths) > 1 and lcm_batch(specs) == 1:
        raise DataError(f"{source}: its arrays have different numbers of rows {sorted(lengths)}")
    own = {spec.name for spec in specs}
    labels = arrays.get(LABELS) if LABELS not in own else None
    if labels is not None:
        require_labels(labels, lengths, source)
    index = kept_rows(arrays, maps, specs, labels, source)
    fitted, limits = {}, {}
    for spec in specs:
        stored, name = arrays[spec.name], spec.name
        fitted[name], limits[name] = fit(stored, spec, maps[name], index, source)
    taken = None if labels is None else rows_of_labels(labels, index)
    if index is not None and max(lengths) - len(index) >= lcm_batch(specs):
        source = f"{source} ({len(index):,} of its {max(lengths):,} rows)"
    samples = Samples(specs, fitted, source, taken, limits, maps=maps)
    if fitted and next(samples.feeds(), None) is None:
        rows, batch = samples.rows, lcm_batch(specs)
        raise DataError(f"{source} has {rows} rows; the model takes at least {batch} at a time")
    return samples


def mapped_arrays(
    arrays: Mapping[str, StoredArray], specs: tuple[InputSpec, ...], source: str, use: DataUse
) -> tuple[dict[str, StoredArray], dict[str, RowMap]]:
    """Arrays in the layout of the inputs, and how their rows become inputs."""
    wanted = preprocessing_by_input(use.preprocess, specs)
    found, maps = dict(arrays), {}
    for spec in specs:
        own = wanted.get(spec.name, Preprocessing())
        found[spec.name], maps[spec.name] = mapped_array(arrays[spec.name], spec, own, source)
        require_shape(found[spec.name], spec, source)
    return found, maps
