"""Products in 8 bits: integer kernels compute them, or they are left alone."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import onnxfde
from onnxfde.errors import ModelError
from onnxfde.options import Int8
from tests.models import build, mlp
from tests.running.int8_models import BIG, MODES, ROWS, relative, weights


def kernels(model: onnx.ModelProto, tmp_path: Path) -> Counter[str]:
    """The operators that onnxruntime runs."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.optimized_model_filepath = str(tmp_path / "optimized.onnx")
    onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    nodes = onnx.load(tmp_path / "optimized.onnx").graph.node
    return Counter(node.op_type for node in nodes)


@pytest.mark.parametrize(
    ("mode", "kernel"), [("dynamic", "DynamicQuantizeMatMul"), ("static", "QGemm")]
)
def test_onnxruntime_runs_integer_kernels(mode: Int8, kernel: str, tmp_path: Path) -> None:
    result = onnxfde.optimize(mlp(*BIG), 0, data=ROWS, int8=mode)
    found = kernels(result.model, tmp_path)
    assert found[kernel] == 2
    assert not {"Gemm", "MatMul"} & found.keys()
    assert relative(result.report.verification) < 0.03


@pytest.mark.skipif(
    tuple(map(int, onnxruntime.__version__.split(".")[:2])) < (1, 24),
    reason="onnxruntime < 1.24 has no ConvInteger for signed weights; such models are refused",
)
def test_convolutions_become_integer_convolutions(tmp_path: Path) -> None:
    model = build(
        "a = Conv (x, W, b) s = Mul(a, a) f = Flatten(s) y = Gemm <transB = 1> (f, V, c)",
        inputs="float[2,3,6,6] x",
        outputs="float[2,2] y",
        W=weights(8, 3, 3, 3),
        b=weights(8),
        V=weights(2, 128),
        c=weights(2),
    )
    data = {"x": np.random.default_rng(0).uniform(0, 1, (64, 3, 6, 6)).astype(np.float32)}
    for mode, kernel in (("dynamic", "ConvInteger"), ("static", "QLinearConv")):
        result = onnxfde.optimize(model, 0.0, data=data, int8=mode)  # type: ignore[arg-type]
        assert kernels(result.model, tmp_path)[kernel] == 1
        assert relative(result.report.verification) < 0.05


def test_weights_do_not_saturate_on_any_processor() -> None:
    """The kernels for AVX2 add 255·127 + 255·127 in 16 bits; 255·64 + 255·64 fits."""
    ones = np.full((4, 8), 1.0, np.float32)
    model = build(
        "y = Gemm <transB = 1> (x, W)", inputs="float[N,8] x", outputs="float[N,4] y", W=ones
    )
    result = onnxfde.optimize(
        model, data={"x": np.ones((4, 8)) * [[1], [0], [1], [1]]}, int8="static"
    )
    (weight,) = (t for t in result.model.graph.initializer if t.data_type == t.INT8 and t.dims[1:])
    assert np.abs(onnx.numpy_helper.to_array(weight).astype(int)).max() == 64
    assert relative(result.report.verification) < 0.01


def test_weights_in_constants_and_behind_a_transpose_are_found() -> None:
    text = (
        "T = Transpose <perm = [1, 0]> (W) h = MatMul(x, T) s = Mul(h, h) "
        "V = Constant <value = float[4,2] {1,2,3,4,5,6,7,8}> () y = MatMul(s, V)"
    )
    model = build(text, inputs="float[N,8] x", W=weights(4, 8))
    report = onnxfde.optimize(model, data=ROWS, skip=("*",), int8="static").report
    assert report.int8 is not None
    assert report.int8.weights == 2
    assert relative(report.verification) < 0.03


@pytest.mark.parametrize("mode", MODES)
def test_a_weight_on_the_left_stays_in_float32(mode: Int8) -> None:
    text = "h = MatMul(W, x) s = Mul(h, h) g = MatMul(V, s) "
    parts: dict[str, Any] = {"W": weights(6, 8), "V": weights(4, 6), "inputs": "float[8,5] x"}
    model = build(text + "y = MatMul(g, U)", outputs="float[4,3] y", U=weights(5, 3), **parts)
    data = {"x": np.random.default_rng(0).uniform(-1, 1, (99, 8, 5)).astype(np.float32)}
    report = onnxfde.optimize(model, 0, data=data, int8=mode).report
    assert report.int8 is not None
    assert report.int8.weights == 1
    assert relative(report.verification) < 0.03
    plain = build(text + "y = Identity(g)", outputs="float[4,5] y", **parts)
    with pytest.raises(ModelError, match="finds nothing to do"):
        onnxfde.optimize(plain, 0, data=data, int8=mode)


@pytest.mark.parametrize("opset", [7, 10, 11, 21])
@pytest.mark.parametrize("mode", MODES)
def test_any_opset_will_do(mode: Int8, opset: int) -> None:
    w, b, v, c = BIG
    model = build(
        "h = Gemm <transB = 1> (x, W, b) s = Mul(h, h) y = Gemm <transB = 1> (s, V, c)",
        inputs="float[N,8] x",
        outputs="float[N,30] y",
        opset=opset,
        ir=10,
        W=w,
        b=b,
        V=v,
        c=c,
    )
    report = onnxfde.optimize(model, 0, data=ROWS, int8=mode).report
    assert relative(report.verification) < 0.03


@pytest.mark.parametrize("mode", MODES)
def test_an_embedding_may_be_the_output_layer_too(mode: Int8) -> None:
    model = build(
        "e = Gather(E, i) y = Gemm <transB = 1> (e, E)",
        inputs="int64[N] i",
        outputs="float[N,50] y",
        E=weights(50, 16),
    )
    report = onnxfde.optimize(model, data={"i": np.arange(50)}, int8=mode).report
    assert relative(report.verification) < 0.05
    assert report.bytes.after < report.bytes.before


@pytest.mark.parametrize("mode", ["dynamic", "static"])
def test_bodies_may_read_what_a_quantized_node_makes(mode: Any) -> None:
    rng = np.random.default_rng(0)
    model = build(
        "h = Gemm <transB = 1> (x, W) c = ReduceSum <keepdims = 0> (x) b = Cast <to = 9> (c) "
        "y = If (b) <then_branch = t () => (a) { a = Add(h, h) }, "
        "else_branch = e () => (a) { a = Neg(h) }>",
        inputs="float[N,8] x",
        outputs="float[N,4] y",
        W=rng.normal(size=(4, 8)).astype(np.float32),
    )
    x = rng.uniform(0, 1, (64, 8)).astype(np.float32)
    found = onnxfde.optimize(model, data={"x": x}, int8=mode).report.verification
    assert found is not None
    assert found.relative_l2 is not None
    assert found.relative_l2 < 0.1
