"""How each operator of a graph carries a value and its change: op → rule.

Selecting and moving rounds nothing, sums of products and pools are `linear`, activations are
`curves`. A rule may raise `Uncertified` with the reason why there is no bound. Shapes and indices
are plain integer arrays: they are the same in every run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np
import numpy.typing as npt

from onnxfde.errors import RuntimeUnavailable
from onnxfde.graph.nodes import attributes, op
from onnxfde.graph.protos import NodeProto
from onnxfde.graph.reference import evaluate
from onnxfde.graph.tensors import FLOATS
from onnxfde.neurons.curves import (
    ABS,
    ERF,
    RELU,
    SIGMOID,
    SOFTPLUS,
    TANH,
    Curve,
    broken,
    clipped,
    elu,
    softmax,
)
from onnxfde.neurons.intervals import Interval, Linear, Pair, Uncertified, down, gamma, up
from onnxfde.numbers import FloatArray
from onnxfde.proof.affine_bounds import FINAL
from onnxfde.proof.pooling import average_pool, max_pool

Known = npt.NDArray[Any]
Value = Pair | Known
MOST_UNFOLDED = 25_000_000


@dataclass(frozen=True, eq=False)
class Site:
    """A node, what it reads, and which of its outputs is asked for."""

    node: NodeProto
    inputs: tuple[Value | None, ...]
    opset: int
    output: int = 0

    @property
    def options(self) -> dict[str, Any]:
        """The node's attributes."""
        return attributes(self.node)

    def has(self, i: int) -> bool:
        """Whether an input is given."""
        return i < len(self.inputs) and self.inputs[i] is not None

    def pair(self, i: int = 0) -> Pair:
        """A floating-point input."""
        found = self.inputs[i] if self.has(i) else None
        if not isinstance(found, Pair):
            raise Uncertified("it reads integers")
        return found

    def fixed(self, i: int) -> FloatArray:
        """A floating-point input that is constant and the same on both sides."""
        found = self.pair(i)
        if not (found.value.is_point and found.change.is_zero):
            raise Uncertified(f"its input {i + 1} is not a constant")
        return found.value.low

    def weight(self, i: int) -> Pair:
        """A floating-point input that is constant, though maybe another constant on each side."""
        found = self.pair(i)
        if not found.value.is_point:
            raise Uncertified(f"its input {i + 1} is not a constant")
        return found

    def run(self, *arrays: FloatArray | None) -> FloatArray:
        """The node itself on arrays in place of its first inputs."""
        rest = [a.value.low if isinstance(a, Pair) else a for a in self.inputs[len(arrays) :]]
        return np.asarray(self.evaluated([*arrays, *rest]), dtype=np.float64)

    def evaluated(self, arrays: Sequence[Known | None]) -> Known:
        """The node on arrays."""
        first = arrays[0] if arrays else None
        if first is not None and op(self.node) == "Unsqueeze" and "axes" in self.options:
            return np.expand_dims(first, tuple(self.options["axes"]))
        if first is not None and op(self.node) == "Slice" and len(arrays) > 4:
            check_slice(first, arrays[2], arrays[4])
        try:
            return evaluate(self.node, arrays, self.opset)[self.output]
        except RuntimeUnavailable as reason:
            raise Uncertified(str(reason)) from None


def check_slice(a: Known, ends: Known | None, steps: Known | None) -> None:
    """Refuse steps back to an end that is not an element, where runtimes differ."""
    if ends is None or steps is None:
        return
    if np.any((steps < 0) & (ends >= max(a.shape, default=0))):
        raise Uncertified("it steps back from one end to the same end")


Rule = Callable[[Site], Value]


def identity(site: Site) -> Pair:
    """The value itself."""
    return site.pair()


def cast(site: Site) -> Pair:
    """Exact arithmetic knows no precision, but it does know integers."""
    if site.options["to"] not in FLOATS:
        raise Uncertified("it makes integers")
    return site.pair()


def dropout(site: Site) -> Pair:
    """Nothing at inference."""
    trains = site.inputs[2] if site.has(2) else False
    if np.any(trains if not isinstance(trains, Pair) else trains.value.low):
        raise Uncertified("it is in training mode")
    return site.pair()


def move(site: Site) -> Pair:
    """Selects and arranges elements."""
    return site.pair().mapped(site.run)


def pad(site: Site) -> Pair:
    """Pads, with zeros if with a constant."""
    value = site.fixed(2) if site.has(2) else site.options.get("value", 0.0)
    if np.any(value):
        raise Uncertified("it pads with another number than 0")
    return move(site)


def concat(site: Site) -> Pair:
    """Values one behind the other."""
    pairs = [site.pair(i) for i in range(len(site.inputs))]

    def joined(of: Callable[[Pair], FloatArray]) -> FloatArray:
        return site.run(*(of(p) for p in pairs))

    value = Interval(joined(lambda p: p.value.low), joined(lambda p: p.value.high))
    change = Interval(joined(lambda p: p.change.low), joined(lambda p: p.change.high))
    return Pair(value, change, joined(lambda p: p.size))


