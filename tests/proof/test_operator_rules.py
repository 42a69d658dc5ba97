"""The rule of every operator that a certificate follows."""

from __future__ import annotations

import re
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest

from onnxfde.graph.model import Graph
from onnxfde.graph.nodes import op
from onnxfde.neurons.intervals import Interval, Pair
from onnxfde.proof.certificate import certify
from onnxfde.proof.node_call import NodeCall
from onnxfde.proof.operator_table import OPERATORS, apply_operator
from onnxfde.running.runtime import load
from tests.models import build
from tests.proof.certificates import (
    ROUNDING,
    bound,
    built,
    floats,
    largest_change,
    perturbed,
    samples,
    weights,
    with_tail,
)

TAILS = {
    "Gemm": "y = Gemm <alpha = 0.5, beta = 2.0> (h, M, c)",
    "Gemm with a value as C": "t = MatMul(h, M) y = Gemm <beta = 0.5> (h, M, t)",
    "Gemm transposed": "y = Gemm <transA = 1> (h, R)",
    "MatMul": "y = MatMul(h, M)",
    "MatMul of values": "t = Relu(h) u = Transpose(t) v = MatMul(h, u) y = MatMul(v, h)",
    "MatMul of a stack": "y = MatMul(S, h)",
    "MatMul after terms of another shape": "t = Add(h, T) y = MatMul(t, M)",
    "Flatten between": "t = Unsqueeze(h, zero64) u = MatMul(t, M) y = Flatten <axis = 2> (u)",
    "MatMul from the left": "y = MatMul(L, h)",
    "Mul of values": "t = Sigmoid(h) y = Mul(h, t)",
    "square": "y = Mul(h, h)",
    "Pow": "y = Pow(h, two)",
    "Pow to an odd power": "y = Pow(h, three)",
    "Add": "t = Relu(h) y = Add(h, t)",
    "Add constant": "y = Add(h, c)",
    "Sub": "t = Relu(h) y = Sub(t, h)",
    "Mul constant": "y = Mul(c, h)",
    "Div": "y = Div(h, c)",
    "Neg": "y = Neg(h)",
    "Sum": "t = Abs(h) y = Sum(h, t, c)",
    "Concat": "t = Relu(h) y = Concat <axis = 1> (h, t)",
    "Identity": "t = Identity(h) y = Relu(t)",
    "Dropout": "t = Dropout(h) y = Relu(t)",
    "Cast": "t = Cast <to = 11> (h) u = Relu(t) y = Cast <to = 1> (u)",
    "Flatten": "t = Reshape(h, shape) y = Flatten(t)",
    "Reshape by Shape": "t = Shape(h) u = Reshape(h, shape) y = Reshape(u, t)",
    "Squeeze": "t = Unsqueeze(h, axes) y = Squeeze(t, axes)",
    "Transpose": "y = Transpose(h)",
    "Slice": "y = Slice(h, axes, five, axes)",
    "Split": "t, u = Split <axis = 1> (h, parts) v = Relu(u) y = Concat <axis = 1> (v, t)",
    "Gather": "y = Gather <axis = 1> (h, axes)",
    "Pad": "y = Pad(h, pads)",
    "Conv": "t = Reshape(h, image) y = Conv <pads = [1, 1, 1, 1]> (t, K, k)",
    "Conv without bias": "t = Reshape(h, image) y = Conv <strides = [2, 1]> (t, K)",
    "AveragePool": "t = Reshape(h, image) y = AveragePool <kernel_shape = [2, 2]> (t)",
    "GlobalAveragePool": "t = Reshape(h, image) y = GlobalAveragePool(t)",
    "MaxPool": "t = Reshape(h, image) y = MaxPool <kernel_shape = [2, 1], pads = [1, 0, 0, 0]> (t)",
    "Resize": "t = Reshape(h, image) y = Resize(t, , scales)",
    "Resize to lengths": 't = Reshape(h, image) y = Resize <mode = "linear"> (t, , , sizes)',
    "GlobalMaxPool": "t = Reshape(h, image) y = GlobalMaxPool(t)",
    "BatchNormalization": "t = Reshape(h, image) y = BatchNormalization(t, k, k, k, var)",
    "ReduceMean": "y = ReduceMean <axes = [1], keepdims = 0> (h)",
    "ReduceSum": "y = ReduceSum(h, axes)",
    "Relu": "y = Relu(h)",
    "LeakyRelu": "y = LeakyRelu <alpha = 0.3> (h)",
    "Sigmoid": "y = Sigmoid(h)",
    "Tanh": "y = Tanh(h)",
    "Elu": "y = Elu <alpha = 1.5> (h)",
    "HardSigmoid": "y = HardSigmoid(h)",
    "Clip": "y = Clip(h, minus, one)",
    "Max": "y = Max(h, minus)",
    "Min": "y = Min(one, h, minus)",
    "Abs": "y = Abs(h)",
    "Softplus": "y = Softplus(h)",
    "Erf": "y = Erf(h)",
    "Softmax": "y = Softmax(h)",
    "PRelu": "y = PRelu(h, c)",
    "ThresholdedRelu": "y = ThresholdedRelu <alpha = 0.05> (h)",
    "HardSwish": "y = HardSwish(h)",
    "Softsign": "y = Softsign(h)",
    "Selu": "y = Selu(h)",
    "Celu": "y = Celu <alpha = 0.5> (h)",
    "Sin": "y = Sin(h)",
    "LayerNormalization": "y = LayerNormalization <epsilon = 0.1> (h, c, c)",
    "Expand": "y = Expand(h, larger)",
    "Tile": "y = Tile(h, parts)",
    "ConstantOfShape": "s1 = Shape(h) z = ConstantOfShape(s1) t = Cast <to = 1> (z) y = Add(h, t)",
    "Range": "i = Range(int2, int6, int2) y = Gather <axis = 1> (h, i)",
}

