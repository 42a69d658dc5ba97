"""How each operator carries a value and its change: one rule per operator.

Selecting and moving elements rounds nothing; sums of products and pools go through `Pair.linear`,
activations are in `activation_rules`. A rule raises `Uncertified`, with the reason, where there
is no bound.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import reduce

import numpy as np

from onnxfde.graph.tensors import FLOATS
from onnxfde.neurons.intervals import Interval, Linear, Pair, Uncertified, down, gamma, up
from onnxfde.neurons.polynomial_activations import polynomial
from onnxfde.numbers import FloatArray
from onnxfde.proof.affine_bounds import OUTWARD
from onnxfde.proof.node_call import Known, NodeCall, Value
from onnxfde.proof.output_size import refuse_too_large, resized
from onnxfde.proof.pooling import average_pool, max_pool

MOST_UNFOLDED = 25_000_000
"""Entries of a convolution's input when each window is written out: 200 MB in float64. Chosen to
bound the memory; not tuned."""

LARGEST_POWER = 32
"""The largest exponent of a Pow that is followed. Chosen; not tuned."""

Rule = Callable[[NodeCall], Value]


def identity_rule(call: NodeCall) -> Pair:
    """The value unchanged."""
    return call.pair()


def cast_rule(call: NodeCall) -> Pair:
    """A cast between floating-point types is exact here; a cast to integers is refused."""
    if call.options["to"] not in FLOATS:
        raise Uncertified("it makes integers")
    return call.pair()


def dropout_rule(call: NodeCall) -> Pair:
    """The value unchanged, as at inference."""
    given = call.inputs[2] if call.has(2) else None
    mode = given.value.low if isinstance(given, Pair) else given
    trains = np.asarray(False if mode is None else mode)
    if trains.size != 1 or trains.any():
        raise Uncertified("it is in training mode")
    return call.pair()


def move_rule(call: NodeCall) -> Pair:
    """Selects and arranges elements."""
    return call.pair().mapped(call.run)


def pad_rule(call: NodeCall) -> Pair:
    """Padding with zeros, or with elements of the value."""
    value = call.fixed(2) if call.has(2) else call.options.get("value", 0.0)
    if np.any(value):
        raise Uncertified("it pads with a number other than 0")
    return move_rule(call)


def resize_rule(call: NodeCall) -> Pair:
    """Elements repeated, left out or interpolated: each lies between those of the axes resized."""
    if call.options.get("mode", b"nearest") not in (b"nearest", b"linear"):
        raise Uncertified("it interpolates beyond the values between which it lies")
    if call.options.get("coordinate_transformation_mode") == b"tf_crop_and_resize":
        raise Uncertified("it crops")
    x, lengths = call.pair(), resized(call)
    if 0 in x.shape:
        raise Uncertified("it reads no values")
    axes = tuple(axis for axis, length in enumerate(lengths) if length is not None)
    shape = tuple(n if new is None else new for n, new in zip(x.shape, lengths, strict=True))
    refuse_too_large(math.prod(shape))

    def largest(a: FloatArray) -> FloatArray:
        return np.broadcast_to(a.max(axis=axes, keepdims=True), shape)

    value, change = (Interval(-largest(-of.low), largest(of.high)) for of in (x.value, x.change))
    return Pair(value, change, largest(x.size))


def concat_rule(call: NodeCall) -> Pair:
    """Values joined along an axis."""
    pairs = [call.pair(i) for i in range(len(call.inputs))]

    def joined(of: Callable[[Pair], FloatArray]) -> FloatArray:
        return call.run(*(of(p) for p in pairs))

    value = Interval(joined(lambda p: p.value.low), joined(lambda p: p.value.high))
    change = Interval(joined(lambda p: p.change.low), joined(lambda p: p.change.high))
    return Pair(value, change, joined(lambda p: p.size))


def add_rule(call: NodeCall) -> Pair:
    """Sums of any number of values."""
    return reduce(Pair.__add__, (call.pair(i) for i in range(len(call.inputs))))


def subtract_rule(call: NodeCall) -> Pair:
    """A difference of two values."""
    return call.pair(0) + -call.pair(1)


def multiply_rule(call: NodeCall) -> Pair:
    """A square or a product."""
    same = call.inputs[0] is call.inputs[1]
    return call.pair().squared() if same else call.pair(0) * call.pair(1)


def divide_rule(call: NodeCall) -> Pair:
    """A value divided by a constant."""
    by = call.fixed(1)
    if not np.all(by):
        raise Uncertified("it divides by 0")
    return call.pair() * Pair.same(Interval(down(1 / by), up(1 / by)))


def power_rule(call: NodeCall) -> Pair:
    """A whole power."""
    exponent = call.inputs[1]
    known = call.fixed(1) if isinstance(exponent, Pair) else np.asarray(exponent)
    degree = int(known.flat[0]) if known.size and np.all(np.abs(known) <= LARGEST_POWER) else 0
    if degree < 1 or not np.all(known == degree):
        raise Uncertified(f"its exponent is not a whole number from 1 to {LARGEST_POWER}")
    x = call.pair()
    shape = np.broadcast_shapes(x.shape, known.shape)
    single = polynomial((*(0.0,) * degree, 1.0)).curve_of()
    found = x.squared() if degree == 2 else single(x)
    return found.mapped(lambda a: np.broadcast_to(a, shape))


def weighted_sum(
    x: Pair, weight: Pair, run: Callable[[FloatArray, FloatArray], FloatArray], steps: int
) -> Pair:
    """Sums of products with weights: W′x′ − Wx = Wδ + (W′ − W)x′."""
    w, gap = weight.value.low, weight.change
    found = x.linear(lambda a: run(a, w), lambda a: run(a, np.abs(w)), steps)
    if gap.is_zero:
        return found
    mid, rad, other = gap.mid, gap.rad, x.other
    extra = other.linear(lambda a: run(a, mid), lambda a: run(a, np.abs(mid)), steps)
    extra = extra.widened(run(other.size, rad) * OUTWARD)
    return replace(found, change=found.change + extra)


def matrix_product(left: Pair, right: Pair) -> Pair:
    """A matrix product."""
    steps = left.shape[-1]
    if right.value.is_point:
        return weighted_sum(left, right, np.matmul, steps)
    if left.value.is_point:
        return weighted_sum(right, left, lambda a, w: np.matmul(w, a), steps)
    change = interval_product(left.other, right.change) + interval_product(left.change, right.value)
    swapped = interval_product(left.value, right.change) + interval_product(
        left.change, right.other
    )
    return Pair(
        interval_product(left.value, right.value),
        change.meet(swapped),
        np.matmul(left.size, right.size),
    )


def interval_product(left: Interval, right: Interval) -> Interval:
    """All matrix products: (m + ρ)(n + σ) is within |m|·|σ| + |ρ|·(|n| + |σ|) of m·n."""
    slack = gamma(2 * left.shape[-1] + 8)
    first, second = np.abs(left.mid), np.abs(right.mid)
    reach = np.matmul(first, right.rad + slack * second) + np.matmul(left.rad, second + right.rad)
    return Interval.around(np.matmul(left.mid, right.mid), reach * (1 + slack) * OUTWARD)


def gemm_rule(call: NodeCall) -> Pair:
    """alpha·A·B + beta·C."""
    options = call.options
    left, right = (
        call.pair(i).mapped(np.transpose) if options.get(f"trans{name}", 0) else call.pair(i)
        for i, name in enumerate("AB")
    )
    found = matrix_product(left, right) * same_number(options.get("alpha", 1.0))
    return found + call.pair(2) * same_number(options.get("beta", 1.0)) if call.has(2) else found


def same_number(value: float) -> Pair:
    """A number that is the same in both models."""
    return Pair.same(Interval.point(np.asarray(value)))


def conv_rule(call: NodeCall) -> Pair:
    """A convolution with constant weights."""
    x, weight = call.pair(), call.weight(1)
    steps = weight.value.low[0].size
    if int(np.prod(x.shape[2:])) * steps * call.options.get("group", 1) > MOST_UNFOLDED:
        raise Uncertified("it is too large")

    def run(a: FloatArray, w: FloatArray) -> FloatArray:
        return call.run(a, w, None) if call.has(2) else call.run(a, w)

    found = weighted_sum(x, weight, run, steps)
    if not call.has(2):
        return found
    shape = (1, -1, *(1 for _ in found.shape[2:]))
    return found + call.weight(2).mapped(lambda b: b.reshape(shape))


def reduce_rule(call: NodeCall) -> Pair:
    """A mean or a sum along axes."""
    return average_change(call.pair(), call.run)


def average_change(x: Pair, run: Linear, count: int | None = None) -> Pair:
    """Means or sums, of `count` elements each."""
    count = count or x.size.size // max(run(x.size).size, 1)
    return x.linear(run, run, count + 2)


def maximum_change(x: Pair, run: Linear) -> Pair:
    """Maxima, none of which changes by more than the elements it is taken over."""
    change = Interval(-run(-x.change.low), run(x.change.high))
    return Pair(x.value.mapped(run), change, run(x.size))


def average_pool_rule(call: NodeCall) -> Pair:
    """The mean of each window."""
    options = call.options
    count = int(np.prod(options["kernel_shape"]))
    return average_change(call.pair(), lambda a: average_pool(a, options), count)


def max_pool_rule(call: NodeCall) -> Pair:
    """The maximum of each window."""
    options = call.options
    return maximum_change(call.pair(), lambda a: max_pool(a, options))


def spatial_axes(a: FloatArray) -> tuple[int, ...]:
    """The axes after samples and channels."""
    return tuple(range(2, a.ndim))


def batch_normalization_rule(call: NodeCall) -> Pair:
    """(x − mean)·scale/√(var + ε) + b."""
    if call.options.get("training_mode", 0):
        raise Uncertified("it is in training mode")
    if not call.options.get("spatial", 1):
        raise Uncertified("it has a mean for each element (spatial = 0)")
    x = call.pair()
    shape = (1, -1, *(1 for _ in x.shape[2:]))
    scale, shift, mean, var = (call.fixed(i).reshape(shape) for i in range(1, 5))
    factor = scale / np.sqrt(var + call.options.get("epsilon", stored_default(1e-5)))
    factors = Interval.point(factor).widened(gamma(8) * np.abs(factor))
    centred = x + Pair.same(Interval.point(-mean))
    return centred * Pair.same(factors) + Pair.same(Interval.point(shift))


def stored_default(default: float) -> float:
    """The default of an attribute, rounded to float32 as ONNX stores it."""
    return float(np.float32(default))


def shape_rule(call: NodeCall) -> Known:
    """The shape of a value."""
    first = call.inputs[0]
    assert first is not None
    return np.asarray(first.shape, dtype=np.int64)[
        call.options.get("start", 0) : call.options.get("end")
    ]
