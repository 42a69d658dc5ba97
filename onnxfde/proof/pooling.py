"""The windows that a pool slides over a value, as ONNX defines them.

    window i of an axis begins at i·stride − pad and has (kernel − 1)·dilation + 1 elements

With `ceil_mode` the last window may reach past the end, but must begin inside the value or the
padding before it. Forms that runtimes disagree on raise `Uncertified`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from onnxfde.neurons.intervals import Uncertified
from onnxfde.numbers import FloatArray


@dataclass(frozen=True)
class WindowAxis:
    """Windows along one axis: the padding before and after it, and their number, span and steps."""

    before: int
    after: int
    count: int
    span: int
    stride: int
    dilation: int

    @property
    def starts(self) -> slice:
        """The windows that are taken, of those that start at every element."""
        return slice(0, (self.count - 1) * self.stride + 1, self.stride)


def padded_axis(
    length: int, kernel: int, stride: int, dilation: int, pads: tuple[int, int]
) -> WindowAxis:
    """Windows along an axis with explicit padding."""
    span = (kernel - 1) * dilation + 1
    room = length + sum(pads) - span
    if room < 0:
        raise Uncertified("its windows are larger than what it reads")
    return WindowAxis(*pads, room // stride + 1, span, stride, dilation)


def with_last_window(found: WindowAxis, length: int) -> WindowAxis:
    """The windows, with one more for the elements that are left over (`ceil_mode`)."""
    room = length + found.before + found.after - found.span
    start = found.count * found.stride
    if room % found.stride == 0 or start >= length + found.before:
        return found
    after = start + found.span - length - found.before
    return WindowAxis(
        found.before, after, found.count + 1, found.span, found.stride, found.dilation
    )


def same_size_axis(length: int, kernel: int, stride: int, lower: bool) -> WindowAxis:
    """One window per step along the axis, rounded up (`auto_pad` SAME)."""
    count = -(-length // stride)
    total = (count - 1) * stride + kernel - length
    if total < 0:
        raise Uncertified("with auto_pad its windows leave out elements")
    more, less = total - total // 2, total // 2
    before, after = (more, less) if lower else (less, more)
    return WindowAxis(before, after, count, kernel, stride, 1)


def window_axes(shape: tuple[int, ...], options: dict[str, Any]) -> list[WindowAxis]:
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
        return [same_size_axis(*step, auto == b"SAME_LOWER") for step in steps]
    pads = options.get("pads") or zeros * 2
    pads = zeros * 2 if auto == b"VALID" else pads
    sides = zip(pads[: len(kernel)], pads[len(kernel) :], strict=True)
    found = [padded_axis(*step, d, p) for step, d, p in zip(steps, dilations, sides, strict=True)]
    return [with_last_window(a, n) for a, n in zip(found, lengths, strict=True)] if ceil else found


def pool_windows(a: FloatArray, axes: list[WindowAxis], fill: float) -> FloatArray:
    """The elements of each window along new axes, with `fill` outside of the value."""
    widths = [(0, 0), (0, 0), *((x.before, x.after) for x in axes)]
    padded = np.pad(a, widths, constant_values=fill)
    over = tuple(range(2, a.ndim))
    found = sliding_window_view(padded, [x.span for x in axes], axis=over)
    starts, inside = (x.starts for x in axes), (slice(None, None, x.dilation) for x in axes)
    return np.asarray(found[(slice(None), slice(None), *starts, *inside)])


def element_axes(axes: list[WindowAxis]) -> tuple[int, ...]:
    """The axes that hold the elements of each window."""
    return tuple(range(-len(axes), 0))


def average_pool(a: FloatArray, options: dict[str, Any]) -> FloatArray:
    """The mean of each window, over its elements inside the value unless padding counts."""
    axes = window_axes(a.shape, options)
    total = pool_windows(a, axes, 0.0).sum(axis=element_axes(axes))
    if not options.get("count_include_pad", 0):
        inside = pool_windows(np.ones((1, 1, *a.shape[2:])), axes, 0.0)
        return np.asarray(total / inside.sum(axis=element_axes(axes)))
    if options.get("ceil_mode", 0):
        raise Uncertified("it has ceil_mode together with count_include_pad")
    return np.asarray(total / np.prod(options["kernel_shape"]))


def max_pool(a: FloatArray, options: dict[str, Any]) -> FloatArray:
    """The maximum of each window."""
    axes = window_axes(a.shape, options)
    return np.asarray(pool_windows(a, axes, -np.inf).max(axis=element_axes(axes)))