NEW_TAILS = {
    "Mish": ("y = Mish(h)", 18),
    "Gelu": ("y = Gelu(h)", 20),
    "Gelu by tanh": ('y = Gelu <approximate = "tanh"> (h)', 20),
    "Swish": ("y = Swish <alpha = 1.5> (h)", 24),
}
"""Operators of later opsets."""
EQUIVALENT = {
    "com.microsoft.Gelu(x)": "Gelu(x)",
    "com.microsoft.FastGelu(x)": 'Gelu <approximate = "tanh"> (x)',
    "com.microsoft.BiasGelu(x, zero)": "Gelu(x)",
    "com.microsoft.QuickGelu <alpha = 0.5> (x)": "Swish <alpha = 0.5> (x)",
    "com.microsoft.QuickGelu(x)": "Swish <alpha = 1.702> (x)",
}
"""Operators of onnxruntime, and operators of ONNX that do the same."""
ALL_TAILS = {**{name: (tail, 17) for name, tail in TAILS.items()}, **NEW_TAILS}


def test_every_operator_of_the_table_is_tested() -> None:
    texts = (*(tail for tail, _ in ALL_TAILS.values()), *(f"= {call}" for call in EQUIVALENT))
    tested = {name for text in texts for name in re.findall(r"= ([\w.]+)", text)}
    assert OPERATORS.keys() <= tested


@pytest.mark.parametrize(("call", "same"), EQUIVALENT.items())
def test_operators_of_onnxruntime_do_what_those_of_onnx_do(call: str, same: str) -> None:
    x = Interval(np.linspace(-3, 2, 20), np.linspace(-2.5, 4, 20))
    pair = Pair(x, Interval(np.full(20, -0.1), np.full(20, 0.2)), x.size)
    zero = Pair.same(Interval.point(np.zeros(1)))
    found = []
    for text in (call, same):
        node = build(f"y = {text}", opset=24).graph.node[0]
        read = (pair, zero)[: len(node.input)]
        made = apply_operator(NodeCall(node, read, 24), op(node))
        assert isinstance(made, Pair)
        found.append((made.value.low, made.value.high, made.change.low, made.change.high))
    np.testing.assert_allclose(found[0], found[1], rtol=1e-12, atol=0)


@pytest.mark.parametrize(("tail", "opset"), ALL_TAILS.values(), ids=ALL_TAILS.keys())
def test_every_supported_operator_is_certified_and_not_exceeded(tail: str, opset: int) -> None:
    model = with_tail(tail, opset)
    other = perturbed(model, ("W", "V"))
    assert bound(model, model) == 0.0
    most, size = largest_change(model, other, samples((1, 3), 30))
    certified = bound(model, other)
    assert 0 < most <= certified + ROUNDING * size
    assert certified <= 60 * most