def add(site: Site) -> Pair:
    """Sums of any number of values."""
    return reduce(Pair.__add__, (site.pair(i) for i in range(len(site.inputs))))


def subtract(site: Site) -> Pair:
    """A difference of two values."""
    return site.pair(0) + -site.pair(1)


def multiply(site: Site) -> Pair:
    """A square or a product."""
    same = site.inputs[0] is site.inputs[1]
    return site.pair().squared() if same else site.pair(0) * site.pair(1)


def divide(site: Site) -> Pair:
    """A value divided by a constant."""
    by = site.fixed(1)
    if not np.all(by):
        raise Uncertified("it divides by 0")
    return site.pair() * Pair.same(Interval(down(1 / by), up(1 / by)))


def power(site: Site) -> Pair:
    """A square."""
    exponent = site.inputs[1]
    known = site.fixed(1) if isinstance(exponent, Pair) else np.asarray(exponent)
    if not np.all(known == 2):
        raise Uncertified("its exponent is not 2")
    x = site.pair()
    shape = np.broadcast_shapes(x.shape, known.shape)
    return x.squared().mapped(lambda a: np.broadcast_to(a, shape))


def weighted(
    x: Pair, weight: Pair, run: Callable[[FloatArray, FloatArray], FloatArray], steps: int
) -> Pair:
    """Sums of products with weights: W′x′ − Wx = Wδ + (W′ − W)x′."""
    w, gap = weight.value.low, weight.change
    found = x.linear(lambda a: run(a, w), lambda a: run(a, np.abs(w)), steps)
    if gap.is_zero:
        return found
    mid, rad, other = gap.mid, gap.rad, x.other
    extra = other.linear(lambda a: run(a, mid), lambda a: run(a, np.abs(mid)), steps)
    extra = extra.widened(run(other.size, rad) * FINAL)
    return replace(found, change=found.change + extra)


def product(left: Pair, right: Pair) -> Pair:
    """A matrix product with one constant factor."""
    steps = left.shape[-1]
    if right.value.is_point:
        return weighted(left, right, np.matmul, steps)
    if left.value.is_point:
        return weighted(right, left, lambda a, w: np.matmul(w, a), steps)
    raise Uncertified("neither of its inputs is a constant")


def gemm(site: Site) -> Pair:
    """alpha·A·B + beta·C."""
    options = site.options
    left, right = (
        site.pair(i).mapped(np.transpose) if options.get(f"trans{name}", 0) else site.pair(i)
        for i, name in enumerate("AB")
    )
    found = product(left, right) * number(options.get("alpha", 1.0))
    return found + site.pair(2) * number(options.get("beta", 1.0)) if site.has(2) else found


def number(value: float) -> Pair:
    """A number that is the same on both sides."""
    return Pair.same(Interval.point(np.asarray(value)))


def conv(site: Site) -> Pair:
    """A convolution with constant weights."""
    x, weight = site.pair(), site.weight(1)
    steps = weight.value.low[0].size
    if int(np.prod(x.shape[2:])) * steps * site.options.get("group", 1) > MOST_UNFOLDED:
        raise Uncertified("it is too large")

    def run(a: FloatArray, w: FloatArray) -> FloatArray:
        return site.run(a, w, None) if site.has(2) else site.run(a, w)

    found = weighted(x, weight, run, steps)
    if not site.has(2):
        return found
    shape = (1, -1, *(1 for _ in found.shape[2:]))
    return found + site.weight(2).mapped(lambda b: b.reshape(shape))


def reduction(site: Site) -> Pair:
    """A mean or a sum along axes."""
    return averaged(site.pair(), site.run)


def averaged(x: Pair, run: Linear, count: int | None = None) -> Pair:
    """Means or sums of some elements each."""
    count = count or x.size.size // max(run(x.size).size, 1)
    return x.linear(run, run, count + 2)


def highest(x: Pair, run: Linear) -> Pair:
    """A maximum of some elements changes by no more than they do."""
    change = Interval(-run(-x.change.low), run(x.change.high))
    return Pair(x.value.mapped(run), change, run(x.size))


def means(site: Site) -> Pair:
    """The mean of each window."""
    options = site.options
    count = int(np.prod(options["kernel_shape"]))
    return averaged(site.pair(), lambda a: average_pool(a, options), count)


def maxima(site: Site) -> Pair:
    """The maximum of each window."""
    options = site.options
    return highest(site.pair(), lambda a: max_pool(a, options))


def spatial(a: FloatArray) -> tuple[int, ...]:
    """The axes behind samples and channels."""
    return tuple(range(2, a.ndim))


