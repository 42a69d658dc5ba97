"""How many values a node makes, known before it is evaluated: what is too large is not followed."""

from __future__ import annotations

import math
from itertools import zip_longest

import numpy as np

from onnxfde.neurons.intervals import Pair, Uncertified
from onnxfde.proof.node_call import Known, NodeCall

MOST_FOLLOWED = 2**22
"""Most values that a node may make, or an input may have: with about fifteen arrays of float64 at a
time they take 500 MB. Chosen to bound the memory; not tuned."""


def refuse_too_large(size: int) -> None:
    """Refuse what would take too much memory."""
    if size > MOST_FOLLOWED:
        raise Uncertified(f"it has {size:,} values, more than are followed")


def output_size(call: NodeCall, name: str) -> int:
    """About how many values a node makes; never much fewer than it does."""
    shapes: list[tuple[int, ...]] = [a.shape for a in call.inputs if a is not None]
    match name:
        case "Add" | "Sub" | "Mul" | "Div" | "Pow" | "Sum":
            return broadcast_size(*shapes)
        case "MatMul":
            left, right = shapes
            return broadcast_size(left[:-2], right[:-2]) * math.prod((*left[-2:-1], *right[-1:]))
        case "Gemm":
            options = call.options
            row, column = bool(options.get("transA", 0)), not options.get("transB", 0)
            return shapes[0][row] * shapes[1][column]
        case "Expand" | "ConstantOfShape":
            return broadcast_size(*shapes[:-1], tuple(integers(call, len(shapes) - 1)))
        case "Tile":
            return math.prod(shapes[0]) * math.prod(integers(call, 1))
        case "Range":
            start, limit, step = (float(np.ravel(numbers(call, i))[0]) for i in range(3))
            return math.ceil(max((limit - start) / step, 0.0))
        case "Gather":
            length = shapes[0][int(call.options.get("axis", 0))]
            return math.prod(shapes[0]) // max(length, 1) * math.prod(shapes[1])
        case "Pad":
            return padded_size(call, shapes[0])
        case "Conv" | "AveragePool" | "MaxPool":
            pads: list[int] = call.options.get("pads") or []
            count = shapes[1][0] if name == "Conv" else shapes[0][1]
            return shapes[0][0] * count * grown(shapes[0][2:], pads)
    return sum(map(math.prod, shapes))


def broadcast_size(*shapes: tuple[int, ...]) -> int:
    """The number of values when values of these shapes meet."""
    lengths = zip_longest(*(reversed(shape) for shape in shapes), fillvalue=1)
    return math.prod(0 if 0 in axis else max(axis) for axis in lengths)


def padded_size(call: NodeCall, shape: tuple[int, ...]) -> int:
    """The number of values after a Pad."""
    pads = integers(call, 1) if call.has(1) else call.options.get("pads", [])
    axes = integers(call, 3) if call.has(3) else range(len(shape))
    rest = math.prod(shape[i] for i in set(range(len(shape))) - {a % len(shape) for a in axes})
    return rest * grown(tuple(shape[axis] for axis in axes), pads)


def resized(call: NodeCall) -> list[int | None]:
    """The length of each axis behind a Resize; None where it stays as it is."""
    shape, options, place = call.pair().shape, call.options, 1 if call.opset < 11 else 2
    axes = [a % len(shape) for a in options.get("axes", range(len(shape)))]
    lengths: list[int | None] = [None] * len(shape)
    if options.get("keep_aspect_ratio_policy", b"stretch") != b"stretch":
        raise Uncertified("it chooses lengths by itself")
    scales = np.ravel(numbers(call, place)).astype(np.float32) if call.has(place) else np.zeros(0)
    if not (scales.size or call.has(place + 1)):
        raise Uncertified("its lengths are not known")
    sizes = [] if scales.size else integers(call, place + 1)
    for axis, scale in zip(axes, scales.tolist(), strict=False):
        lengths[axis] = (
            None if scale == 1 else math.floor(np.float32(shape[axis]) * np.float32(scale))
        )
    for axis, length in zip(axes, sizes, strict=False):
        lengths[axis] = None if length == shape[axis] else length
    return lengths


def grown(lengths: tuple[int, ...], pads: list[int]) -> int:
    """The number of values when each axis grows by what is padded before and after it."""
    sides = zip_longest(lengths, pads[: len(lengths)], pads[len(lengths) :], fillvalue=0)
    return math.prod(max(sum(axis), 0) for axis in sides)


def integers(call: NodeCall, i: int) -> list[int]:
    """An input that holds lengths, counts or axes."""
    return [int(n) for n in np.ravel(numbers(call, i))]


def numbers(call: NodeCall, i: int) -> Known:
    """The values of an input that is the same for every sample."""
    found = call.inputs[i]
    if found is None:
        raise Uncertified(f"its input {i + 1} is missing")
    return found.value.low if isinstance(found, Pair) else found
