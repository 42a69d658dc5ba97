"""Pairs of affine maps that stay as they are, and why."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import numpy_helper

from onnxfde.graph.model import Graph
from onnxfde.passes import FoldAffine
from tests.models import build
from tests.passes.affine_pairs import (
    GEMMS,
    NAMES,
    V,
    W,
    assert_left_alone,
    pair,
)


def test_a_fold_that_would_be_larger_is_refused() -> None:
    w, v = np.ones((2, 8), np.float32), np.ones((8, 2), np.float32)
    model = build(
        "[down] h = MatMul(x, W) [up] y = MatMul(h, V)",
        inputs="float[N,8] x",
        outputs="float[N,8] y",
        W=w.T,
        V=v.T,
    )
    assert_left_alone(
        model, "folded into 'up' it would need 64 parameters, not fewer than the 32 of both"
    )


def test_a_fold_that_saves_nothing_is_refused() -> None:
    model = build(
        "h = MatMul(x, W) y = MatMul(h, V)",
        inputs="float[N,4] x",
        outputs="float[N,4] y",
        W=np.eye(4, 2, dtype=np.float32),
        V=np.eye(2, 4, dtype=np.float32),
    )
    assert_left_alone(
        model, "folded into 'y' it would need 16 parameters, not fewer than the 16 of both"
    )


@pytest.mark.parametrize(
    ("body", "outputs"),
    [
        (GEMMS, "float[N,2] y, float[N,8] h"),
        (f"{GEMMS} z = Relu(h)", "float[N,2] y, float[N,8] z"),
        (f"{GEMMS} z = Gemm <transB = 1> (h, V, c)", "float[N,2] y, float[N,2] z"),
        ("h = Gemm <transB = 1> (x, W, b) y = Add(h, h)", "float[N,8] y"),
    ],
)
def test_a_value_in_between_with_another_use_keeps_both_maps(body: str, outputs: str) -> None:
    assert_left_alone(pair(body, outputs=outputs))


@pytest.mark.parametrize("activation", ["Mul(h, h)", "Pow(h, two)", "Relu(h)", "Add(h, h)"])
def test_an_activation_in_between_keeps_both_maps(activation: str) -> None:
    body = f"h = Gemm <transB = 1> (x, W, b) s = {activation} y = Gemm <transB = 1> (s, V, c)"
    assert_left_alone(pair(body, two=np.float32(2)))


def test_a_value_in_between_read_by_a_body_keeps_both_maps() -> None:
    body = (
        f"{GEMMS} z = If(k) <then_branch = t () => (float[N,8] p) {{ p = Neg(h) }}, "
        "else_branch = e () => (float[N,8] q) { q = Abs(h) }>"
    )
    assert_left_alone(
        pair(body, inputs="float[N,3] x, bool k", outputs="float[N,2] y, float[N,8] z")
    )


@pytest.mark.parametrize(
    "body",
    [
        "h = Gemm <transB = 1> (x, W, b) y = Gemm(h, x2, c)",
        "h = Gemm <transB = 1> (x, W, b) y = Gemm(x3, V, h)",
        "h = Gemm <transB = 1> (x, W, b) y = Gemm <transA = 1, transB = 1> (h, V)",
        "h = Gemm <transB = 1> (x, W, b) d = Dropout(h, half, yes) y = Gemm(d, V)",
    ],
)
def test_what_is_no_affine_map_of_the_value_is_left_alone(body: str) -> None:
    model = pair(body, inputs="float[N,3] x, float[8,2] x2, float[N,8] x3", half=np.float32(0.5))
    model.graph.initializer.append(numpy_helper.from_array(np.array(True), "yes"))
    assert not FoldAffine().apply(Graph(model)).changed


def test_a_weight_that_a_caller_may_override_is_left_alone() -> None:
    model = pair(inputs="float[N,3] x, float[8,3] W")
    assert not FoldAffine().apply(Graph(model)).changed


def test_maps_along_different_axes_are_left_alone() -> None:
    model = build(
        "h = MatMul(x, W) y = MatMul(V, h)",
        inputs="float[8,3] x",
        outputs="float[2,8] y",
        W=W.T,
        V=V,
    )
    assert_left_alone(model)


def test_a_flatten_between_maps_with_the_weight_on_the_left_is_left_alone() -> None:
    model = build(
        "h = MatMul(W, x) f = Flatten <axis = 2> (h) y = MatMul(V, f)",
        inputs="float[1,3,4] x",
        outputs="float[2,4] y",
        W=W,
        V=V,
    )
    assert_left_alone(model)


def test_old_opsets_are_left_alone() -> None:
    body = "h = Gemm <broadcast = 1> (x, W, b) y = Gemm <broadcast = 1> (h, V, c)"
    assert_left_alone(pair(body, opset=6, ir=4, W=W.T, V=V.T))


@pytest.mark.parametrize(
    ("dtype", "scale"),
    [
        ("float16", 1e3),
        ("float16", 1e-4),
        ("float32", 1e25),
        ("float32", 1e-25),
        ("float32", np.nan),
        ("float32", np.inf),
        ("float64", 1e200),
    ],
)
def test_a_product_that_does_not_fit_the_dtype_is_refused(dtype: str, scale: float) -> None:
    w, v = (np.full(a.shape, scale, dtype) for a in (W, V))
    body = "h = Gemm <transB = 1> (x, W) y = Gemm <transB = 1> (h, V)"
    name = NAMES[dtype]
    model = build(body, inputs=f"{name}[N,3] x", outputs=f"{name}[N,2] y", W=w, V=v)
    assert_left_alone(model, f"the product overflows or underflows {dtype}, or is not a number")


def test_towers_that_share_all_weights_are_left_alone() -> None:
    tower = "h{0} = Gemm <transB = 1> (x{0}, W, b) y{0} = Gemm <transB = 1> (h{0}, V, c) "
    model = pair(
        tower.format(1) + tower.format(2),
        inputs="float[N,3] x1, float[N,3] x2",
        outputs="float[N,2] y1, float[N,2] y2",
    )
    reason = "folded into '{}' it would need 58 parameters, not fewer than the 50 of both"
    assert_left_alone(model, reason.format("y1"), reason.format("y2"))


def test_one_weight_in_both_maps() -> None:
    square = W[:3]
    model = build("h = MatMul(x, W) y = MatMul(h, W)", outputs="float[N,3] y", W=square)
    assert_left_alone(
        model, "folded into 'y' it would need 9 parameters, not fewer than the 9 of both"
    )


def test_a_bias_of_zeros_that_stays_is_counted() -> None:
    """4 + 1 and 2 + 2 parameters would become 8 + 2."""
    rng = np.random.default_rng(0)
    model = build(
        "[one] h = Gemm(x, A, a) [two] y = Gemm(h, B, b)",
        inputs="float[N,4] x",
        A=rng.normal(size=(4, 1)).astype(np.float32),
        a=np.zeros(1, dtype=np.float32),
        B=rng.normal(size=(1, 2)).astype(np.float32),
        b=np.zeros(2, dtype=np.float32),
    )
    result = FoldAffine().apply(Graph(model))
    assert not result.changed
    assert [refusal.reason for refusal in result.unfolded] == [
        "folded into 'two' it would need 10 parameters, not fewer than the 9 of both"
    ]
