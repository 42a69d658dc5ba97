"""Names that collide, scaled products, unusual biases and shapes in 8 bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

import onnxfde
from onnxfde.errors import ModelError, VerificationError
from onnxfde.graph.input_specs import input_specs
from onnxfde.graph.model import Graph
from onnxfde.options import Int8
from onnxfde.running.random_inputs import random_samples
from tests.models import Array, build
from tests.running.int8_models import BIAS, MODES, ROWS, dense, relative, weights

ODD: dict[str, tuple[onnx.ModelProto, tuple[int, int]]] = {
    "weight's scale": (dense("h = MatMul(x, W) y = Add(h, W_scale)", W_scale=BIAS), (1, 1)),
    "input's scale": (dense("h = MatMul(x, W) y = Add(h, x_scale)", x_scale=BIAS), (1, 1)),
    "value's scale": (
        dense("h_scale = Relu(x) h = Tanh(x) g = MatMul(h, W) y = Add(g, h_scale)"),
        (1, 1),
    ),
    "input called so": (
        dense("h = MatMul(x, W) y = Add(h, x_scale)", "float[N,8] x, float[N,8] x_scale"),
        (1, 1),
    ),
    "output called so": (
        dense("x_quantized = MatMul(x, W) y = Add(x_quantized, x)", outputs="float[N,8] y"),
        (1, 1),
    ),
    "node names": (dense("[n] h = MatMul(x, W) [n] g = Tanh(h) [n] y = MatMul(g, W)"), (1, 1)),
    "alpha": (dense("y = Gemm <alpha = 0.5> (x, W, b)", b=BIAS), (1, 1)),
    "beta": (dense("y = Gemm <beta = 2.0> (x, W, b)", b=BIAS), (1, 1)),
    "both": (dense("y = Gemm <alpha = 2.0, beta = 0.5, transB = 1> (x, W, b)", b=BIAS), (1, 1)),
    "no bias": (dense("y = Gemm <beta = 0.5> (x, W, )"), (1, 1)),
    "beta of an input": (
        dense("h = Gemm <beta = 0.5> (x, W, x) y = MatMul(h, V)", V=weights(8, 8)),
        (1, 1),
    ),
    "bias of one": (dense("y = Gemm (x, W, b)", b=BIAS[3:4]), (1, 1)),
    "scalar bias": (dense("y = Gemm (x, W, b)", b=np.float32(3)), (1, 1)),
    "bias in a row": (dense("y = Gemm <beta = 3.0> (x, W, b)", b=BIAS[None]), (1, 1)),
    "bias in a constant": (
        dense("b = Constant <value = float[1] {5}> () y = Gemm <beta = 3.0> (x, W, b)"),
        (1, 1),
    ),
    "bias for each row": (
        dense(
            "h = Gemm <beta = 2.0> (x, W, b) y = MatMul(h, V)",
            "float[3,8] x",
            outputs="float[3,8] y",
            b=weights(3, 8),
            V=weights(8, 8),
        ),
        (2, 1),
    ),
    "transposed input": (
        dense(
            "h = Gemm <transA = 1> (x, W) y = MatMul(h, V)",
            "float[8,3] x",
            outputs="float[3,8] y",
            V=weights(8, 8),
        ),
        (1, 2),
    ),
    "stack of weights": (
        dense("h = MatMul(x, U) y = MatMul(h, W)", "float[N,4,8,8] x", U=weights(4, 8, 8)),
        (1, 1),
    ),
    "vector": (
        dense("h = MatMul(x, W) y = MatMul(h, u)", outputs="float[N] y", u=weights(8)),
        (1, 1),
    ),
    "read both ways": (
        dense("h = Gemm (x, W) g = Tanh(h) y = Gemm <transB = 1> (g, W)"),
        (2, 2),
    ),
    "read twice": (
        dense("h = Gemm <transB = 1> (x, W) g = Tanh(h) y = Gemm <transB = 1> (g, W)"),
        (1, 1),
    ),
    "added too": (
        dense(
            "h = Gemm <transB = 1> (x, W) g = MatMul(h, V) y = Add(g, W)",
            "float[8,8] x",
            outputs="float[8,8] y",
            V=weights(8, 8),
        ),
        (2, 2),
    ),
    "float16": (
        dense(
            "h = MatMul(x, W) k = Cast <to = 10> (h) y = Gemm (k, V)",
            outputs="float16[N,8] y",
            V=weights(8, 8, dtype=np.float16),
        ),
        (1, 1),
    ),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("case", ODD)
def test_odd_products_are_rounded_right_or_left_alone(case: str, mode: Int8) -> None:
    model, counts = ODD[case]
    specs = input_specs(Graph(model))
    data = dict(random_samples(specs, (-1, 1), 96).arrays)
    result = onnxfde.optimize(model, data=data, skip=("*",), int8=mode)
    report = result.report
    assert report.int8 is not None
    assert report.int8.weights == counts[MODES.index(mode)]
    assert report.verification is not None
    assert report.verification.engine == "onnxruntime"
    assert relative(report.verification) < 0.05
    assert result.model.graph.input == model.graph.input
    assert result.model.graph.output == model.graph.output
    kept = {t.name for t in model.graph.initializer} - {"W", "V", "b"}
    names = [t.name for t in result.model.graph.initializer]
    assert len({*names}) == len(names)
    assert all(any(name.startswith(old) for name in names) for old in kept)


def test_names_come_back() -> None:
    model = ODD["weight's scale"][0]
    found = onnxfde.optimize(model, data=ROWS, int8="dynamic").model.graph
    assert {"W_scale", "W_scale_1", "W_quantized"} <= {t.name for t in found.initializer}
    assert {"x_QuantizeLinear", "MatMul_0_quant", "Add_1"} <= {node.name for node in found.node}
    for mode in MODES:
        branches = build(
            "c = Constant <value = bool {1}> () z = If (c) <"
            "then_branch = t () => (float[N,8] a) { a = Gemm <transB = 1> (x, W, x_scale) }, "
            "else_branch = e () => (float[N,8] b) { b = Gemm <transB = 1> (x, W) }> "
            "y = MatMul(z, V)",
            inputs="float[N,8] x",
            outputs="float[N,8] y",
            W=weights(8, 8),
            V=weights(8, 8),
            x_scale=BIAS,
        )
        report = onnxfde.optimize(branches, data=ROWS, int8=mode).report
        assert relative(report.verification) < 0.05


@pytest.mark.parametrize(
    ("text", "parts", "mode", "message"),
    [
        ("[m] y = MatMul(x, U)", {"U": weights(2, 8, 8)}, "static", "m: its weight has 3 axes"),
        ("[m] y = Gemm <transA = 1> (x, W)", {}, "dynamic", "m: transA has no integer kernel"),
        ("[m] y = Gemm (x, W, x)", {}, "static", "m: its bias is not a constant vector"),
        ("[m] y = Gemm <beta = 2.0> (x, W, x)", {}, "dynamic", "m: alpha or beta multiplies what"),
        ("[m] y = MatMul(W, x)", {}, "dynamic", "m: its weight is the first factor"),
        (
            "k = Cast <to = 10> (x) [m] y = MatMul(k, V)",
            {"V": weights(8, 8, dtype=np.float16)},
            "dynamic",
            "m: its weight is in float16",
        ),
    ],
)
def test_the_reason_why_nothing_is_rounded_names_the_node(
    text: str, parts: dict[str, Array], mode: Int8, message: str
) -> None:
    kind = "float16" if "V" in parts else "float"
    model = dense(text, "float[8,8] x", outputs=f"{kind}[N,M] y", **parts)
    data = {"x": np.random.default_rng(0).uniform(-1, 1, (40, 8, 8)).astype(np.float32)}
    with pytest.raises(ModelError, match=f"--int8 finds nothing to do: {message}"):
        onnxfde.optimize(model, data=data, int8=mode)


def test_a_graph_that_8_bits_cannot_explain_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onnxfde.running.int8.settle", lambda model: None)
    monkeypatch.setattr("onnxfde.running.int8.unfit_nodes", lambda graph, mode: {})
    options: dict[str, Any] = {"data": ROWS, "int8": "static"}
    with pytest.raises(VerificationError, match="worse than a constant; nothing was written"):
        onnxfde.optimize(ODD["beta"][0], **options)
    assert onnxfde.optimize(ODD["beta"][0], **options, verify=False).report.int8
