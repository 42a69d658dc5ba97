"""How far what counts behind an axis, or at the outputs, is from the original, on samples.

‖v′ − v‖ / ‖v − mean v‖      the mean is that of each channel, over samples and positions

It is measured as soon as an axis is done: in a chain of convolutions, what its reader makes are the
channels of the next axis, of which some will go.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from onnxfde.errors import RuntimeUnavailable
from onnxfde.graph.axes import Axis, Reader
from onnxfde.graph.axis_chain import activation_behind
from onnxfde.graph.model import Graph
from onnxfde.graph.nodes import op
from onnxfde.numbers import Array, FloatArray
from onnxfde.running.moments import REMEMBERED_BYTES, Kept, values_before
from onnxfde.running.outputs import joined, rows_in
from onnxfde.running.recording import Recording
from onnxfde.running.verification import measure


@dataclass(eq=False)
class ChangeSums:
    """Sums over all positions so far, those of a value and of its change."""

    change: float = 0.0
    square: float = 0.0
    total: FloatArray = field(default_factory=lambda: np.zeros(1))
    count: int = 0

    def add(self, before: Array, after: Array, axis: int) -> None:
        """Add a value of both networks whose channels are on an axis."""
        if before.shape != after.shape:
            raise RuntimeUnavailable(f"its shape is {after.shape}, in the original {before.shape}")
        old = np.moveaxis(before, axis, 0).reshape(before.shape[axis], -1).astype(np.float64)
        new = np.moveaxis(after, axis, 0).reshape(after.shape[axis], -1).astype(np.float64)
        self.change += float(np.sum((new - old) ** 2))
        self.square += float(np.sum(old**2))
        self.total = self.total + old.sum(axis=1)
        self.count += old.shape[1]

    @property
    def relative(self) -> float:
        """The change, relative to how far the value varies."""
        spread = self.square - float(np.sum(self.total**2)) / max(self.count, 1)
        return float(np.sqrt(self.change / spread)) if spread > 0 else float(np.sqrt(self.change))


@dataclass(eq=False)
class TargetMeter:
    """Two networks on the same samples: the original, and the one that is being merged."""

    original: Recording
    current: Recording

    def change(self, axis: Axis, descended: bool = False) -> float:
        """The largest change of a target of an axis that was just edited.

        A descent keeps what the activation behind the target makes of it, so that counts then.
        RuntimeUnavailable if the networks cannot be run.
        """
        self.current.forget(axis.producer.node.output[0])
        sums = [ChangeSums() for _ in axis.readers]
        for originals, values in self.runs(axis):
            for reader, found in zip(axis.readers, sums, strict=True):
                both = (originals[reader.target], values[reader.target])
                if descended:
                    behind = activation_behind(self.original.graph, reader.target).activation
                    both = (behind.value(both[0]), behind.value(both[1]))
                found.add(*both, channels_at(reader))
        return max(found.relative for found in sums)

    def runs(self, axis: Axis) -> Iterator[tuple[dict[str, Array], dict[str, Array]]]:
        """The targets in both networks, run by run; what lies before the axis is remembered."""
        targets = [reader.target for reader in axis.readers]
        before = values_before(axis)
        kept = Kept(targets), Kept(before)
        runs = zip(
            self.original.batches(targets), self.current.batches([*targets, *before]), strict=True
        )
        for originals, values in runs:
            kept[0].add(originals)
            kept[1].add(values)
            yield originals, values
        self.original.remember(kept[0].values, REMEMBERED_BYTES)
        self.current.remember(kept[1].values, REMEMBERED_BYTES)


@dataclass(eq=False)
class OutputMeter:
    """A network, beside copies of it in which one axis was edited: these run from there on only."""

    original: Recording

    def change(self, copy: Graph, axis: Axis) -> float | None:
        """The relative L2 change of the outputs; None if they are constant.

        RuntimeUnavailable or VerificationError if there is none.
        """
        before, start = self.outputs, values_before(axis)
        self.original.record(start)
        known = self.original.recorded
        self.original.remember({n: known[n] for n in start if n in known}, REMEMBERED_BYTES)
        edited = self.original.for_copy(copy)
        edited.forget(axis.producer.node.output[0])
        return measure(before, outputs_of(edited), edited.samples, "").relative_l2

    @cached_property
    def outputs(self) -> list[Array]:
        """Those of the original."""
        return outputs_of(self.original)


def outputs_of(recording: Recording) -> list[Array]:
    """The outputs of a network on all samples."""
    names, samples = [value.name for value in recording.graph.model.graph.output], recording.samples
    runs, sizes = list[list[Array]](), list[int]()
    for values in recording.batches(names):
        runs.append([values[name] for name in names])
        sizes.append(rows_in({name: values[name] for name in samples.arrays}))
    return [joined(parts, sizes, samples.has_batch) for parts in zip(*runs, strict=True)]


def channels_at(reader: Reader) -> int:
    """The axis of what a reader makes that counts its outputs."""
    return 1 if op(reader.node) == "Conv" else -1
