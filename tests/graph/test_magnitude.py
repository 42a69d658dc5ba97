"""A(x), the network on absolute values: the rounding of every operator stays within a few u·A."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import onnxfde
from onnxfde.graph.magnitude import MAGNITUDES, magnitude_model
from onnxfde.graph.model import Graph
from onnxfde.graph.nodes import op
from onnxfde.graph.protos import ModelProto
from onnxfde.neurons.activation_functions import gelu
from onnxfde.numbers import ROUNDING_STEPS
from onnxfde.proof.operator_table import OPERATORS
from tests.models import build, outputs_of, twins
from tests.proof.certificates import in_float64

ROUNDOFF = 2.0**-24
MOVES_ONLY = {
    "Cast", "Concat", "Constant", "Dropout", "Flatten", "GlobalMaxPool", "Identity", "MaxPool",
    "Pad", "Reshape", "Shape", "Slice", "Split", "Squeeze", "Transpose", "Unsqueeze",
}  # fmt: skip
"""Operators that select and arrange values, and round nothing."""
W = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)


def floats(values: Any) -> Any:
    return np.asarray(values, dtype=np.float32)


CASES: dict[str, tuple[str, int]] = {
    "Add": ("y = Add(x, c)", 17),
    "Sum": ("y = Sum(x, c, x)", 17),
    "Sub": ("y = Sub(x, c)", 17),
    "Mul": ("y = Mul(x, c)", 17),
    "Div": ("y = Div(x, c)", 17),
    "Pow": ("y = Pow(x, two)", 17),
    "BatchNormalization": ("y = BatchNormalization <epsilon = 0.5> (x, c, e, g, v)", 17),
    "Gemm": ("y = Gemm <alpha = -0.5, beta = 2.0> (x, W, d)", 17),
    "MatMul": ("y = MatMul(x, W)", 17),
    "Conv": ("i = Unsqueeze(x, ones) o = Conv(i, K) y = Squeeze(o, ones)", 17),
    "AveragePool": (
        "i = Unsqueeze(x, ones) o = AveragePool <kernel_shape = [2]> (i) y = Squeeze(o, ones)",
        17,
    ),
    "GlobalAveragePool": ("i = Unsqueeze(x, ones) y = GlobalAveragePool(i)", 17),
    "ReduceMean": ("y = ReduceMean <axes = [1]> (x)", 17),
    "ReduceSum": ("y = ReduceSum(x, ones)", 17),
    "Neg": ("y = Neg(x)", 17),
    "Relu": ("y = Relu(x)", 17),
    "Tanh": ("y = Tanh(x)", 17),
    "LeakyRelu": ("y = LeakyRelu <alpha = 3.0> (x)", 17),
    "Elu": ("y = Elu <alpha = 2.5> (x)", 17),
    "Selu": ("y = Selu(x)", 17),
    "Celu": ("y = Celu <alpha = 0.5> (x)", 17),
    "PRelu": ("y = PRelu(x, c)", 17),
    "Abs": ("y = Abs(x)", 17),
    "Clip": ("y = Clip(x, minus, two)", 17),
    "Max": ("y = Max(x, minus)", 17),
    "Min": ("y = Min(two, x)", 17),
    "Clip with attributes": ("y = Clip <max = 0.5> (x)", 7),
    "Sin": ("y = Sin(x)", 17),
    "Softsign": ("y = Softsign(x)", 17),
    "Softplus": ("y = Softplus(x)", 17),
    "Erf": ("y = Erf(x)", 17),
    "HardSwish": ("y = HardSwish(x)", 17),
    "Mish": ("y = Mish(x)", 18),
    "Gelu": ("y = Gelu(x)", 20),
    "Gelu by tanh": ('y = Gelu <approximate = "tanh"> (x)', 20),
    "Swish": ("y = Swish <alpha = 2.0> (x)", 24),
    "Gelu of onnxruntime": ("y = com.microsoft.Gelu(x)", 17),
    "FastGelu": ("y = com.microsoft.FastGelu(x)", 17),
    "FastGelu with a bias": ("y = com.microsoft.FastGelu(x, c)", 17),
    "BiasGelu": ("y = com.microsoft.BiasGelu(x, c)", 17),
    "QuickGelu": ("y = com.microsoft.QuickGelu <alpha = 2.0> (x)", 17),
    "Sigmoid": ("y = Sigmoid(x)", 17),
    "HardSigmoid": ("y = HardSigmoid(x)", 17),
    "Softmax": ("y = Softmax(x)", 17),
    "Softmax, axes as an input": ("y = Softmax(x)", 18),
    "Softmax of several axes": ("i = Unsqueeze <axes = [2]> (x) y = Softmax <axis = 1> (i)", 11),
}

BIAS = floats([0.3, -2.0, 0.001])
FLOAT32_ONLY: dict[str, Callable[[Any], Any]] = {
    "Gelu of onnxruntime": gelu,
    "BiasGelu": lambda x: gelu(x + BIAS),
}
"""Cases whose operator onnxruntime has in single precision alone."""


def model_of(case: str) -> ModelProto:
    body, opset = CASES[case]
    constants: dict[str, Any] = {
        "c": BIAS,
        "d": floats([1.0, -1.0, 0.5, 0.0]),
        "e": floats([-1.0, 0.01, 3.0]),
        "g": floats([20.0, -0.5, 0.0]),
        "v": floats([2.0, 0.0, 0.25]),
        "two": np.float32(2),
        "minus": np.float32(-0.1),
        "W": W,
        "K": floats([[[1.0, -3.0]]]),
        "ones": np.asarray([1], dtype=np.int64),
    }
    used = {
        name: value for name, value in constants.items() if f"{name})" in body or f"{name}," in body
    }
    model = build(body, outputs="float y", opset=opset, **used)
    model.graph.output[0].type.tensor_type.ClearField("shape")
    return model


@pytest.mark.parametrize("case", CASES)
def test_rounding_the_inputs_and_the_operator_stays_within_a_few_roundoffs_of_a(case: str) -> None:
    """x is off by u·A already, as behind other operators; then the operator rounds once more."""
    rng, model = np.random.default_rng(1), model_of(case)
    magnitude = magnitude_model(Graph(model))
    assert magnitude is not None
    exact = rng.normal(size=(200, 3)) * 10.0 ** rng.uniform(-4, 1, size=(200, 3))
    size = np.abs(exact) * 10.0 ** rng.uniform(0, 3, size=(200, 3))
    off = (exact + ROUNDOFF * size * rng.choice([-1, 1], size=(200, 3))).astype(np.float32)
    by_hand, (found,) = FLOAT32_ONLY.get(case), outputs_of(model, off)
    wanted = by_hand(exact) if by_hand else outputs_of(in_float64(model), exact)[0]
    (allowed,) = outputs_of(magnitude, size.astype(np.float32))
    assert np.all(np.abs(found - wanted) <= ROUNDING_STEPS * ROUNDOFF * allowed)


def test_every_operator_with_a_magnitude_is_tested_or_rounds_nothing() -> None:
    tested = {op(node) for case in CASES for node in model_of(case).graph.node}
    assert MAGNITUDES.keys() - MOVES_ONLY <= tested


def test_what_has_a_magnitude_has_a_bound() -> None:
    assert MAGNITUDES.keys() - {"Constant"} <= OPERATORS.keys()


@pytest.mark.parametrize(
    "call",
    ["Max(x, x)", "Clip(x, two)", "Celu <alpha = -1.0> (x)", "ThresholdedRelu(x)", "Clip(x, x)"],
)
def test_what_no_slope_bounds_has_no_magnitude(call: str) -> None:
    """A value above 0 at 0, a slope that grows without limit, a jump, and limits that vary."""
    model = build(f"y = {call}", two=np.float32(2))
    assert magnitude_model(Graph(model)) is None


@pytest.mark.parametrize(
    ("activation", "scale"),
    [
        ("Sigmoid", 1e-4),
        ("Softmax", 1e-5),
        ("Elu <alpha = 4.0>", 1e-3),
        ("LeakyRelu <alpha = 900.0>", 1e-6),
    ],
)
def test_merging_duplicates_before_another_activation_is_equal_up_to_rounding(
    activation: str, scale: float
) -> None:
    """Sigmoid and Softmax make large values of small ones, and steep slopes enlarge rounding."""
    w, b, v, c = twins(distinct=4, copies=3, outputs=6)
    model = build(
        "h = Gemm <transB = 1> (x, W, b) s = Mul(h, h) k = Gemm <transB = 1> (s, V, c) "
        f"a = {activation}(k) y = Gemm <transB = 1> (a, U)",
        outputs="float[N,1] y",
        W=w,
        b=b,
        V=v * np.float32(scale),
        c=c * np.float32(scale),
        U=np.tile(floats([[1.0, -1.0]]), (1, 3)),
    )
    report = onnxfde.optimize(model, eps=0).report
    assert report.layers[0].neurons_after == 4