def test_a_changed_operator_is_compared_by_the_ranges_of_both_sides() -> None:
    old = built("h = MatMul(x, W) y = Tanh(h)", weights(0, W=(3, 2)))
    new = built("h = MatMul(x, W) y = Sigmoid(h)", weights(0, W=(3, 2)))
    most, _ = largest_change(old, new, samples((50, 3), 2))
    assert most <= bound(old, new) <= 2.0


def test_a_maximum_may_fall_as_far_as_any_of_its_elements() -> None:
    body = "h = Mul(x, f) y = MaxPool <kernel_shape = [1, 2]> (h)"
    old, new = (
        built(body, {"f": floats(first, 1)}, inputs="float[1,1,1,2] x") for first in (1, 0.5)
    )
    found = certify(Graph(old), Graph(new), {"x": (1.0, 2.0)})
    assert 1 <= found.outputs[0].bound <= 1 + ROUNDING


def test_changed_weights_of_a_convolution_are_followed() -> None:
    body = "h = Conv(x, W, k) r = Relu(h) y = Flatten(r)"
    model = built(body, weights(0, W=(2, 1, 2, 2), k=(2,)), inputs="float[1,1,3,3] x")
    other = perturbed(model, ("W", "k"))
    most, _ = largest_change(model, other, samples((1, 1, 3, 3), 50))
    assert most <= bound(model, other) <= 4 * most


def test_an_exponent_with_more_axes_than_its_base_adds_them() -> None:
    """Whether the square stands alone or inside a layer."""
    three = np.full((1, 1, 1), 2, np.float32)
    for body in (
        "g = MatMul(x, W) s = Mul(g, g) h = MatMul(s, V) t = Pow(h, e) "
        "y = ReduceMean <axes = [1], keepdims = 0> (t)",
        "g = MatMul(x, W) s = Pow(g, e) h = MatMul(s, V) "
        "y = ReduceMean <axes = [1], keepdims = 0> (h)",
    ):
        constants = {"e": three, **weights(0, W=(3, 6), V=(6, 8))}
        model = built(body, constants, inputs="float[1,3] x", outputs="float y")
        other = perturbed(model, ("W", "V"))
        most, _ = largest_change(model, other, samples((1, 3), 100))
        assert most <= bound(model, other) <= 5 * most


def test_a_hard_sigmoid_is_certified_to_the_last_digit() -> None:
    """In rational arithmetic: alpha·x + beta cancels, and alpha changes in its last digit."""
    for seed in range(100):
        rng = np.random.default_rng(seed)
        alpha = floats(rng.choice([0.2, 7.7, 1e3, 1e5]))[0]
        beta = np.float32(-alpha * rng.uniform(0.5, 1))
        x = float(-beta / alpha + rng.uniform(0, 0.9) / alpha)
        slopes = float(alpha), float(np.nextafter(alpha, floats(np.inf)[0]))
        models = [
            build(
                f"y = HardSigmoid <alpha = {slope!r}, beta = {float(beta)!r}> (x)",
                inputs="double[1,1] x",
                outputs="double[1,1] y",
            )
            for slope in slopes
        ]
        stored = [
            {a.name: Fraction(a.f) for a in model.graph.node[0].attribute} for model in models
        ]
        exact = [
            min(max(s["alpha"] * Fraction(x) + s["beta"], Fraction(0)), Fraction(1)) for s in stored
        ]
        found = certify(Graph(models[0]), Graph(models[1]), {"x": (x, x)})
        assert abs(exact[1] - exact[0]) <= Fraction(found.outputs[0].bound)


@pytest.mark.parametrize("limits", ["zero, inf", ", inf", "minus, one", "less, inf"])
def test_infinite_limits_are_certified(limits: str) -> None:
    constants = {"zero": 0.0, "inf": np.inf, "minus": -0.5, "one": 1.0, "less": -np.inf}
    used = {k: np.asarray(v, np.float32) for k, v in constants.items() if k in limits}
    model = built(f"h = MatMul(x, W) y = Clip(h, {limits})", {**weights(1, W=(3, 2)), **used})
    other = perturbed(model)
    most, _ = largest_change(model, other, [np.concatenate(samples((200, 3), 1))])
    assert 0 < most <= bound(model, other) <= 3 * most


