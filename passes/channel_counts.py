"""How many units each axis keeps.

ε          the fewest units within ε, rounded up to what runs fast
count      exactly that; with --align, rounded down to a multiple
"""

from __future__ import annotations

from collections.abc import Mapping

from onnxfde.graph.axes import Axis
from onnxfde.graph.find_axes import is_plain_dense
from onnxfde.neurons.spending import counts_within
from onnxfde.options import MergeOptions
from onnxfde.passes.axis_work import AxisWork

ALIGNED_FROM = 16
"""Axes with fewer channels are not rounded to multiples unless the user asks for it."""
USUAL_ALIGNMENT = 8
"""The multiple of channels that onnxruntime's convolutions work with (NCHWc blocks)."""


def alignment(axis: Axis, units: int, options: MergeOptions) -> int:
    """The multiple to which counts of an axis are rounded, which had so many units at first."""
    if options.align is not None:
        return options.align
    return USUAL_ALIGNMENT if units >= ALIGNED_FROM and not is_plain_dense(axis) else 1


def count_within(work: AxisWork, eps: float, options: MergeOptions) -> int:
    """The units that an axis needs within ε; at ε = 0 all that are left without loss."""
    if eps == 0 or work.curve is None:
        return work.axis.units
    multiple = alignment(work.axis, work.units, options)
    return min(counts_within(work.curve, eps, multiple), work.axis.units)


def count_asked(work: AxisWork, count: int, options: MergeOptions) -> int:
    """As many units as the user asks for, a multiple if that is asked for too and possible."""
    align = options.align or 1
    return min(count // align * align or count, work.axis.units)


def choose_counts(works: list[AxisWork], eps: Mapping[str, float], options: MergeOptions) -> None:
    """Say of each axis how many units it keeps: those asked for or, if errors are known, by ε."""
    for work in works:
        asked = options.count_of(work.axis.name, work.units)
        if asked is not None:
            work.count = count_asked(work, asked, options)
        elif work.curve is not None:
            work.count = count_within(work, eps[work.axis.name], options)
