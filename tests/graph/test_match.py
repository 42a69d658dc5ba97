"""Layers are found in every form that exporters write."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import helper

import onnxfde
from onnxfde.graph.match import find_layers
from onnxfde.graph.model import Graph
from onnxfde.graph.protos import ModelProto
from tests.models import build, mlp, outputs_of, twins

W, B, V, C = twins()
WEIGHTS: dict[str, Any] = {"W": W, "b": B, "V": V, "c": C}
X = np.random.default_rng(1).uniform(-1, 1, (50, 3)).astype(np.float32)
ROW = B[None]
K = 2.0 ** np.arange(6, dtype=np.float32)


def expected(x: np.ndarray, w: Any = W, b: Any = B, v: Any = V, c: Any = C) -> Any:
    return (x @ w.T + b) ** 2 @ v.T + c


SPELLINGS: dict[str, tuple[ModelProto, Any]] = {
    "gemm": (mlp(W, B, V, C), expected(X)),
    "gemm not transposed": (
        build("h = Gemm(x, W, b) s = Mul(h, h) y = Gemm(s, V, c)", W=W.T, b=B, V=V.T, c=C),
        expected(X),
    ),
    "gemm with alpha and beta": (
        build(
            "h = Gemm <transB = 1, alpha = 0.5, beta = 2.0> (x, W, b) s = Mul(h, h) "
            "y = Gemm <transB = 1, alpha = -3.0, beta = 0.25> (s, V, c)",
            W=W * 2,
            b=B / 2,
            V=V / -3,
            c=C * 4,
        ),
        expected(X),
    ),
    "gemm without C": (
        build(
            "h = Gemm <transB = 1> (x, W) s = Mul(h, h) y = Gemm <transB = 1> (s, V)",
            W=W,
            V=V,
        ),
        expected(X, b=0, c=0),
    ),
    "gemm with C as a row, then as a scalar": (
        build(
            "h = Gemm <transB = 1> (x, W, b) s = Mul(h, h) y = Gemm <transB = 1> (s, V, c)",
            W=W,
            b=ROW,
            V=V,
            c=np.float32(0.5),
        ),
        expected(X, c=0.5),
    ),
    "matmul and add, either side": (
        build(
            "a = MatMul(x, W) h = Add(b, a) s = Mul(h, h) d = MatMul(s, V) y = Add(d, c)",
            W=W.T,
            b=B,
            V=V.T,
            c=C,
        ),
        expected(X),
    ),
    "matmul without add": (
        build("h = MatMul(x, W) s = Mul(h, h) y = MatMul(s, V)", W=W.T, V=V.T),
        expected(X, b=0, c=0),
    ),
    "pow with a float exponent": (
        build(
            "h = Gemm <transB = 1> (x, W, b) s = Pow(h, two) y = Gemm <transB = 1> (s, V, c)",
            **WEIGHTS,
            two=np.float32(2),
        ),
        expected(X),
    ),
    "pow with an exponent in an attribute": (
        build(
            "two = Constant <value_float = 2.0> () h = Gemm <transB = 1> (x, W, b) "
            "s = Pow(h, two) y = Gemm <transB = 1> (s, V, c)",
            **WEIGHTS,
        ),
        expected(X),
    ),
    "pow with an integer exponent in a Constant node": (
        build(
            "two = Constant <value = int64[1] {2}> () h = Gemm <transB = 1> (x, W, b) "
            "s = Pow(h, two) y = Gemm <transB = 1> (s, V, c)",
            **WEIGHTS,
        ),
        expected(X),
    ),
    "constants on the hidden value": (
        build(
            "a = MatMul(x, W) p = Mul(a, k) q = Add(p, b) r = Sub(q, one) h = Div(r, two) "
            "s = Mul(h, h) t = Mul(four, s) u = Sub(one, t) y = Gemm <transB = 1> (u, V, c)",
            W=(2 * W / K[:, None]).T,
            b=2 * ROW + 1,
            V=V,
            c=C,
            k=K,
            one=np.float32(1),
            two=np.array([2.0], np.float32),
            four=np.full(6, 4.0, np.float32),
        ),
        (1 - 4 * (X @ W.T + B) ** 2) @ V.T + C,
    ),
    "weight behind Identity, Transpose and Cast": (
        build(
            "W1 = Identity(W) W2 = Transpose <perm = [1, 0]> (W1) W3 = Cast <to = 1> (W2) "
            "h = Gemm(x, W3, b) s = Mul(h, h) V1 = Transpose(V) y = Gemm(s, V1, c)",
            W=W.astype(np.float64),
            b=B,
            V=V,
            c=C,
        ),
        expected(X),
    ),
    "identity, dropout and flatten inside": (
        build(
            "h = Gemm <transB = 1> (x, W, b) i = Identity(h) d = Dropout(i, half) f = Flatten(d) "
            "s = Mul(f, f) j = Identity(s) y = Gemm <transB = 1> (j, V, c)",
            **WEIGHTS,
            half=np.float32(0.5),
        ),
        expected(X),
    ),
}


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_a_layer_of_twins_is_found_and_halved(spelling: str) -> None:
    model, wanted = SPELLINGS[spelling]
    (before,) = outputs_of(model, X)
    np.testing.assert_allclose(before, wanted, rtol=2e-5, atol=2e-5)
    result = onnxfde.optimize(model, eps=0)
    assert [layer.neurons_after for layer in result.report.layers] == [3]
    (after,) = outputs_of(result.model, X)
    np.testing.assert_allclose(after, before, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "double"])
def test_other_dtypes(dtype: str) -> None:
    kind = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16, "double": np.float64}[dtype]
    w, b, v, c = (a.astype(kind) for a in twins(inputs=7))
    model = build(
        "h = Gemm <transB = 1> (x, W, b) s = Mul(h, h) y = Gemm <transB = 1> (s, V, c)",
        inputs=f"{dtype}[N,7] x",
        outputs=f"{dtype}[N,2] y",
        W=w,
        b=b,
        V=v,
        c=c,
    )
    result = onnxfde.optimize(model, eps=0)
    assert result.report.layers[0].neurons_after == 3
    assert result.report.layers[0].dtype == np.dtype(kind).name
    assert {t.data_type for t in result.model.graph.initializer} == {
        helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    }


def test_matmul_on_more_than_two_axes() -> None:
    model = build(
        "a = MatMul(x, W) h = Add(a, b) s = Mul(h, h) d = MatMul(s, V) y = Add(d, c)",
        inputs="float[N,5,3] x",
        outputs="float[N,5,2] y",
        W=W.T,
        b=B.reshape(1, 1, 6),
        V=V.T,
        c=C,
    )
    x = np.random.default_rng(0).uniform(-1, 1, (4, 5, 3)).astype(np.float32)
    result = onnxfde.optimize(model, eps=0)
    assert result.report.layers[0].neurons_after == 3
    np.testing.assert_allclose(outputs_of(result.model, x)[0], expected(x), rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("bias", [True, False])
def test_matmul_with_the_weight_on_the_left(bias: bool) -> None:
    weights: dict[str, Any] = {"W": W, "V": V}
    if bias:
        weights |= {"b": B[:, None], "c": C[:, None]}
    adds = ("h = Add(a, b)", "y = Add(d, c)") if bias else ("h = Identity(a)", "y = Identity(d)")
    model = build(
        f"a = MatMul(W, x) {adds[0]} s = Mul(h, h) d = MatMul(V, s) {adds[1]}",
        inputs="float[3,N] x",
        outputs="float[2,N] y",
        **weights,
    )
    result = onnxfde.optimize(model, eps=0, input_range=(0, 1))
    assert result.report.layers[0].neurons_after == 3
    wanted = expected(X) if bias else expected(X, b=0, c=0)
    np.testing.assert_allclose(outputs_of(result.model, X.T)[0][0].T, wanted, rtol=2e-5, atol=2e-5)


def test_a_single_vector_multiplied_from_the_left() -> None:
    model = build(
        "a = MatMul(W, x) h = Add(a, b) s = Mul(h, h) d = MatMul(V, s) y = Add(d, c)",
        inputs="float[3] x",
        outputs="float[2] y",
        **WEIGHTS,
    )
    result = onnxfde.optimize(model, eps=0)
    assert result.report.layers[0].neurons_after == 3
    assert result.report.verification is not None
    assert result.report.verification.samples == 3 * 342


def test_in_a_chain_both_layers_are_optimized_and_share_the_middle_map() -> None:
    w2, b2, v2, c2 = twins(distinct=4, inputs=2, outputs=1, seed=5)
    middle, shift = w2 @ V, w2 @ C + b2
    model = build(
        "[a] h = Gemm <transB = 1> (x, W, b) s = Mul(h, h) [m] g = Gemm <transB = 1> (s, M, k) "
        "t = Mul(g, g) [z] y = Gemm <transB = 1> (t, V, c)",
        outputs="float[N,1] y",
        W=W,
        b=B,
        M=middle.astype(np.float32),
        k=shift.astype(np.float32),
        V=v2,
        c=c2,
    )
    (before,) = outputs_of(model, X)
    result = onnxfde.optimize(model, eps=0)
    assert [(layer.name, layer.neurons_after) for layer in result.report.layers] == [
        ("a", 3),
        ("m", 2),
    ]
    np.testing.assert_allclose(outputs_of(result.model, X)[0], before, rtol=1e-3, atol=1e-4)


def test_names_come_from_the_node_else_its_output_and_repeated_ones_are_numbered() -> None:
    model = build(
        "h = Gemm <transB = 1> (x, W, b) s = Mul(h, h) [n] g = Gemm <transB = 1> (s, V, c) "
        "i = Identity(g) [n] k = Gemm <transB = 1> (i, W2) t = Mul(k, k) "
        "[o] l = Gemm <transB = 1> (t, V) "
        "[n] m = Gemm <transB = 1> (l, W2) u = Mul(m, m) y = Gemm <transB = 1> (u, V)",
        **WEIGHTS,
        W2=W[:, :2],
    )
    assert [m.name for m in find_layers(Graph(model))[0]] == ["h", "n", "n#2", "n#3"]


def sharing(outputs: int) -> ModelProto:
    """A layer with so many outputs whose first weight another node reads too."""
    return build(
        "h = Gemm <transB = 1> (x, W, b) s = Mul(h, h) y = Gemm <transB = 1> (s, V, c) "
        "z = Gemm <transB = 1> (x, W, b)",
        outputs=f"float[N,{outputs}] y, float[N,6] z",
        W=W,
        b=B,
        V=np.tile(V, (outputs // 2, 1)),
        c=np.tile(C, outputs // 2),
    )


def test_a_weight_shared_with_another_node_is_copied() -> None:
    model = sharing(outputs=20)
    result = onnxfde.optimize(model, eps=0)
    assert result.report.layers[0].neurons_after == 3
    before, after = (outputs_of(m, X) for m in (model, result.model))
    np.testing.assert_allclose(after[0], before[0], rtol=2e-5, atol=2e-5)
    np.testing.assert_array_equal(after[1], before[1])


def test_a_model_that_copied_weights_would_make_larger_stays_as_it_is() -> None:
    model = sharing(outputs=2)
    result = onnxfde.optimize(model, eps=0)
    assert result.model == model
    assert "more parameters (38 → 44), because several nodes share" in str(result.report.unchanged)


GEMMS = "h = Gemm <transB = 1> (x, W, b) {} y = Gemm <transB = 1> (s, V, c)"


@pytest.mark.parametrize(("attribute", "found"), [("", False), ("<is_test = 1>", True)])
def test_an_old_dropout_is_transparent_only_in_test_mode(attribute: str, found: bool) -> None:
    model = build(GEMMS.format(f"q = Dropout {attribute} (h) s = Mul(q, q)"), opset=6, **WEIGHTS)
    assert bool(find_layers(Graph(model))[0]) == found


def test_numbered_names_do_not_collide_with_given_ones() -> None:
    layer = (
        "h{0} = Gemm <transB = 1> (x, W, b) s{0} = Mul(h{0}, h{0}) "
        "y{0} = Gemm <transB = 1> (s{0}, V, c) "
    )
    body = "".join(layer.format(i) for i in range(3))
    model = build(body, outputs="float[N,2] y0, float[N,2] y1, float[N,2] y2", **WEIGHTS)
    for i, name in enumerate(["A", "A", "A#2"]):
        model.graph.node[3 * i].name = name
    assert [m.name for m in find_layers(Graph(model))[0]] == ["A", "A#3", "A#2"]


def test_an_add_of_another_domain_is_no_bias() -> None:
    model = build(
        "h = MatMul(x, W) s = Mul(h, h) d = MatMul(s, V) y = Add(d, c)", W=W.T, V=V.T, c=C
    )
    model.graph.node[3].domain = "own"
    (match,), _ = find_layers(Graph(model))
    assert match.outgoing.carrier is None
