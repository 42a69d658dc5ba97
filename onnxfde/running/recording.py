"""Values inside a network, recorded on one set of samples; each value is computed once.

    wanted values  ←  the part of the network that makes them  ←  inputs and recorded values

An edit drops every value computed from the edited one. The values before it stay, and the next run
starts from them: merging one layer after another runs each part of the network once more, not the
whole network for every layer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from onnxfde.errors import DataError, RunStopped, RuntimeUnavailable
from onnxfde.graph.affine_maps import Layout
from onnxfde.graph.model import Graph
from onnxfde.graph.subgraph import part_making, values_after
from onnxfde.numbers import Array, FloatArray, Indices
from onnxfde.progress import Progress
from onnxfde.row_split import Mask
from onnxfde.running.input_source import InputSource
from onnxfde.running.outputs import output_array
from onnxfde.running.run_size import sized
from onnxfde.running.samples import Samples

LAYER_ROWS = 2**17
"""Most rows of a value that layers are fitted to, which has one for each position of a sample.
Chosen: far more than a layer has inputs; not tuned."""


@dataclass(frozen=True, eq=False)
class RecordedRows:
    """A value as rows of features."""

    values: FloatArray
    each: int
    """How many rows belong to one sample."""
    chosen_by: Mask | None
    """Which samples are chosen by; None if it is not known what sample a row belongs to."""

    @property
    def fitted(self) -> FloatArray:
        """The rows of the samples to fit to."""
        if self.chosen_by is None:
            return self.values
        return self.values[np.repeat(~self.chosen_by, self.each)]


@dataclass(eq=False)
class Recording:
    """Some values of a network on samples."""

    graph: Graph
    source: InputSource
    samples: Samples
    progress: Progress = field(default_factory=Progress)
    recorded: dict[str, list[Array]] = field(default_factory=dict)
    """Values by name, one array for each run of the network."""
    failed: dict[str, str] = field(default_factory=dict)
    """Values that no runtime can compute, and why."""
    edited: set[str] = field(default_factory=set)
    """Values that an edit changed, whether they were recorded or not."""
    no_samples: str | None = None
    """Why there are no samples, if there are none: then no value can be recorded."""

    @classmethod
    def of(
        cls,
        graph: Graph,
        source: InputSource,
        progress: Progress,
        samples: Samples | None = None,
    ) -> Recording:
        """A recording without values; if no samples can be made, it says why."""
        try:
            samples = sized(samples or source.measuring_samples(graph), graph)
            return cls(graph, source, samples, progress)
        except DataError as reason:
            return cls(graph, source, Samples((), {}, ""), progress, no_samples=str(reason))

    def for_copy(self, copy: Graph) -> Recording:
        """The same values for a copy of the network that is about to be edited."""
        recorded, failed = dict(self.recorded), dict(self.failed)
        return replace(self, graph=copy, recorded=recorded, failed=failed, edited=set())

    def forget(self, value: str) -> None:
        """Drop a value that an edit changed, and every value computed from it."""
        after = values_after(self.graph, value)
        self.edited |= after
        for name in after:
            self.recorded.pop(name, None)
            self.failed.pop(name, None)

    def drop(self, names: Iterable[str]) -> None:
        """Give back the memory of values; they are computed again if they are asked for."""
        for name in names:
            self.recorded.pop(name, None)

    def record(self, names: Iterable[str]) -> None:
        """Run the network once for those values that are not recorded yet.

        If that fails each value is tried alone, so that one that cannot be computed costs no other.
        """
        settled = self.samples.arrays.keys() | self.recorded.keys() | self.failed.keys()
        wanted = [name for name in dict.fromkeys(names) if name not in settled]
        if self.no_samples is not None:
            self.failed.update(dict.fromkeys(wanted, self.no_samples))
            return
        if not wanted:
            return
        try:
            self.recorded.update(self._run(wanted))
        except RunStopped as reason:
            self.failed.update(dict.fromkeys(wanted, str(reason)))
        except RuntimeUnavailable as reason:
            if len(wanted) == 1:
                self.failed[wanted[0]] = str(reason)
            else:
                for name in wanted:
                    self.record([name])

    def _run(self, wanted: list[str]) -> dict[str, list[Array]]:
        found: dict[str, list[Array]] = {name: [] for name in wanted}
        for values in self._runs(wanted):
            for name in wanted:
                found[name].append(values[name])
        return found

    def _runs(self, wanted: list[str]) -> Iterator[dict[str, Array]]:
        from onnxfde.running.runtime import load

        examples = {name: runs[0] for name, runs in self.recorded.items() if runs}
        part = part_making(self.graph, wanted, examples)
        runner, read = load(part, self.graph.folder), [v.name for v in part.graph.input]
        work = self.samples.work / max(self.samples.runs, 1)
        for number, feeds in enumerate(self.samples.feeds()):
            given = {n: feeds[n] if n in feeds else self.recorded[n][number] for n in read}
            with self.source.clock.watching(runner.stop, work):
                values = map(output_array, runner.run(given))
            yield dict(zip(wanted, values, strict=True))
            self.progress.at(number + 1, self.samples.runs)

    def batches(self, names: Iterable[str]) -> Iterator[dict[str, Array]]:
        """Values run by run, without recording them; RuntimeUnavailable if that is not possible."""
        if self.no_samples is not None:
            raise RuntimeUnavailable(self.no_samples)
        names = list(dict.fromkeys(names))
        known = self.samples.arrays.keys() | self.recorded.keys()
        made = self._runs([name for name in names if name not in known])
        for number, feeds in enumerate(self.samples.feeds()):
            values = {name: runs[number] for name, runs in self.recorded.items() if name in names}
            yield {**feeds, **values, **next(made)}

    def remember(self, values: Mapping[str, list[Array]], most: int) -> None:
        """Record values that were run, and forget the oldest ones beyond so many bytes."""
        for name in values:
            self.recorded.pop(name, None)
        self.recorded.update(values)
        sizes = {name: sum(a.nbytes for a in runs) for name, runs in self.recorded.items()}
        for name in list(sizes):
            if sum(sizes.values()) > most:
                self.drop([name])
                del sizes[name]

    def rows(self, name: str, layout: Layout, width: int) -> RecordedRows:
        """A value with `width` features as rows.

        Of many rows, those of some samples are given. RuntimeUnavailable if there are none.
        """
        self.record([name])
        if name in self.failed:
            raise RuntimeUnavailable(self.failed[name])
        if name in self.samples.arrays:
            runs = [feeds[name] for feeds in self.samples.feeds()]
        else:
            runs = self.recorded[name]
        if layout == "columns":
            runs = [np.swapaxes(a, -1, -2) if a.ndim > 1 else a for a in runs]
        if any(width == 0 or a.size % width for a in runs):
            raise RuntimeUnavailable(f"'{name}' has other shapes in runs than in the model")
        rows = np.concatenate([a.reshape(-1, width) for a in runs])
        if not rows.size:
            raise RuntimeUnavailable(f"'{name}' is empty")
        each = self.rows_per_sample(len(rows))
        pick = some_samples(len(rows), each)
        chosen_by: Mask | None = self.samples.to_choose_by[: self.samples.fed]
        if chosen_by is not None and len(chosen_by) * each != len(rows):
            chosen_by = None
        if pick is not None:
            chosen_by = None if chosen_by is None else chosen_by[pick]
            rows = rows[(pick[:, None] * each + np.arange(each)).ravel()]
        return RecordedRows(rows.astype(np.float64), each, chosen_by)

    def rows_per_sample(self, rows: int) -> int:
        """How many of so many rows belong to one sample; 1 if that is not known."""
        samples = self.samples.fed
        return rows // samples if samples and rows % samples == 0 else 1


def some_samples(rows: int, each: int) -> Indices | None:
    """Samples that are evenly spread, if these have more rows together than are used."""
    if rows <= LAYER_ROWS:
        return None
    most = max(LAYER_ROWS // each, 1)
    return np.unique(np.linspace(0, rows // each - 1, most).astype(int))
