"""The rule of every operator that a certificate follows."""

from __future__ import annotations

import re
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest

from onnxfde.graph.model import Graph
from onnxfde.graph.protos import ModelProto
from onnxfde.neurons.intervals import Interval, Pair
from onnxfde.proof import rules
from onnxfde.proof.certificate import certify
from onnxfde.proof.node_call import NodeCall
from onnxfde.proof.operators import apply_operator
from onnxfde.running.runtime import load
from tests.models import build
from tests.proof.certificates import (
    ROUNDING,
    Array,
    bound,
    built,
    certificate,
    floats,
    integers,
    largest_change,
    perturbed,
    samples,
    weights,
)

OPERATORS = {
    "Gemm": "y = Gemm <alpha = 0.5, beta = 2.0> (h, M, c)",
    "Gemm with a value as C": "t = MatMul(h, M) y = Gemm <beta = 0.5> (h, M, t)",
    "Gemm transposed": "y = Gemm <transA = 1> (h, R)",
    "MatMul": "y = MatMul(h, M)",
    "MatMul of a stack": "y = MatMul(S, h)",
    "MatMul behind factors of another shape": "t = Add(h, T) y = MatMul(t, M)",
    "Flatten between": "t = Unsqueeze(h, zero64) u = MatMul(t, M) y = Flatten <axis = 2> (u)",
    "MatMul from the left": "y = MatMul(L, h)",
    "Mul of values": "t = Sigmoid(h) y = Mul(h, t)",
    "square": "y = Mul(h, h)",
    "Pow": "y = Pow(h, two)",
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
    "Abs": "y = Abs(h)",
    "Softplus": "y = Softplus(h)",
    "Erf": "y = Erf(h)",
    "Softmax": "y = Softmax(h)",
}
CONSTANTS: dict[str, Array] = {
    **weights(5, M=(8, 3), c=(8,), L=(4, 1), K=(3, 2, 2, 2), k=(2,), R=(1, 3), S=(2, 4, 1)),
    **weights(7, T=(4, 8)),
    "zero": np.asarray(0, np.float32),
    "zero64": integers(0),
    "true": np.asarray(True),
    "var": floats(0.5, 2.0),
    "two": np.asarray(2, np.float32),
    "one": np.asarray(1, np.float32),
    "minus": np.asarray(-0.5, np.float32),
    "five": integers(5),
    "shape": integers(1, 2, 4),
    "image": integers(1, 2, 2, 2),
    "axes": integers(1),
    "parts": integers(3, 5),
    "pads": integers(0, 1, 0, 2),
}


def with_tail(tail: str) -> ModelProto:
    """A layer of which W may change, and an operator behind it."""
    used = {k: v for k, v in CONSTANTS.items() if re.search(rf"\b{k}\b", tail)}
    if "Gemm" in tail:
        used["c"] = CONSTANTS["c"][:3]
    if "K, k)" in tail:
        used["k"] = floats(1, -2, 0.5)
    own = weights(6, W=(3, 6), V=(6, 8))
    return built(
        f"g = MatMul(x, W) s = Mul(g, g) h = MatMul(s, V) {tail}",
        {"W": own["W"], "V": own["V"] / 8, **used},
        inputs="float[1,3] x",
        outputs="float y",
    )


@pytest.mark.parametrize("tail", OPERATORS.values(), ids=OPERATORS.keys())
def test_every_supported_operator_is_certified_and_not_exceeded(tail: str) -> None:
    model = with_tail(tail)
    other = perturbed(model, ("W", "V"))
    assert bound(model, model) == 0.0
    most, size = largest_change(model, other, samples((1, 3), 60))
    assert 0 < most <= bound(model, other) + ROUNDING * size
    assert bound(model, other) <= 60 * most


