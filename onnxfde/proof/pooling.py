"""The windows that a pool slides over a value, as ONNX defines them.

    window i of an axis begins at i·stride − pad and has (kernel − 1)·dilation + 1 elements

With `ceil_mode` the last window may reach over the end, but must begin inside the value or the
padding before it. Forms that runtimes disagree on have no windows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from onnxfde.neurons.intervals import Uncertified
from onnxfde.numbers import FloatArray


@dataclass(frozen=True)
class Axis:
    """Windows along one axis: padding on both sides, how many there are, and their steps."""

    before: int
    after: int
    count: int
    span: int
    stride: int
    dilation: int

    @property
    def starts(self) -> slice:
        """Which windows there are, of all that would fit."""
        return slice(0, (self.count - 1) * self.stride + 1, self.stride)


def axis(length: int, kernel: int, stride: int, dilation: int, pads: tuple[int, int]) -> Axis:
    """Windows with explicit padding."""
    span = (kernel - 1) * dilation + 1
    room = length + sum(pads) - span
    if room < 0:
        raise Uncertified("its windows are larger than what it reads")
    return Axis(*pads, room // stride + 1, span, stride, dilation)


def with_rest(found: Axis, length: int) -> Axis:
    """With one more window for the elements that are left (`ceil_mode`)."""
    room = length + found.before + found.after - found.span
    start = found.count * found.stride
    if room % found.stride == 0 or start >= length + found.before:
        return found
    after = start + found.span - length - found.before
    return Axis(found.before, after, found.count + 1, found.span, found.stride, found.dilation)


def same_size(length: int, kernel: int, stride: int, lower: bool) -> Axis:
    """As many windows as steps fit into the axis (`auto_pad` SAME)."""
    count = -(-length // stride)
    total = (count - 1) * stride + kernel - length
    if total < 0:
        raise Uncertified("its windows leave out elements, with auto_pad")
    more, less = total - total // 2, total // 2
    before, after = (more, less) if lower else (less, more)
    return Axis(before, after, count, kernel, stride, 1)


def axes_of(shape: tuple[int, ...], options: dict[str, Any]) -> list[Axis]:
    """The windows of a pool over a value of this shape, axis by axis."""
    kernel = options["kernel_shape"]
    ones, zeros = [1] * len(kernel), [0] * len(kernel)
    strides, dilations = options.get("strides") or ones, options.get("dilations") or ones
    auto, ceil = options.get("auto_pad", b"NOTSET"), options.get("ceil_mode", 0)
    if auto != b"NOTSET" and (ceil or any(d != 1 for d in dilations)):
        raise Uncertified("it has auto_pad together with ceil_mode or dilations")
    lengths = shape[2:]
    steps = zip(lengths, kernel, strides, strict=True)
    if auto in (b"SAME_UPPER", b"SAME_LOWER"):
        return [same_size(*step, auto == b"SAME_LOWER") for step in steps]
    pads = options.get("pads") or zeros * 2
    pads = zeros * 2 if auto == b"VALID" else pads
    sides = zip(pads[: len(kernel)], pads[len(kernel) :], strict=True)
    found = [axis(*step, d, p) for step, d, p in zip(steps, dilations, sides, strict=True)]
    return [with_rest(a, n) for a, n in zip(found, lengths, strict=True)] if ceil else found


def windows(a: FloatArray, axes: list[Axis], fill: float) -> FloatArray:
    """Each window's elements on as many new axes, `fill` outside of the value."""
    widths = [(0, 0), (0, 0), *((x.before, x.after) for x in axes)]
    padded = np.pad(a, widths, constant_values=fill)
    over = tuple(range(2, a.ndim))
    found = sliding_window_view(padded, [x.span for x in axes], axis=over)
    starts, inside = (x.starts for x in axes), (slice(None, None, x.dilation) for x in axes)
    return np.asarray(found[(slice(None), slice(None), *starts, *inside)])


def last(axes: list[Axis]) -> tuple[int, ...]:
    """Where a window's elements are."""
    return tuple(range(-len(axes), 0))


def average_pool(a: FloatArray, options: dict[str, Any]) -> FloatArray:
    """The mean of each window, of its elements inside the value unless padding counts."""
    axes = axes_of(a.shape, options)
    total = windows(a, axes, 0.0).sum(axis=last(axes))
    if not options.get("count_include_pad", 0):
        inside = windows(np.ones((1, 1, *a.shape[2:])), axes, 0.0)
        return np.asarray(total / inside.sum(axis=last(axes)))
    if options.get("ceil_mode", 0):
        raise Uncertified("it has ceil_mode together with count_include_pad")
    return np.asarray(total / np.prod(options["kernel_shape"]))


def max_pool(a: FloatArray, options: dict[str, Any]) -> FloatArray:
    """The maximum of each window."""
    axes = axes_of(a.shape, options)
    return np.asarray(windows(a, axes, -np.inf).max(axis=last(axes)))
