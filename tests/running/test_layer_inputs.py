"""The inputs that a layer is measured on."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import onnxfde
from onnxfde.graph.protos import ModelProto
from tests.models import build
from tests.running.comparing import B, C, V, W


def left(w: Any, v: Any, columns: str) -> ModelProto:
    """Features on the first axis."""
    return build(
        "h = MatMul(W, x) s = Mul(h, h) y = MatMul(V, s)",
        inputs=f"float[3,{columns}] x",
        outputs=f"float[3,{columns}] y",
        W=w,
        V=v,
    )


def test_the_error_of_a_model_with_features_first_is_that_of_its_layer() -> None:
    rng = np.random.default_rng(0)
    w = rng.normal(size=(8, 3)).astype(np.float32)
    v = rng.normal(size=(3, 8)).astype(np.float32)
    report = onnxfde.optimize(left(w, v, "N"), neurons=3).report
    assert report.verification is not None
    assert report.verification.relative_l2 == pytest.approx(report.layers[0].error, rel=0.2)


def test_one_run_of_many_columns_is_measured_too() -> None:
    rng = np.random.default_rng(0)
    w, v = (rng.normal(size=s).astype(np.float32) for s in ((8, 3), (3, 8)))
    data = {"x": rng.uniform(-1, 1, (3, 500)).astype(np.float32)}
    report = onnxfde.optimize(left(w, v, "N"), neurons=3, data=data).report
    assert report.verification is not None
    assert report.verification.relative_l2 == pytest.approx(report.layers[0].error, rel=0.5)


def test_features_first_layers_are_measured_along_the_right_axis() -> None:
    rng = np.random.default_rng(0)
    w, v = (rng.normal(size=s).astype(np.float32) for s in ((8, 3), (3, 8)))
    x = rng.uniform(-1, 1, (3, 400)) * np.array([[5.0], [1.0], [0.05]])
    report = onnxfde.optimize(left(w, v, "N"), neurons=2, data={"x": x}).report
    assert report.verification is not None
    assert report.verification.relative_l2 is not None
    assert report.verification.relative_l2 < 0.02
    assert report.layers[0].error == pytest.approx(report.layers[0].measured_error, rel=0.35)


def test_weights_that_a_caller_may_override_later_on_do_not_matter_for_measuring() -> None:
    model = build(
        "g = Tanh(x) h = Gemm <transB = 1> (g, W, b) s = Mul(h, h) "
        "d = Gemm <transB = 1> (s, V, c) y = Add(d, late)",
        inputs="float[N,3] x, float[2] late",
        W=W,
        b=B,
        V=V,
        c=C,
        late=np.zeros(2, np.float32),
    )
    report = onnxfde.optimize(model, eps=0).report
    assert report.layers[0].remark is None
    assert report.layers[0].neurons_after == 3


@pytest.mark.parametrize("quotient", ["minimal", "refit"])
def test_rows_that_are_all_the_same_are_remarked_on(quotient: Any) -> None:
    """What the output varies by is rounding then, and errors relative to it were up to 1e13."""
    rng = np.random.default_rng(0)
    a, b = (rng.normal(size=s).astype(np.float32) for s in ((6, 30), (30, 4)))
    body = "h = MatMul(x, a) r = Relu(h) y = MatMul(r, b)"
    model = build(body, "float[N,6] x", "float[N,4] y", a=a, b=b)
    data = np.repeat(rng.normal(size=(1, 6)), 300, axis=0).astype(np.float32)
    (layer,) = onnxfde.optimize(model, 0.3, data=data, quotient=quotient).report.layers
    assert layer.measured_error < 1
    assert layer.remark is not None
    assert "its inputs are the same in all 240 rows" in layer.remark
