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
from onnxfde.estimates import Estimate, RowChanges
from onnxfde.graph.axes import Axis, Reader
from onnxfde.graph.axis_chain import activation_behind
from onnxfde.graph.model import Graph
from onnxfde.graph.nodes import op
from onnxfde.numbers import Array, FloatArray
from onnxfde.running.moments import CONSTANT_SHARE, REMEMBERED_BYTES, Kept, values_before
from onnxfde.running.output_changes import largest, measured_output
from onnxfde.running.outputs import Output, output_of, rows_in
from onnxfde.running.recording import Recording


@dataclass(eq=False)
class ChangeSums:
    """Sums over the positions of each sample, those of a value and of its change."""

    change: list[FloatArray] = field(default_factory=list)
    square: list[FloatArray] = field(default_factory=list)
    total: list[FloatArray] = field(default_factory=list)
    """Samples × channels."""
    positions: int = 1

    def add(self, before: Array, after: Array, axis: int) -> None:
        """Add a value of both networks whose channels are on an axis."""
        if before.shape != after.shape:
            raise RuntimeUnavailable(f"its shape is {after.shape}, in the original {before.shape}")
        old, new = (by_sample(a, axis) for a in (before, after))
        self.change.append(np.sum((new - old) ** 2, axis=(1, 2)))
        self.square.append(np.sum(old**2, axis=(1, 2)))
        self.total.append(old.sum(axis=2))
        self.positions = old.shape[2]

    @property
    def error(self) -> Estimate:
        """The change, relative to how far the value varies."""
        change, square, total = map(np.concatenate, (self.change, self.square, self.total))
        mean = total.sum(axis=0) / max(len(total) * self.positions, 1)
        spread = np.maximum(square - 2 * total @ mean + self.positions * float(mean @ mean), 0.0)
        size = float(square.sum())
        spread = spread if spread.sum() > CONSTANT_SHARE * size else np.zeros_like(spread)
        return RowChanges(change, spread, size).error


def by_sample(values: Array, axis: int) -> FloatArray:
    """A value as samples × channels × positions."""
    first = np.moveaxis(values, axis, 1) if values.ndim > 1 else values.reshape(1, -1)
    return first.reshape(len(first), first.shape[1], -1).astype(np.float64)


@dataclass(eq=False)
class TargetMeter:
    """Two networks on the same samples: the original, and the one that is being merged."""

    original: Recording
    current: Recording

    def change(self, axis: Axis, descended: bool = False) -> Estimate:
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
        return max((found.error for found in sums), key=lambda error: error.value)

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
        """The largest relative change of an output; None if all are constant.

        RuntimeUnavailable or VerificationError if there is none.
        """
        before, start = self.outputs, values_before(axis)
        self.original.record(start)
        known = self.original.recorded
        self.original.remember({n: known[n] for n in start if n in known}, REMEMBERED_BYTES)
        edited = self.original.for_copy(copy)
        edited.forget(axis.producer.node.output[0])
        pairs = zip(before, outputs_of(edited), strict=True)
        return largest(measured_output("", *pair).told.relative_l2 for pair in pairs)

    @cached_property
    def outputs(self) -> list[Output]:
        """Those of the original."""
        return outputs_of(self.original)


def outputs_of(recording: Recording) -> list[Output]:
    """The outputs of a network on all samples."""
    names, samples = [value.name for value in recording.graph.model.graph.output], recording.samples
    runs, sizes = list[list[Array]](), list[int]()
    for values in recording.batches(names):
        runs.append([values[name] for name in names])
        sizes.append(rows_in({name: values[name] for name in samples.arrays}))
    return [output_of(parts, sizes, samples.has_batch) for parts in zip(*runs, strict=True)]


def channels_at(reader: Reader) -> int:
    """The axis of what a reader makes that counts its outputs."""
    return 1 if op(reader.node) == "Conv" else -1
