"""The windows of a convolution or a pool, from its attributes and the size of what it reads.

auto_pad = SAME:  outputs = ⌈size / stride⌉, padded by (outputs − 1)·stride + reach − size in all
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from onnxfde.graph.affine_maps import NoMatch
from onnxfde.graph.nodes import attributes, label, op
from onnxfde.graph.protos import NodeProto
from onnxfde.neurons.map_windows import MapWindow, Size, Span

_T = TypeVar("_T")


@dataclass(frozen=True)
class NodeWindows:
    """Windows with any number of axes, as a node's attributes give them."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[int, ...]
    """In front along every axis, then behind; they count only if `auto_pad` does not."""
    auto_pad: bytes

    @classmethod
    def of(cls, node: NodeProto, kernel: Sequence[int]) -> NodeWindows:
        """The windows of a node with this kernel."""
        options, ones = attributes(node), (1,) * len(kernel)
        return cls(
            kernel=tuple(kernel),
            strides=tuple(options.get("strides") or ones),
            dilations=tuple(options.get("dilations") or ones),
            pads=tuple(options.get("pads") or (0,) * 2 * len(kernel)),
            auto_pad=options.get("auto_pad") or b"NOTSET",
        )

    @property
    def reaches(self) -> tuple[int, ...]:
        """From the first to the last element of a window, along each axis."""
        return tuple((k - 1) * d + 1 for k, d in zip(self.kernel, self.dilations, strict=True))

    @property
    def gaps(self) -> bool:
        """Whether there are positions that no window reads, within windows or between them."""
        between = any(s > k for s, k in zip(self.strides, self.kernel, strict=True))
        return between or any(dilation > 1 for dilation in self.dilations)

    def padding(self, lengths: Sequence[int]) -> list[Span]:
        """How many positions are added in front and behind along each axis of these lengths."""
        if self.auto_pad == b"NOTSET":
            half = len(self.kernel)
            return list(zip(self.pads[:half], self.pads[half:], strict=True))
        if self.auto_pad == b"VALID":
            return [(0, 0)] * len(self.kernel)
        axes = zip(lengths, self.strides, self.reaches, strict=True)
        return [self._same(*axis) for axis in axes]

    def _same(self, length: int, stride: int, reach: int) -> Span:
        missing = max((-(-length // stride) - 1) * stride + reach - length, 0)
        less, more = missing // 2, missing - missing // 2
        return (less, more) if self.auto_pad == b"SAME_UPPER" else (more, less)


def sure_padding(node: NodeProto, windows: NodeWindows, lengths: Sequence[int]) -> list[Span]:
    """What is added in front and behind along each axis; NoMatch where engines do not agree."""

    def refused(why: str) -> NoMatch:
        return NoMatch(f"{op(node)} '{label(node)}' has windows that {why}")

    if attributes(node).get("ceil_mode", 0):
        raise refused("are cut off (ceil_mode)")
    if windows.auto_pad.startswith(b"SAME") and op(node).endswith("Pool") and windows.gaps:
        raise refused("engines pad differently (auto_pad with gaps)")
    pads = windows.padding(lengths)
    spans = zip(lengths, pads, windows.reaches, strict=True)
    if any(length + sum(pad) < reach for length, pad, reach in spans):
        raise refused(f"do not fit into {' × '.join(map(str, lengths))} positions")
    return pads


def node_window(node: NodeProto, kernel: tuple[int, ...], size: Size) -> MapWindow:
    """The window of a node with this kernel on maps of this size; signals are maps of one row.

    NoMatch if the windows do not fit, or engines do not agree on them.
    """
    axes = len(kernel)
    if not 1 <= axes <= 2:
        raise NoMatch(f"{op(node)} '{label(node)}' has windows with {axes} axes")
    found = NodeWindows.of(node, kernel)
    pads = sure_padding(node, found, size[-axes:])
    return MapWindow(
        kernel=rows_and_columns(found.kernel, 1),
        strides=rows_and_columns(found.strides, 1),
        dilations=rows_and_columns(found.dilations, 1),
        pads=rows_and_columns(pads, (0, 0)),
    )


def rows_and_columns(given: Sequence[_T], one_row: _T) -> tuple[_T, _T]:
    """What is given for rows and columns; signals have one row."""
    return (given[0], given[1]) if len(given) == 2 else (one_row, given[0])