def test_unsqueeze_of_old_opsets_is_certified() -> None:
    found = weights(0, W=(3, 2))
    plain = built("y = MatMul(x, W)", found)
    body = "h = MatMul(x, W) u = Unsqueeze <axes = [-1, 1]> (h) y = ReduceMean <axes = [1, 3]> (u)"
    model = build(body, outputs="float[] y", opset=11, W=found["W"])
    most, _ = largest_change(plain, perturbed(plain), [np.concatenate(samples((200, 3), 1))])
    assert most <= bound(model, perturbed(model)) <= 2 * most


def test_a_long_row_of_casts_is_followed() -> None:
    names = [f"W{i}" for i in range(3000)]
    casts = " ".join(f"{b} = Cast <to = 1> ({a})" for a, b in pairwise(["W", *names]))
    model = built(f"{casts} y = MatMul(x, {names[-1]})", weights(0, W=(3, 2)))
    assert bound(model, model) == 0.0


OLD_FORMS = {
    "Squeeze": ("Squeeze <axes = [0]> (x)", 7, (1, 1, 2, 3)),
    "Squeeze of two": ("Squeeze <axes = [0, 2]> (x)", 11, (1, 2, 1, 3)),
    "Unsqueeze": ("Unsqueeze <axes = [2, 0]> (x)", 7, (2, 3)),
    "Slice": ("Slice <starts = [0, -2], ends = [9, -1], axes = [1, 2]> (x)", 9, (1, 2, 3)),
    "Pad": ("Pad <pads = [0, 1, 2, 0]> (x)", 7, (2, 3)),
    "ReduceSum": ("ReduceSum <axes = [1, -1], keepdims = 0> (x)", 11, (2, 3, 2)),
    "ReduceMean": ("ReduceMean <axes = [1]> (x)", 7, (2, 3, 2)),
    "Clip": ("Clip <min = -0.5, max = 0.3> (x)", 7, (2, 3)),
    "Split": ("Split <axis = 1, split = [1, 2]> (x)", 11, (2, 3)),
}


@pytest.mark.parametrize(("call", "opset", "shape"), OLD_FORMS.values(), ids=OLD_FORMS.keys())
def test_forms_of_old_opsets_are_those_of_onnxruntime(
    call: str, opset: int, shape: tuple[int, ...]
) -> None:
    names = "y, z" if "Split" in call else "y"
    kind = f"float[{','.join(map(str, shape))}] x"
    model = build(f"{names} = {call}", kind, "float[] y", opset, 6)
    x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    expected = load(model, None).run({"x": x})[0]
    pair = Pair.same(Interval.point(x.astype(np.float64)))
    node = model.graph.node[0]
    found = apply_operator(NodeCall(node, (pair,), opset), node.op_type)
    assert isinstance(found, Pair)
    assert found.shape == expected.shape
    np.testing.assert_allclose(found.value.mid, expected, rtol=1e-5, atol=0)


def test_a_softmax_of_old_opsets_normalises_over_its_axis_and_all_that_follow() -> None:
    """One element changes: in old opsets, so do all of its sample, and now all of its column."""
    model = build("y = Softmax <axis = 1> (x)", "float[2,2,2] x", "float[2,2,2] y", 11, 6)
    change = Interval(np.zeros((2, 2, 2)), np.zeros((2, 2, 2)))
    change.high[0, 0, 0] = 0.5
    pair = Pair(Interval.point(np.zeros((2, 2, 2))), change, np.zeros((2, 2, 2)))
    old, new = (
        apply_operator(NodeCall(model.graph.node[0], (pair,), opset), "Softmax")
        for opset in (11, 13)
    )
    assert isinstance(old, Pair)
    assert isinstance(new, Pair)
    np.testing.assert_array_equal(old.change.high > 0, [[[True] * 2] * 2, [[False] * 2] * 2])
    np.testing.assert_array_equal(new.change.high > 0, [[[True, False]] * 2, [[False] * 2] * 2])
