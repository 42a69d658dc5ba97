"""How far what counts behind an axis is from the original, on samples.

‖v′ − v‖ / ‖v − mean v‖      the mean is that of each channel, over samples and positions

It is measured as soon as an axis is done: in a chain of convolutions, what its reader makes are the
channels of the next axis, of which some will go.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from onnxfde.errors import RuntimeUnavailable
from onnxfde.graph.axes import Axis, Reader
from onnxfde.graph.nodes import op
from onnxfde.numbers import Array, FloatArray
from onnxfde.running.moments import REMEMBERED_BYTES, Kept
from onnxfde.running.recording import Recording


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

    def change(self, axis: Axis) -> float:
        """The largest change of a target of an axis that was just edited.

        RuntimeUnavailable if the networks cannot be run.
        """
        self.current.forget(axis.producer.node.output[0])
        sums = [ChangeSums() for _ in axis.readers]
        for originals, values in self.runs(axis):
            for reader, found in zip(axis.readers, sums, strict=True):
                place = channels_at(reader)
                found.add(originals[reader.target], values[reader.target], place)
        return max(found.relative for found in sums)

    def runs(self, axis: Axis) -> Iterator[tuple[dict[str, Array], dict[str, Array]]]:
        """The targets in both networks, run by run; what lies before the axis is remembered."""
        targets = [reader.target for reader in axis.readers]
        before = [axis.producer.source, *(r.added.other for r in axis.readers if r.added)]
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


def channels_at(reader: Reader) -> int:
    """The axis of what a reader makes that counts its outputs."""
    return 1 if op(reader.node) == "Conv" else -1
