"""What a reader sees of a value, as rows: o = W φ + b at each position of its output.

    Conv            position p reads p·stride − pad + dilation·t,  t = 0 … kernel − 1; 0 beyond
                    the border; φ: channels, and the window of one channel side by side
    Gemm, MatMul    φ is the last axis; positions are those of the axes between it and the samples

Of each sample some positions are drawn, each as likely as any other, those at borders too.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from onnxfde.errors import RuntimeUnavailable
from onnxfde.graph.axes import Reader
from onnxfde.graph.model import Graph
from onnxfde.graph.node_windows import NodeWindows
from onnxfde.graph.nodes import op
from onnxfde.graph.weight_matrices import array_at
from onnxfde.numbers import Array, Indices

POSITIONS = 64
"""Most positions of one sample. More positions do not replace samples."""


@dataclass(frozen=True)
class Windows:
    """The windows of a Conv, or none: then rows are the last axis."""

    node: NodeWindows | None = None

    @classmethod
    def of(cls, graph: Graph, reader: Reader) -> Windows:
        """The windows of a reader, by its node's own attributes."""
        if op(reader.node) != "Conv":
            return cls()
        return cls(NodeWindows.of(reader.node, array_at(graph, reader.node, 1).shape[2:]))

    def rows(self, values: Array, drawn: Positions) -> Array:
        """φ at some positions, positions × columns."""
        if self.node is None:
            return drawn.of(values, values.ndim - 1)
        seen = all_windows(self.node, values)
        self.require(seen.shape[1 : values.ndim - 1], drawn.lengths)
        found = drawn.of(seen, values.ndim - 1)
        return found.reshape(len(found), -1)

    def outputs(self, made: Array, drawn: Positions) -> Array:
        """What a reader makes there, positions × outputs."""
        return drawn.of(made, made.ndim - 1 if self.node is None else 1)

    def drawn(self, made: Array, most: int, seed: tuple[int, ...]) -> Positions:
        """Some positions of what a reader makes."""
        lengths = made.shape[1:-1] if self.node is None else made.shape[2:]
        return Positions.some(len(made), lengths, most, seed)

    def require(self, found: tuple[int, ...], wanted: tuple[int, ...]) -> None:
        """Raise RuntimeUnavailable unless there are as many windows as positions."""
        if found != wanted:
            raise RuntimeUnavailable(f"a reader makes {wanted} positions of {found} windows")


def all_windows(node: NodeWindows, values: Array) -> Array:
    """(samples, positions …, channels, kernel …), without a copy of them.

    Channels are stored last, so that those of one place lie side by side: that is quicker to read.
    """
    padding = node.padding(values.shape[2:])
    padded = np.pad(np.moveaxis(values, 1, -1), [(0, 0), *padding, (0, 0)])
    steps = [slice(None, None, n) for n in node.strides]
    apart = [slice(None, None, n) for n in node.dilations]
    found = sliding_window_view(padded, node.reaches, axis=tuple(range(1, values.ndim - 1)))
    return np.asarray(found[(slice(None), *steps, slice(None), *apart)])


@dataclass(frozen=True, eq=False)
class Positions:
    """Some positions of some samples."""

    samples: Indices
    places: tuple[Indices, ...]
    """Along each axis of space."""
    lengths: tuple[int, ...]

    @classmethod
    def some(
        cls, samples: int, lengths: tuple[int, ...], most: int, seed: tuple[int, ...]
    ) -> Positions:
        """At most so many positions of each sample, all if there are no more."""
        total = int(np.prod(lengths))
        chosen = np.broadcast_to(np.arange(total), (samples, total))
        if total > most:
            scores = np.random.default_rng(seed).random((samples, total), dtype=np.float32)
            chosen = np.sort(np.argpartition(scores, most, axis=1)[:, :most], axis=1)
        which = np.repeat(np.arange(samples), chosen.shape[1])
        places = np.unravel_index(chosen.ravel(), lengths) if lengths else ()
        return cls(which, tuple(places), lengths)

    def index(self, axis: int) -> tuple[Indices | slice, ...]:
        """An index of these positions in an array whose features are on an axis."""
        before, after = self.places[: axis - 1], self.places[axis - 1 :]
        return (self.samples, *before, slice(None), *after)

    def of(self, a: Array, axis: int) -> Array:
        """The features of an array at these positions, positions × features."""
        return np.asarray(a[self.index(axis)])
