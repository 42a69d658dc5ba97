"""Affine maps are folded however an exporter spells them."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import numpy_helper

from onnxfde.graph.protos import ModelProto
from tests.models import Array, build, outputs_of
from tests.passes.affine_pairs import (
    NAMES,
    RNG,
    B,
    C,
    V,
    W,
    X,
    assert_equal_up_to_rounding,
    folded,
    kinds,
    stored,
)


def same(a: Array) -> Array:
    return a


def column(a: Array) -> Array:
    return a[:, None]


Spelling = tuple[str, str, str]
Stored = Callable[[Array], Array]
FIRST: dict[str, tuple[str, Stored]] = {
    "gemm": ("h = Gemm <transB = 1> (x, W, b)", same),
    "gemm with alpha and beta": ("h = Gemm <alpha = 0.5, beta = -3.0> (x, W, b)", np.transpose),
    "gemm without C": ("h = Gemm <transB = 1> (x, W)", same),
    "gemm with an empty C": ("h = Gemm <transB = 1> (x, W, )", same),
    "matmul": ("h = MatMul(x, W)", np.transpose),
    "matmul and add": ("a = MatMul(x, W) h = Add(b, a)", np.transpose),
    "weight behind nodes": ("Wt = Transpose(W) Wi = Identity(Wt) h = MatMul(x, Wi)", same),
}
BETWEEN = {
    "nothing": "",
    "transparent": "h1 = Identity(h) h2 = Dropout(h1) h3 = Flatten(h2)",
    "constants": "h1 = Mul(h, k) h2 = Sub(two, h1) h3 = Add(h2, k)",
    "both": "h1 = Mul(k, h) h2, mask = Dropout(h1) h3 = Sub(h2, two)",
    "division": "h1 = Identity(h) h2 = Add(h1, k) h3 = Div(h2, two)",
}
SECOND: dict[str, tuple[str, Stored]] = {
    "gemm": ("y = Gemm <transB = 1> ({}, V, c)", same),
    "gemm with alpha and beta": ("y = Gemm <alpha = 2.0, beta = 0.5> ({}, V, c)", np.transpose),
    "gemm without C": ("y = Gemm({}, V)", np.transpose),
    "matmul": ("y = MatMul({}, V)", np.transpose),
    "matmul, read on": ("d = MatMul({}, V) y = Neg(d)", np.transpose),
    "matmul and add": ("d = MatMul({}, V) y = Add(d, c)", np.transpose),
}


def spelled(spelling: Spelling, sizes: tuple[int, int, int], dtype: str) -> ModelProto:
    """Two random affine maps."""
    (first, store_first), (second, store_second) = FIRST[spelling[0]], SECOND[spelling[2]]
    between, (inputs, hidden, outputs) = BETWEEN[spelling[1]], sizes
    body = f"{first} {between} {second.format('h3' if between else 'h')}"
    rng = np.random.default_rng(sum(sizes))
    weights: dict[str, Any] = {
        "W": store_first(rng.normal(size=(hidden, inputs))),
        "b": rng.normal(size=hidden),
        "V": store_second(rng.normal(size=(outputs, hidden))),
        "c": rng.normal(size=outputs),
        "k": rng.normal(size=hidden),
        "two": np.array(2.0),
    }
    used = set(re.findall(r"\w+", body))
    return build(
        body,
        inputs=f"{NAMES[dtype]}[N,{inputs}] x",
        outputs=f"{NAMES[dtype]}[N,{outputs}] y",
        **{name: a.astype(dtype) for name, a in weights.items() if name in used},
    )


@given(
    st.tuples(*(st.sampled_from(sorted(part)) for part in (FIRST, BETWEEN, SECOND))),
    # of one feature, k would be a scalar, which onnxruntime makes a float32 alpha even in float64
    st.tuples(st.integers(1, 5), st.integers(2, 12), st.integers(1, 5)),
    st.sampled_from(sorted(NAMES)),
)
def test_every_spelling_computes_the_same_and_is_never_larger(
    spelling: Spelling, sizes: tuple[int, int, int], dtype: str
) -> None:
    model = spelled(spelling, sizes, dtype)
    result = folded(model)
    x = np.random.default_rng(1).uniform(-1, 1, (20, sizes[0])).astype(dtype)
    assert_equal_up_to_rounding(model, result, x)
    assert sum(n.op_type in ("Gemm", "MatMul") for n in result.model.graph.node) == (
        1 if result.changed else 2
    )
    for fold in result.folded:
        assert fold.parameters_after < fold.parameters_before
        assert fold.parameters_after == sum(
            numpy_helper.to_array(t).size for t in result.model.graph.initializer if t.dims
        )


@pytest.mark.parametrize("between", BETWEEN)
@pytest.mark.parametrize("second", SECOND)
@pytest.mark.parametrize("first", FIRST)
def test_every_spelling_is_folded(first: str, between: str, second: str) -> None:
    model = spelled((first, between, second), (3, 9, 2), "float32")
    result = folded(model)
    assert len(result.folded) == 1
    assert_equal_up_to_rounding(model, result, X)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", ["3,N", "5,3,N", "3"])
def test_weights_on_the_left(bias: bool, shape: str) -> None:
    adds = "h = Add(a, b) d = MatMul(V, h) y = Add(d, c)" if bias else "y = MatMul(V, a)"
    along = same if shape == "3" else column
    weights: dict[str, Any] = {"W": W, "V": V}
    if bias:
        weights |= {"b": along(B), "c": along(C)}
    outputs = f"float[{shape.replace('3', '2')}] y"
    model = build(
        f"a = MatMul(W, x) {adds}", inputs=f"float[{shape}] x", outputs=outputs, **weights
    )
    result = folded(model)
    assert len(result.folded) == 1
    x = RNG.normal(size=[{"N": 4}.get(n) or int(n) for n in shape.split(",")]).astype(np.float32)
    np.testing.assert_allclose(
        outputs_of(result.model, x)[0], outputs_of(model, x)[0], rtol=0, atol=2e-5
    )


def test_a_bias_of_the_first_map_alone_on_the_left() -> None:
    model = build(
        "a = MatMul(W, x) h = Add(a, b) y = MatMul(V, h)",
        inputs="float[3,N] x",
        outputs="float[2,N] y",
        W=W,
        b=B[:, None],
        V=V,
    )
    result = folded(model)
    assert stored(result) == {"V": [2, 3], "y_bias": [2, 1]}
    np.testing.assert_allclose(
        outputs_of(result.model, X.T)[0], outputs_of(model, X.T)[0], rtol=0, atol=2e-5
    )


def test_more_axes_and_a_flatten_that_keeps_the_features() -> None:
    model = build(
        "h = MatMul(x, W) f = Flatten <axis = 2> (h) y = Gemm <transB = 1> (f, V, c)",
        inputs="float[4,5,3] x",
        outputs="float[20,2] y",
        W=W.T,
        V=V,
        c=C,
    )
    result = folded(model)
    assert kinds(result) == ["Flatten", "Gemm"]
    x = RNG.normal(size=(4, 5, 3)).astype(np.float32)
    assert_equal_up_to_rounding(model, result, x)