def batch_normalization(site: Site) -> Pair:
    """(x − mean)·scale/√(var + ε) + b."""
    if site.options.get("training_mode", 0):
        raise Uncertified("it is in training mode")
    if not site.options.get("spatial", 1):
        raise Uncertified("it has a mean for each element (spatial = 0)")
    x = site.pair()
    shape = (1, -1, *(1 for _ in x.shape[2:]))
    scale, shift, mean, var = (site.fixed(i).reshape(shape) for i in range(1, 5))
    factor = scale / np.sqrt(var + site.options.get("epsilon", single(1e-5)))
    factors = Interval.point(factor).widened(gamma(8) * np.abs(factor))
    centred = x + Pair.same(Interval.point(-mean))
    return centred * Pair.same(factors) + Pair.same(Interval.point(shift))


def softmax_rule(site: Site) -> Pair:
    """Softmax, over one axis or, in old models, all from one on."""
    x, old = site.pair(), site.opset < 13
    axis = site.options.get("axis", 1 if old else -1) % len(x.shape)
    return softmax(x, tuple(range(axis, len(x.shape))) if old else (axis,))


def clip(site: Site) -> Pair:
    """Values held between two limits."""
    options = site.options
    limits = [options.get("min", -np.inf), options.get("max", np.inf)]
    for i in (1, 2):
        if site.has(i):
            limits[i - 1] = float(site.fixed(i).item())
    if np.isnan(limits).any():
        raise Uncertified("a limit is not a number")
    return clipped(*limits)(site.pair())


def single(default: float) -> float:
    """The default of an attribute as it is stored."""
    return float(np.float32(default))


def curve(make: Callable[[dict[str, Any]], Curve]) -> Rule:
    """A rule for an activation with attributes."""
    return lambda site: make(site.options)(site.pair())


def shape(site: Site) -> Known:
    """The shape of a value."""
    first = site.inputs[0]
    assert first is not None
    return np.asarray(first.shape, dtype=np.int64)[
        site.options.get("start", 0) : site.options.get("end")
    ]


RULES: dict[str, Rule] = {
    "Identity": identity,
    "Cast": cast,
    "Dropout": dropout,
    **dict.fromkeys(
        ("Flatten", "Reshape", "Squeeze", "Unsqueeze", "Transpose", "Slice", "Split", "Gather"),
        move,
    ),
    "Expand": move,
    "Tile": move,
    "Pad": pad,
    "Concat": concat,
    "Add": add,
    "Sum": add,
    "Sub": subtract,
    "Neg": lambda site: -site.pair(),
    "Mul": multiply,
    "Div": divide,
    "Pow": power,
    "MatMul": lambda site: product(site.pair(0), site.pair(1)),
    "Gemm": gemm,
    "Conv": conv,
    "ReduceMean": reduction,
    "ReduceSum": reduction,
    "AveragePool": means,
    "MaxPool": maxima,
    "GlobalAveragePool": lambda site: averaged(
        site.pair(), lambda a: np.mean(a, axis=spatial(a), keepdims=True)
    ),
    "GlobalMaxPool": lambda site: highest(
        site.pair(), lambda a: np.max(a, axis=spatial(a), keepdims=True)
    ),
    "BatchNormalization": batch_normalization,
    "Softmax": softmax_rule,
    "Clip": clip,
    "Relu": lambda site: RELU(site.pair()),
    "Abs": lambda site: ABS(site.pair()),
    "Sigmoid": lambda site: SIGMOID(site.pair()),
    "Tanh": lambda site: TANH(site.pair()),
    "Erf": lambda site: ERF(site.pair()),
    "Softplus": lambda site: SOFTPLUS(site.pair()),
    "LeakyRelu": curve(lambda options: broken(options.get("alpha", single(0.01)), 1.0)),
    "Elu": curve(lambda options: elu(options.get("alpha", 1.0))),
    "HardSigmoid": curve(
        lambda options: clipped(
            0.0, 1.0, options.get("alpha", single(0.2)), options.get("beta", 0.5)
        )
    ),
    "Shape": shape,
}


INTEGER_OPS = {
    "Add", "Cast", "Concat", "ConstantOfShape", "Div", "Gather", "Identity", "Mul", "Range",
    "Reshape", "Slice", "Squeeze", "Sub", "Transpose", "Unsqueeze",
}  # fmt: skip


def apply(site: Site, name: str) -> Value:
    """A node applied to what it reads."""
    known = [a for a in site.inputs if not isinstance(a, Pair)]
    if name in INTEGER_OPS and len(known) == len(site.inputs):
        return as_value(site.evaluated(known))
    if name not in RULES:
        raise Uncertified("no rule for it")
    if site.output and name != "Split":
        raise Uncertified(f"no rule for its output {site.output + 1}")
    return RULES[name](site)


def as_value(a: Known) -> Value:
    """A constant: floating-point numbers as a pair, others as they are."""
    if a.dtype.kind in "iubSUO":
        return a
    return Pair.same(Interval.point(a.astype(np.float64)))
