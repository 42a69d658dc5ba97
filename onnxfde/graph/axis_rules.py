"""What operators do with the units of an axis: one row for each (`RULES`).

    pass       elementwise operators, BatchNormalization, depthwise Conv, pooling, Resize, …
    read       Conv with one group, Gemm, MatMul: they sum over units
    end        all others; `ENDS` has words for those that are met often

A rule gives the place of the units in the result and the constants with numbers for each unit.
"""

from __future__ import annotations

from dataclasses import replace

from onnxfde.graph.activation_patterns import ACTIVATION_OPERATORS
from onnxfde.graph.affine_maps import NUMPY_BROADCASTING, NoMatch, normalization_steps
from onnxfde.graph.axes import Port
from onnxfde.graph.axis_readers import reader_of
from onnxfde.graph.axis_shapes import (
    flatten,
    named_length,
    reshape,
    shape,
    squeeze,
    transpose,
    unsqueeze,
)
from onnxfde.graph.axis_steps import AxisOutcome, AxisRule, Passes, Step
from onnxfde.graph.inner_nodes import check_transparent
from onnxfde.graph.nodes import attributes, op
from onnxfde.graph.quantized_models import INTEGER_PRODUCTS, QUANTIZERS
from onnxfde.graph.tensors import FLOATS
from onnxfde.graph.weight_matrices import float_constant


def elementwise(step: Step) -> Passes:
    """All values that the node reads have the same units, or are constants."""
    graph, node = step.graph, step.node
    found = {step.spots[name] for name in node.input if name in step.spots}
    if len(found) != 1:
        raise NoMatch(f"{step.named} reads the channels on different axes")
    (spot,) = found
    if len(node.input) > 1 and graph.opset < NUMPY_BROADCASTING:
        raise NoMatch(
            f"opset {graph.opset} broadcasts by other rules; convert the model to a newer one first"
        )
    ports: tuple[Port, ...] = ()
    for place, name in enumerate(node.input):
        if not name or name in step.spots:
            continue
        if not graph.is_constant(name) and name not in graph.overridable:
            raise NoMatch(foreign_reason(step, name))
        ports += step.port(place, spot)
    return Passes(spot, ports)


def foreign_reason(step: Step, name: str) -> str:
    """Why a value that is made elsewhere ends the axis."""
    match op(step.node):
        case "Add" | "Sum" | "Sub":
            return f"{step.named} adds the channels to another value, '{name}': a residual stream"
        case "Mul" | "Div":
            return (
                f"{step.named} multiplies the channels with another value, '{name}', as a gate or "
                "squeeze-and-excite does"
            )
    return f"{step.named} combines the channels with another value, '{name}'"


def copied(step: Step) -> Passes:
    """Identity and Dropout."""
    check_transparent(step.graph, step.node)
    return Passes(step.spot)


def float_cast(step: Step) -> Passes:
    """A Cast between floating-point types."""
    if attributes(step.node).get("to") not in FLOATS:
        raise NoMatch(
            f"{step.named} makes something else than floating-point numbers of the channels"
        )
    return Passes(step.spot)


def batch_normalization(step: Step) -> Passes:
    """Four vectors with a number for each entry of axis 1."""
    spot = step.channels
    ports = tuple(port for place in range(1, 5) for port in vector(step, place))
    normalization_steps(step.graph, step.node, step.number_of_entries(spot))
    return Passes(spot, ports)


def instance_normalization(step: Step) -> Passes:
    """Two vectors with a number for each channel, whose mean over space is taken off."""
    return Passes(step.channels, (*vector(step, 1), *vector(step, 2)))


def vector(step: Step, place: int) -> tuple[Port, ...]:
    """A constant with one number for each entry of axis 1."""
    found, spot = step.constant(place), step.channels
    if found is None or found.shape != (step.number_of_entries(spot),):
        raise NoMatch(f"a constant of {step.named} does not have one number for each unit")
    return (Port(step.node, place, 0, spot.inner),)


def convolution(step: Step) -> AxisOutcome:
    """A Conv with one group reads the units, one with a group for each passes them on."""
    groups = attributes(step.node).get("group", 1)
    if groups == 1 and not step.was_depthwise:
        return reader_of(step)
    spot, weight = step.channels, float_constant(step.graph, step.node, 1, "weight").values
    if groups != step.units or spot.block != 1:
        raise NoMatch(f"{step.named} reads the channels in {groups} groups")
    if weight.shape[:2] != (step.units, 1):
        raise NoMatch(f"{step.named} makes several channels of each of the channels")
    ports = [Port(step.node, 1, 0)]
    if len(step.node.input) > 2 and step.node.input[2]:
        float_constant(step.graph, step.node, 2, "bias")
        ports += vector(step, 2)
    return Passes(spot, tuple(ports), depthwise=True)