@pytest.mark.parametrize(
    ("tail", "reason"),
    [
        ("[n] y = Exp(h)", "node n (Exp)"),
        ("t = Transpose(h) [n] y = MatMul(h, t)", "node n (MatMul): neither of its inputs"),
        ("[n] y = Pow(h, one)", "node n (Pow): its exponent is not 2"),
        ("t = Relu(h) [n] y = Div(t, h)", "node n (Div): its input 2 is not a constant"),
        ("[n] y = Div(h, zero)", "node n (Div): it divides by 0"),
        ("[n] y = Pad(h, pads, one)", "node n (Pad): it pads with a number other than 0"),
        ("[n] y = Dropout(h, minus, true)", "node n (Dropout): it is in training mode"),
        ("[n] y = Relu(axes)", "node n (Relu): it reads integers"),
        ("[n] y = Relu(nowhere)", "'nowhere' is neither a constant nor computed"),
        (
            "t = Reshape(h, image) "
            "[n] y, m, v = BatchNormalization <training_mode = 1> (t, k, k, k, var)",
            "node n (BatchNormalization): it is in training mode",
        ),
        (
            "t = Reshape(h, image) [n] u, i = MaxPool <kernel_shape = [2, 2]> (t) "
            "y = Cast <to = 1> (i)",
            "node n (MaxPool): no rule for its output 2",
        ),
        ("t = Cast <to = 7> (h) y = Cast <to = 1> (t)", "(Cast): it makes integers"),
    ],
)
def test_what_cannot_be_certified_is_named(tail: str, reason: str) -> None:
    found = certificate(with_tail(tail), with_tail(tail))
    assert found.unavailable is not None
    assert found.unavailable.startswith("not certified: ")
    assert reason in found.unavailable
    assert found.outputs == ()
    assert found.rounding is None


def test_a_convolution_too_large_for_memory_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "MOST_UNFOLDED", 1)
    found = certificate(with_tail(OPERATORS["Conv"]), with_tail(OPERATORS["Conv"]))
    assert found.unavailable == "not certified: node y (Conv): it is too large"


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


def test_a_split_into_more_parts_is_another_operator() -> None:
    old, new = (
        built(f"h = MatMul(x, W) {outputs} = Split <axis = 1> (h)", weights(0, W=(3, 6)), **SPLIT)
        for outputs in ("y, a", "y, a, b")
    )
    found = certificate(old, new).unavailable
    assert found == "not certified: node y (Split): 'y' has a different shape in the result"


SPLIT = {"outputs": "float[] y"}
WRONG = {
    "a bias of another length": ("y = Gemm(x, W, b)", {"b": floats(1, 2, 3, 4)}),
    "a matrix of another length": ("y = MatMul(x, U)", weights(0, U=(4, 2))),
    "limits of another length": ("y = Clip(x, b)", {"b": floats(1, 2)}),
    "a training mode of another length": (
        "t = Dropout(x, h, m) y = Relu(t)",
        {"h": np.asarray(0.5, np.float32), "m": np.asarray([False, False])},
    ),
    "a mean for each element": (
        "y = BatchNormalization <spatial = 0> (x, b, b, b, b)",
        {"b": floats(1, 2, 3)},
    ),
    "no elements": ("t = Slice(x, i, i, i) y = Softmax(t)", {"i": integers(1)}),
    "too few inputs": ("y = Mul(x)", {}),
}


@pytest.mark.parametrize(("body", "constants"), WRONG.values(), ids=WRONG.keys())
def test_nodes_that_do_not_fit_are_named(body: str, constants: dict[str, Array]) -> None:
    model = built(body, {**weights(0, W=(3, 2)), **constants})
    found = certificate(model, perturbed(model)).unavailable
    assert found is not None
    assert found.startswith("not certified: node ")


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
    "Softmax": ("Softmax <axis = 1> (x)", 11, (1, 2, 3)),
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
    if "Softmax" not in call:
        np.testing.assert_allclose(found.value.mid, expected, rtol=1e-5)
