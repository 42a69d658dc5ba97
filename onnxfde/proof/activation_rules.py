"""How activations and normalizations carry a value and its change: through curves of the table."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from onnxfde.graph.activation_patterns import DEFAULTS
from onnxfde.graph.nodes import op
from onnxfde.neurons.activation_curves import Curve, clipped, softmax
from onnxfde.neurons.activations import activation_named
from onnxfde.neurons.intervals import Interval, Pair, Uncertified, gamma
from onnxfde.neurons.piecewise_activations import PRELU
from onnxfde.neurons.smooth_activations import GELU, TANH_GELU, silu
from onnxfde.numbers import FloatArray
from onnxfde.proof.node_call import NodeCall
from onnxfde.proof.operator_rules import Rule, stored_default

SOFTMAX_OF_ONE_AXIS = 13
"""The opset from which on Softmax normalises along one axis (ONNX operator changelog)."""


def softmax_rule(call: NodeCall) -> Pair:
    """Softmax over one axis; in old models over that axis and all that follow it."""
    x, axis = call.pair(), softmax_axis(call)
    old = call.opset < SOFTMAX_OF_ONE_AXIS
    return softmax(x, tuple(range(axis, len(x.shape))) if old else (axis,))


def softmax_axis(call: NodeCall) -> int:
    """The axis of a softmax, or the first of its axes in old models."""
    default = 1 if call.opset < SOFTMAX_OF_ONE_AXIS else -1
    return int(call.options.get("axis", default) % len(call.pair().shape))


def clip_rule(call: NodeCall) -> Pair:
    """Values clipped to two limits."""
    options = call.options
    limits = [options.get("min", -np.inf), options.get("max", np.inf)]
    for i in (1, 2):
        if call.has(i):
            limits[i - 1] = float(call.fixed(i).item())
    if np.isnan(limits).any():
        raise Uncertified("a limit is not a number")
    return clipped(*limits)(call.pair())


def limit_rule(call: NodeCall) -> Pair:
    """The larger or smaller of a value and single numbers."""
    others = [i for i in range(len(call.inputs)) if not call.is_fixed(i)]
    if len(others) != 1:
        raise Uncertified("it compares several values" if others else "it compares constants only")
    limits = [call.fixed(i) for i in range(len(call.inputs)) if i not in others]
    if any(limit.size != 1 or np.isnan(limit).any() for limit in limits):
        raise Uncertified("a limit is not a single number")
    x, ends = call.pair(others[0]), [float(limit.item()) for limit in limits]
    rank = max((limit.ndim for limit in limits), default=0)
    x = x.mapped(lambda a: a.reshape((1,) * (rank - a.ndim) + a.shape))
    largest = op(call.node) == "Max"
    return clipped(*(max(ends), np.inf) if largest else (-np.inf, min(ends)))(x)


def curve_rule(make: Callable[[dict[str, Any]], Curve]) -> Rule:
    """A rule for an activation with attributes."""
    return lambda call: make(call.options)(call.pair())


def named_rule(name: str, **defaults: float) -> Rule:
    """A rule for an activation of the table whose constants are attributes with these defaults."""

    def curve(options: dict[str, Any]) -> Curve:
        constants = {key: options.get(key, stored_default(a)) for key, a in defaults.items()}
        return activation_named(name, **constants).curve_of()

    return curve_rule(curve)


def gelu_rule(call: NodeCall) -> Pair:
    """Gelu, or its approximation, of a sum with the bias if there is one."""
    tanh = op(call.node).endswith("FastGelu") or call.options.get("approximate") == b"tanh"
    x = call.pair(0) + call.pair(1) if call.has(1) else call.pair()
    return (TANH_GELU if tanh else GELU).curve_of()(x)


def swish_rule(call: NodeCall) -> Pair:
    """x·logistic(αx)."""
    default = DEFAULTS.get((op(call.node), "alpha"), 1.0)
    return silu(call.options.get("alpha", default)).curve_of()(call.pair())


def prelu_rule(call: NodeCall) -> Pair:
    """x, below 0 times a constant slope."""
    slope = call.fixed(1)
    x = call.pair()
    np.broadcast_to(slope, x.shape)
    return PRELU.curve_of(slope)(x)


def layer_normalization_rule(call: NodeCall) -> Pair:
    """(x − mean)·scale/√(var + ε) + bias, with constants.

    No slope of c/√(‖c‖²/n + ε) exceeds 1/√(var + ε) in Euclidean norm, and var = ‖c‖²/n is at
    least (‖c at the middle‖ − ‖radii‖)²/n.
    """
    x, options = call.pair(), call.options
    axes = tuple(range(options.get("axis", -1) % len(x.shape), len(x.shape)))
    count = math.prod(x.shape[axis] for axis in axes)
    more = 1 + gamma(8 * (count + 8))

    def length(a: FloatArray) -> FloatArray:
        return np.asarray(np.sqrt(np.sum(a**2, axis=axes, keepdims=True)) * more)

    hull = x.value.join(x.other)
    mid = hull.mid
    centred = mid - mid.mean(axis=axes, keepdims=True)
    nearest = length(centred) / more**2 - length(hull.rad) - gamma(count + 8) * length(mid)
    least = np.sqrt(
        np.maximum(nearest, 0.0) ** 2 / count + options.get("epsilon", stored_default(1e-5))
    )
    most = np.sqrt(count) * more
    reach = np.minimum(length(x.change.size) / least * more, 2 * most) * np.ones(x.shape)
    found = Pair(
        Interval(np.full(x.shape, -most), np.full(x.shape, most)),
        Interval(-reach, reach),
        length(x.size) / least * more + most * np.ones(x.shape),
    )
    scale = call.fixed(1)
    shape = np.broadcast_shapes(x.shape, scale.shape)
    found = found.mapped(lambda a: np.broadcast_to(a, shape)) * Pair.same(Interval.point(scale))
    return found + Pair.same(Interval.point(call.fixed(2))) if call.has(2) else found
