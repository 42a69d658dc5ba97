"""Windows of maps (N, C, H, W), and the part of a map that a part of the output needs.

    output position o reads      o·stride − pad + dilation·t,     t = 0 … kernel − 1
    outputs [a, b) read          [a·stride − pad, (b − 1)·stride − pad + dilation·(kernel − 1) + 1)

What lies beyond the map is padding: a crop has padding only where it touches the true border.
Shapes are (N, C, H, W); in memory images run fastest, (C, H, W, N), so that windows are copied in
long runs and a convolution is one product of matrices.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from onnxfde.numbers import Array

Span = tuple[int, int]
"""From the first position on, up to and without the second."""
MapRegion = tuple[Span, Span]
"""Rows and columns of a map."""
Size = tuple[int, int]
"""How many rows and columns a map has."""


def whole(size: Size) -> MapRegion:
    """All of a map."""
    return (0, size[0]), (0, size[1])


def part(x: Array, region: MapRegion) -> Array:
    """A region of maps, as a view."""
    (top, bottom), (left, right) = region
    return x[:, :, top:bottom, left:right]


def images_last(x: Array) -> Array:
    """Maps as (C, H, W, N), as a view."""
    return x.transpose(1, 2, 3, 0)


def images_first(x: Array) -> Array:
    """(C, H, W, N) as maps (N, C, H, W), as a view."""
    return x.transpose(3, 0, 1, 2)


def _without(x: Array, border: list[list[int]]) -> Array:
    (top, bottom), (left, right) = border
    return x[:, top : max(x.shape[1] - bottom, 0), left : max(x.shape[2] - right, 0)]


@dataclass(frozen=True)
class MapWindow:
    """Which positions an output reads: rows first, then columns."""

    kernel: Size = (1, 1)
    strides: Size = (1, 1)
    dilations: Size = (1, 1)
    pads: tuple[Span, Span] = ((0, 0), (0, 0))
    """In front and behind; negative where a crop of nothing but padding reads no pixel."""

    @property
    def pointwise(self) -> bool:
        """Whether an output reads nothing but its own position."""
        return self == MapWindow()

    def size(self, size: Size) -> Size:
        """How many positions the output has."""
        return self._size(size, 0), self._size(size, 1)

    def _size(self, size: Size, d: int) -> int:
        reach = self.dilations[d] * (self.kernel[d] - 1) + 1
        return (size[d] + sum(self.pads[d]) - reach) // self.strides[d] + 1

    def cropped(self, region: MapRegion, size: Size) -> tuple[MapWindow, MapRegion]:
        """The window that makes a region of the output, and the region that it reads."""
        (rows, tall), (columns, wide) = (self._cropped(region[d], size[d], d) for d in (0, 1))
        return replace(self, pads=(tall, wide)), (rows, columns)

    def _cropped(self, span: Span, length: int, d: int) -> tuple[Span, Span]:
        first = span[0] * self.strides[d] - self.pads[d][0]
        reach = self.dilations[d] * (self.kernel[d] - 1) + 1
        last = (span[1] - 1) * self.strides[d] - self.pads[d][0] + reach
        start = min(max(first, 0), length - 1)
        stop = max(min(last, length), start + 1)
        return (start, stop), (start - first, last - stop)

    def padded(self, x: Array, fill: float = 0.0) -> Array:
        """Maps with their border, images last."""
        inside = images_last(x)
        if not any(map(any, self.pads)):
            return inside
        size = x.shape[2] + sum(self.pads[0]), x.shape[3] + sum(self.pads[1])
        found = np.full((x.shape[1], *size, x.shape[0]), fill, x.dtype)
        self.unpadded(found)[...] = self._kept(inside)
        return found

    def unpadded(self, x: Array) -> Array:
        """Without the border, images last, as a view."""
        return _without(x, [[max(p, 0) for p in span] for span in self.pads])

    def _kept(self, x: Array) -> Array:
        return _without(x, [[max(-p, 0) for p in span] for span in self.pads])

    def taps(self, padded: Array, size: Size) -> Iterator[Array]:
        """For each place in the kernel, what all outputs read there, as views."""
        (tall, wide), (down, right) = size, self.strides
        for i in range(self.kernel[0]):
            for j in range(self.kernel[1]):
                top, left = i * self.dilations[0], j * self.dilations[1]
                yield padded[
                    :,
                    top : top + (tall - 1) * down + 1 : down,
                    left : left + (wide - 1) * right + 1 : right,
                ]

    def columns(self, x: Array) -> Array:
        """(C · kernel) × (positions · images): the windows, or the maps themselves if pointwise."""
        padded = self.padded(x)
        if self.pointwise:
            return padded.reshape(len(padded), -1)
        size = self.size(x.shape[2:])
        places = self.kernel[0] * self.kernel[1]
        found = np.empty((len(padded), places, *size, x.shape[0]), x.dtype)
        for place, tap in enumerate(self.taps(padded, size)):
            found[:, place] = tap
        return found.reshape(len(padded) * places, -1)

    def spread(self, columns: Array, shape: tuple[int, ...]) -> Array:
        """The transpose of `columns`: maps with each number added where it was read."""
        images, channels, *size = shape
        if self.pointwise:
            return images_first(columns.reshape(channels, *size, images))
        out = self.size((size[0], size[1]))
        parts = columns.reshape(channels, -1, *out, images)
        padded = self.blank(shape, columns.dtype)
        for place, tap in enumerate(self.taps(padded, out)):
            tap += parts[:, place]
        return self.gathered(padded, shape)

    def blank(self, shape: tuple[int, ...], dtype: np.dtype[np.generic]) -> Array:
        """Zeros as large as maps with their border, images last."""
        images, channels, tall, wide = shape
        size = tall + sum(self.pads[0]), wide + sum(self.pads[1])
        return np.zeros((channels, *size, images), dtype)

    def gathered(self, padded: Array, shape: tuple[int, ...]) -> Array:
        """The transpose of `padded`: maps of a shape, without the border."""
        inside = self.unpadded(padded)
        if all(p >= 0 for span in self.pads for p in span):
            return images_first(inside)
        found = np.zeros((*shape[1:], shape[0]), padded.dtype)
        self._kept(found)[...] = inside
        return images_first(found)
