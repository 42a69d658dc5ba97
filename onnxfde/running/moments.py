"""What the fit of a reader needs to know, accumulated run by run: E φφᵀ, E φTᵀ, E ‖T‖².

    T = S − other − shift        S: what counts, made or the sum that it goes into
    norm = E ‖S − E S‖²          T ≈ scale · (W φ + b)

Curves are measured on the original network: φ, S and `other` are its own. A refit takes φ and
`other` from the network compressed so far, and S from the original on the same samples, so that
it makes up for what was lost before it. Only some positions of each sample count (`windows`), and
rows are given up as soon as they are multiplied.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from onnxfde.errors import RuntimeUnavailable
from onnxfde.graph.axes import Axis, Reader
from onnxfde.graph.axis_readers import reader_matrix
from onnxfde.graph.model import Graph
from onnxfde.neurons.block_elimination import Moments
from onnxfde.numbers import Array, FloatArray, Indices
from onnxfde.row_split import Mask
from onnxfde.running.recording import Recording
from onnxfde.running.run_size import run_size, sized
from onnxfde.running.samples import Samples
from onnxfde.running.windows import POSITIONS, Windows

GROUP_BYTES = 2**29
"""Most bytes of the matrices that are accumulated at a time, unless one axis has more."""
REMEMBERED_BYTES = 2**27
"""Most bytes of values of each of two networks that are kept for the next axis."""
RUN_NUMBERS = 2**20
"""Most numbers in the largest value of a run: dozens of values are given out by it. Chosen; not
tuned."""
FEWEST_SAMPLES = 10
"""Of fewer samples none is held out."""
HELD_ROWS = 2048
"""Most rows that are held out, but one of each sample: they are kept. Chosen; not tuned."""
CONSTANT_SHARE = 1e-12
"""A target that varies by less than this share of its square is constant. Chosen; not tuned."""


def in_small_runs(samples: Samples, graph: Graph) -> Samples:
    """The same samples with so few in a run that many values of it fit into memory."""
    samples = sized(samples, graph)
    if not samples.is_dynamic:
        return samples
    largest = run_size(graph, samples.run_shapes(1)).largest
    return replace(samples, batch=max(min(samples.batch, RUN_NUMBERS // max(largest, 1)), 1))


@dataclass(eq=False)
class ReaderSums:
    """Sums over the rows of one reader."""

    reader: Reader
    windows: Windows
    gram: FloatArray
    products: FloatArray
    total: FloatArray
    """The sum of S."""
    square: float = 0.0
    """The sum of ‖S‖²."""
    power: float = 0.0
    """The sum of ‖T‖²."""
    all_rows: int = 0
    rows: int = 0
    """Rows that were multiplied."""
    waiting: list[tuple[Array, FloatArray]] = field(default_factory=list)
    """Rows that are not multiplied yet: a product of many takes less time than many products."""
    held_each: int = 0
    """How many rows are kept of each sample that is held out; 0: none."""
    held: list[tuple[Array, FloatArray]] = field(default_factory=list)
    prior: FloatArray | None = None
    """scale · W of the reader as it is."""

    @classmethod
    def of(cls, graph: Graph, reader: Reader, held_each: int = 0) -> ReaderSums:
        """Sums over no rows."""
        features, outputs = reader.columns.size + 1, len(reader.scale)
        empty = np.zeros((features, features)), np.zeros((features, outputs)), np.zeros(outputs)
        prior = reader.scale[:, None] * reader_matrix(graph, reader)
        return cls(reader, Windows.of(graph, reader), *empty, held_each=held_each, prior=prior)

    def add(
        self,
        values: Mapping[str, Array],
        originals: Mapping[str, Array],
        positions: int,
        seed: tuple[int, int],
        apart: Mask | None = None,
    ) -> None:
        """Add the rows of one run: values of the network, and the original's target.

        Samples that are `apart` are held out. RuntimeUnavailable if they are not finite.
        """
        target, added = originals[self.reader.target], self.reader.added
        require_finite({self.reader.target: target})
        require_finite({name: values[name] for name in values_of(self.reader)})
        drawn = self.windows.drawn(target, positions, seed)
        wanted = self.windows.outputs(target, drawn).astype(np.float64)
        self.all_rows += len(wanted)
        self.total += wanted.sum(axis=0)
        self.square += float(np.vdot(wanted, wanted))
        if added is not None:
            other = np.broadcast_to(values[added.other], target.shape)
            wanted -= self.windows.outputs(other, drawn)
        wanted -= self.reader.shift
        rows = self.windows.rows(values[self.reader.value], drawn)
        if apart is not None:
            rows, wanted = self.hold_out(rows, wanted, apart)
        self.power += float(np.vdot(wanted, wanted))
        self.waiting.append((rows, wanted))
        if sum(len(rows) for rows, _ in self.waiting) >= len(self.gram) // 2:
            self.multiply()

    def hold_out(self, rows: Array, wanted: FloatArray, apart: Mask) -> tuple[Array, FloatArray]:
        """Keep rows of some samples of a run apart; returns those of all others."""
        each = len(rows) / max(len(apart), 1)
        out = apart[(np.arange(len(rows)) / each).astype(int)]
        if self.held_each:
            some = np.flatnonzero(out)[:: max(int(each) // self.held_each, 1)]
            self.held.append((rows[some], wanted[some]))
        return rows[~out], wanted[~out]

    def multiply(self) -> None:
        """Add the products of the rows that wait."""
        features = np.empty((sum(len(rows) for rows, _ in self.waiting), len(self.gram)))
        features[:, -1] = 1.0
        np.concatenate([rows for rows, _ in self.waiting], out=features[:, :-1])
        wanted = np.concatenate([targets for _, targets in self.waiting])
        self.waiting, self.rows = [], self.rows + len(features)
        self.gram += features.T @ features
        self.products += features.T @ wanted

    def moments(self) -> Moments:
        """The means of all rows; RuntimeUnavailable if there are none."""
        if self.waiting:
            self.multiply()
        if not self.rows:
            raise RuntimeUnavailable(f"'{self.reader.value}' is empty")
        self.gram /= self.rows
        self.products /= self.rows
        seen = self.all_rows or 1
        square, mean = self.square / seen, self.total / seen
        norm = square - float(mean @ mean)
        norm = norm if norm > CONSTANT_SHARE * square else square or 1.0
        held = None
        if self.held:
            held = (
                np.concatenate([f for f, _ in self.held]),
                np.concatenate([t for _, t in self.held]),
            )
        return Moments(
            self.gram,
            self.products,
            self.power / self.rows,
            norm,
            self.reader.columns,
            held,
            self.prior,
            rows=self.rows,
        )


def require_finite(values: Mapping[str, Array]) -> None:
    """Raise RuntimeUnavailable unless all numbers are finite."""
    for name, a in values.items():
        if not np.isfinite(a).all():
            raise RuntimeUnavailable(f"'{name}' is not finite")


def curve_moments(
    recording: Recording,
    axes: Sequence[Axis],
    positions: int = POSITIONS,
    seed: int = 0,
) -> Iterator[tuple[Axis, list[Moments]]]:
    """The moments of the readers of each axis on the network as it is, as few runs as fit.

    Rows of some samples are held out, if there are enough of them.
    """
    samples, held_each = recording.samples, rows_held(recording.samples)
    for group in in_groups(axes):
        readers = [reader for axis in group for reader in axis.readers]
        sums = [ReaderSums.of(recording.graph, reader, held_each) for reader in readers]
        names = [name for r in readers for name in (r.target, *values_of(r))]
        apart = samples.chosen_by_run(held_each > 0)
        for number, values in enumerate(recording.batches(names)):
            out = next(apart)
            for one in sums:
                one.add(values, values, positions, (seed, number), out)
        for axis in group:
            yield axis, [sums.pop(0).moments() for _ in axis.readers]


def rows_held(samples: Samples) -> int:
    """How many rows are kept of each sample that is held out; 0 where none is."""
    if samples.fed < FEWEST_SAMPLES:
        return 0
    return max(HELD_ROWS // max(int(samples.to_choose_by.sum()), 1), 1)


def refit_moments(
    original: Recording,
    compressed: Recording,
    axis: Axis,
    positions: int = POSITIONS,
    seed: int = 0,
) -> list[Moments]:
    """The moments of an axis of the compressed network, with the original's targets.

    Samples to choose by are held out. What the next axis starts from is recorded, as far as it is
    small; after an edit the compressed recording must `forget` what the axis makes.
    """
    samples, held_each = compressed.samples, rows_held(compressed.samples)
    apart = samples.chosen_by_run(samples.spared or held_each > 0)
    sums = [ReaderSums.of(compressed.graph, reader, held_each) for reader in axis.readers]
    targets = [reader.target for reader in axis.readers]
    read = [name for reader in axis.readers for name in values_of(reader)]
    before = values_before(axis)
    kept = Kept(targets), Kept(before)
    runs = zip(original.batches(targets), compressed.batches([*read, *before]), strict=True)
    for number, (originals, values) in enumerate(runs):
        out = next(apart)
        for one in sums:
            one.add(values, originals, positions, (seed, number), out)
        kept[0].add(originals)
        kept[1].add(values)
    original.remember(kept[0].values, REMEMBERED_BYTES)
    compressed.remember(kept[1].values, REMEMBERED_BYTES)
    return [one.moments() for one in sums]


@dataclass(eq=False)
class Kept:
    """Values of all runs so far, as long as they are small."""

    names: list[str]
    values: dict[str, list[Array]] = field(default_factory=dict)
    size: int = 0

    def add(self, run: Mapping[str, Array]) -> None:
        """Keep the values of one more run, or give up all."""
        for name in dict.fromkeys(self.names):
            self.values.setdefault(name, []).append(run[name])
            self.size += run[name].nbytes
        if self.size > REMEMBERED_BYTES:
            self.names, self.values = [], {}


def values_of(reader: Reader) -> list[str]:
    """The values of its own network that a fit of a reader looks at."""
    return [reader.value, *([reader.added.other] if reader.added else [])]


def values_before(axis: Axis) -> list[str]:
    """The values that an axis, and the sums it goes into, are made of."""
    return [axis.producer.source, *(r.added.other for r in axis.readers if r.added)]


def in_groups(axes: Sequence[Axis]) -> Iterator[list[Axis]]:
    """Axes whose matrices fit into memory together."""
    group: list[Axis] = []
    for axis in axes:
        if group and sum(map(moment_bytes, [*group, axis])) > GROUP_BYTES:
            yield group
            group = []
        group.append(axis)
    if group:
        yield group


def moment_bytes(axis: Axis) -> int:
    """Bytes of the matrices of an axis."""
    sizes = ((r.columns.size + 1, r.columns.size + 1 + len(r.scale)) for r in axis.readers)
    return 8 * sum(features * numbers for features, numbers in sizes)


def refitted_weights(
    reader: Reader, moments: Moments, kept: Indices
) -> tuple[FloatArray, FloatArray]:
    """W and b of a reader for some units, in the order of their columns."""
    order = np.argsort(reader.columns[kept].ravel(), kind="stable")
    weights, bias = moments.refit(kept)
    used = reader.scale != 0
    factor = np.where(used, 1.0 / np.where(used, reader.scale, 1.0), 0.0)
    return factor[:, None] * weights[:, order], factor * bias