def pool(step: Step) -> Passes:
    """Pooling over space, which keeps the number of axes."""
    return Passes(step.channels)


def reduction(step: Step) -> Passes:
    """A mean, sum or maximum over other axes."""
    spot, axes = step.spot, step.integers("axes", 1)
    if not axes:
        raise NoMatch(f"{step.named} sums over the channels")
    gone = {axis % spot.rank for axis in axes}
    if spot.axis in gone:
        raise NoMatch(f"{step.named} sums over the channels")
    if attributes(step.node).get("keepdims", 1):
        return Passes(spot)
    before = sum(axis < spot.axis for axis in gone)
    return Passes(replace(spot, rank=spot.rank - len(gone), axis=spot.axis - before))


def resize(step: Step) -> Passes:
    """A Resize or Upsample of other axes, by constant factors or to constant lengths."""
    spot, options = step.spot, attributes(step.node)
    if options.get("coordinate_transformation_mode") == b"tf_crop_and_resize":
        raise NoMatch(f"{step.named} crops")
    if options.get("keep_aspect_ratio_policy", b"stretch") != b"stretch":
        raise NoMatch(f"{step.named} chooses lengths by itself")
    axes = [axis % spot.rank for axis in options.get("axes", range(spot.rank))]
    if spot.axis not in axes:
        return Passes(spot)
    return resized_along(step, axes.index(spot.axis))


def resized_along(step: Step, entry: int) -> Passes:
    """A Resize whose factors and lengths have an entry for the units."""
    spot, last = step.spot, len(step.node.input) - 1
    place = 1 if op(step.node) == "Upsample" or step.graph.opset < 11 else 2
    scales = attributes(step.node).get("scales")
    if scales is None and place <= last:
        scales = step.constant(place)
    if scales is not None and len(scales):
        if scales[entry] != 1:
            raise NoMatch(f"{step.named} changes the number of channels")
        return Passes(spot)
    return Passes(spot, lengths=named_length(step, 3, entry, spot))


def pad(step: Step) -> Passes:
    """A Pad of other axes."""
    spot = step.spot
    pads, given = step.integers("pads", 1), step.integers("axes", 3)
    if pads is None:
        raise NoMatch(f"{step.named} does not have constant lengths")
    axes = [n % spot.rank for n in (range(spot.rank) if given is None else given)]
    if len(pads) != 2 * len(axes):
        raise NoMatch(f"{step.named} has {len(pads)} lengths for {len(axes)} axes")
    if any(n for n, axis in zip(pads, axes * 2, strict=True) if axis == spot.axis):
        raise NoMatch(f"{step.named} adds others to the channels")
    step.constant(2)
    return Passes(spot)


def cut(step: Step) -> Passes:
    """A Slice of other axes, or one that takes all of the units."""
    spot, axes = step.spot, step.integers("axes", 3)
    starts, ends = step.integers("starts", 1), step.integers("ends", 2)
    if axes is None:
        axes = list(range(spot.rank if starts is None else len(starts)))
    axes = [axis % spot.rank for axis in axes]
    if spot.axis not in axes:
        return Passes(spot)
    entry, whole = axes.index(spot.axis), step.number_of_entries(spot)
    steps = step.integers("steps", 4) or [1] * len(axes)
    given = [numbers or [] for numbers in (starts, ends, steps)]
    if any(len(numbers) != len(axes) for numbers in given):
        raise NoMatch(f"{step.named} does not have numbers for {len(axes)} axes")
    first, last, step_length = (numbers[entry] for numbers in given)
    if (first != 0 and first > -whole) or last < whole or step_length != 1:
        raise NoMatch(f"{step.named} takes some of the channels")
    return Passes(spot)


def alone(step: Step) -> Passes:
    """A Concat of one value, or a Split into one, which copies it."""
    if len(step.node.input) > 1 and op(step.node) == "Concat":
        raise NoMatch(f"{step.named} joins the channels with others")
    if len(step.node.output) > 1:
        raise NoMatch(f"{step.named} splits the channels")
    spot, parts = step.spot, step.integers("split", 1) if op(step.node) == "Split" else None
    if parts is None or attributes(step.node).get("axis", 0) % spot.rank != spot.axis:
        return Passes(spot)
    if "split" in attributes(step.node):
        raise NoMatch(f"{step.named} says how many channels there are")
    return Passes(spot, lengths=named_length(step, 1, 0, spot))


