"""Values inside a network, recorded on the same samples, each computed once.

    wanted values  ←  the part of the network that makes them  ←  inputs, and values known already

After an edit, the values behind it are forgotten. What comes before is still known and is where the
next run starts, so that changing one layer after the other runs every part of the network once.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import numpy as np

from onnxfde.errors import DataError, RuntimeUnavailable
from onnxfde.graph.affine import Layout
from onnxfde.graph.model import Graph
from onnxfde.graph.subgraph import part_making, values_after
from onnxfde.numbers import Array, FloatArray
from onnxfde.progress import Progress
from onnxfde.running.input_source import InputSource
from onnxfde.running.samples import Samples


@dataclass(eq=False)
class Recording:
    """What some values of a network are on samples, run by run."""

    graph: Graph
    source: InputSource
    samples: Samples
    progress: Progress = field(default_factory=Progress)
    known: dict[str, list[Array]] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    """Values that no runtime can compute, and why."""
    stale: set[str] = field(default_factory=set)
    """Values that lie behind an edit."""

    @classmethod
    def of(cls, graph: Graph, source: InputSource, progress: Progress) -> Recording:
        """Nothing recorded yet; where there can be no samples, every value fails."""
        try:
            return cls(graph, source, source.measuring_samples(graph), progress)
        except DataError as reason:
            everything = dict.fromkeys(graph.producers, str(reason))
            return cls(graph, source, Samples((), {}, ""), progress, failed=everything)

    def on(self, copy: Graph) -> Recording:
        """The same values for a copy of the network that is about to be edited."""
        known, failed = dict(self.known), dict(self.failed)
        return replace(self, graph=copy, known=known, failed=failed, stale=set())

    def edited(self, value: str) -> None:
        """Forget a value that an edit changed, and all that is computed from it."""
        behind = values_after(self.graph, value)
        self.stale |= behind
        for kept in (self.known, self.failed):
            for name in behind & kept.keys():
                del kept[name]

    def record(self, names: Iterable[str]) -> None:
        """Run the network once for all of these values that are not known yet."""
        fed, done = self.samples.arrays.keys(), self.known.keys() | self.failed.keys()
        wanted = [name for name in dict.fromkeys(names) if name not in fed and name not in done]
        if not wanted:
            return
        try:
            self.known.update(self._run(wanted))
        except RuntimeUnavailable as reason:
            if len(wanted) == 1:
                self.failed[wanted[0]] = str(reason)
            else:
                for name in wanted:
                    self.record([name])

    def _run(self, wanted: list[str]) -> dict[str, list[Array]]:
        from onnxfde.running.runtime import load

        examples = {name: runs[0] for name, runs in self.known.items() if runs}
        part = part_making(self.graph, wanted, examples)
        runner, read = load(part, self.graph.folder), [v.name for v in part.graph.input]
        found: dict[str, list[Array]] = {name: [] for name in wanted}
        for number, feeds in enumerate(self.samples.feeds()):
            given = {n: feeds[n] if n in feeds else self.known[n][number] for n in read}
            for name, values in zip(wanted, runner.run(given), strict=True):
                found[name].append(values)
            self.progress.at(number + 1, self.samples.runs)
        return found

    def rows(self, name: str, layout: Layout, width: int) -> FloatArray:
        """A value with `width` features as rows; RuntimeUnavailable where it cannot be computed."""
        self.record([name])
        if name in self.failed:
            raise RuntimeUnavailable(self.failed[name])
        if name in self.samples.arrays:
            runs = [feeds[name] for feeds in self.samples.feeds()]
        else:
            runs = self.known[name]
        if layout == "columns":
            runs = [np.swapaxes(a, -1, -2) if a.ndim > 1 else a for a in runs]
        return np.concatenate([a.reshape(-1, width) for a in runs]).astype(np.float64)