def repeated(step: Step) -> Passes:
    """A Tile of other axes."""
    spot, counts = step.spot, step.integers("repeats", 1)
    if counts is None or len(counts) != spot.rank or counts[spot.axis] != 1:
        raise NoMatch(f"{step.named} repeats the channels")
    return Passes(spot)


def expanded(step: Step) -> Passes:
    """An Expand of other axes."""
    spot, lengths = step.spot, step.integers("shape", 1)
    if lengths is None or len(lengths) > spot.rank:
        raise NoMatch(f"{step.named} adds axes in front")
    place = spot.axis - (spot.rank - len(lengths))
    if place < 0 or lengths[place] == 1:
        return Passes(spot)
    return Passes(spot, lengths=named_length(step, 1, place, spot))


def gathered(step: Step) -> Passes:
    """A Gather along another axis, by one number or a list of them."""
    spot, places = step.spot, step.constant(1)
    axis = attributes(step.node).get("axis", 0) % spot.rank
    if axis == spot.axis:
        raise NoMatch(f"{step.named} takes some of the channels")
    rank = 1 if places is None else places.ndim
    moved = spot.axis + (rank - 1) * (axis < spot.axis)
    return Passes(replace(spot, rank=spot.rank + rank - 1, axis=moved))


def refusing(reason: str) -> AxisRule:
    """The rule of an operator that ends every axis."""

    def rule(step: Step) -> AxisOutcome:
        raise NoMatch(f"{step.named} {reason}")

    return rule


def rows(names: str, rule: AxisRule) -> dict[str, AxisRule]:
    """The same rule for several operators."""
    return dict.fromkeys(names.split(), rule)


ENDS: dict[str, AxisRule] = {
    **rows(
        "ConvTranspose", refusing("reads the channels; a transposed convolution is not merged yet")
    ),
    **rows("Softmax LogSoftmax Hardmax", refusing("mixes the channels")),
    **rows("LayerNormalization GroupNormalization LRN", refusing("mixes the channels")),
    **rows("DepthToSpace SpaceToDepth", refusing("moves the channels to other axes")),
    **dict.fromkeys(QUANTIZERS, refusing("quantizes the channels")),
    **dict.fromkeys(INTEGER_PRODUCTS, refusing("works on integers")),
    **rows("If Loop Scan", refusing("reads the channels in a body")),
}
"""Operators that end an axis, and in which words."""

RULES: dict[str, AxisRule] = {
    **dict.fromkeys(ACTIVATION_OPERATORS, elementwise),
    **rows("Add Sub Mul Div Pow Max Min Sum Mean Neg Reciprocal", elementwise),
    **rows("Exp Log Sqrt Floor Ceil Round Sign Cos Tan Sinh Cosh Atan Shrink", elementwise),
    **rows("Where Greater GreaterOrEqual Less LessOrEqual Equal And Or Not", elementwise),
    **rows("Identity Dropout", copied),
    **rows("Cast", float_cast),
    **rows("BatchNormalization", batch_normalization),
    **rows("InstanceNormalization", instance_normalization),
    **rows("Conv", convolution),
    **rows("Gemm MatMul", reader_of),
    **rows("MaxPool AveragePool LpPool", pool),
    **rows("GlobalMaxPool GlobalAveragePool GlobalLpPool", pool),
    **rows("ReduceMean ReduceSum ReduceMax ReduceMin ReduceL1 ReduceL2", reduction),
    **rows("ReduceSumSquare ReduceProd ReduceLogSum ReduceLogSumExp", reduction),
    **rows("Resize Upsample", resize),
    **rows("Pad", pad),
    **rows("Slice", cut),
    **rows("Concat Split", alone),
    **rows("Tile", repeated),
    **rows("Expand", expanded),
    **rows("Gather", gathered),
    **rows("Transpose", transpose),
    **rows("Squeeze", squeeze),
    **rows("Unsqueeze", unsqueeze),
    **rows("Flatten", flatten),
    **rows("Reshape", reshape),
    **rows("Shape", shape),
    **ENDS,
}
"""What each operator does with units."""


def outcome_of(step: Step) -> AxisOutcome:
    """What a node does with the units that it reads; NoMatch if it ends the axis."""
    rule = RULES.get(op(step.node))
    if rule is None:
        raise NoMatch(f"{step.named} is not known to act on each of the channels by itself")
    return rule(step)
