"""Where the bias of a rewritten layer goes."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import onnxfde
from tests.models import build, outputs_of, shapes, twins

W, B, V, C = twins()
MANY_W, MANY_V = (
    np.random.default_rng(0).normal(size=s).astype(np.float32) for s in ((3, 8), (8, 2))
)
X = np.random.default_rng(1).uniform(-1, 1, (50, 3)).astype(np.float32)


@pytest.mark.parametrize("op", ["MatMul", "Gemm"])
def test_a_bias_is_added_only_where_it_is_needed(op: str) -> None:
    model = build(f"h = {op}(x, W) s = Mul(h, h) y = {op}(s, V)", W=W.T, V=V.T)
    around_zero = onnxfde.optimize(model, eps=0).model
    assert len(around_zero.graph.node) == 3
    assert shapes(around_zero) == {"W": [3, 3], "V": [3, 2]}
    model = build(f"h = {op}(x, W) s = Mul(h, h) y = {op}(s, V)", W=MANY_W, V=MANY_V)
    lossy = onnxfde.optimize(model, neurons=2, input_range=(0, 1)).model
    onnx.checker.check_model(lossy, full_check=True)
    assert [n.op_type for n in lossy.graph.node] == (
        ["MatMul", "Add", "Mul", "MatMul", "Add"] if op == "MatMul" else ["Gemm", "Mul", "Gemm"]
    )
    assert set(shapes(lossy)) == {"W", "V", "h_bias", "y_bias"}
    assert lossy.graph.output[0].name == "y"


def test_an_outgoing_bias_goes_before_all_readers_of_the_value() -> None:
    model = build(
        "h = MatMul(x, W) s = Mul(h, h) y = MatMul(s, V) z = Neg(y) z2 = Abs(y)",
        outputs="float[N,2] z, float[N,2] z2",
        W=W.T,
        V=V.T,
    )
    result = onnxfde.optimize(model, neurons=2, input_range=(0, 1)).model
    assert [n.op_type for n in result.graph.node][-3:] == ["Add", "Neg", "Abs"]
    z, z2 = outputs_of(result, X)
    np.testing.assert_array_equal(np.abs(z), z2)


def test_an_outgoing_bias_for_one_reader() -> None:
    model = build("h = MatMul(x, W) s = Mul(h, h) d = MatMul(s, V) y = Abs(d)", W=W.T, V=V.T)
    result = onnxfde.optimize(model, neurons=2, input_range=(0, 1)).model
    assert [n.op_type for n in result.graph.node][-2:] == ["Add", "Abs"]
    onnx.checker.check_model(result, full_check=True)


@pytest.mark.parametrize(
    ("rest", "outputs"),
    [
        ("y = Add(d, c)", "float[N,2] y, float[N,2] d"),
        ("y = Add(d, c) z = Neg(d)", "float[N,2] y, float[N,2] z"),
    ],
)
def test_an_add_is_the_layer_s_bias_only_if_nothing_else_reads_the_sum(
    rest: str, outputs: str
) -> None:
    model = build(
        f"h = MatMul(x, W) s = Mul(h, h) d = MatMul(s, V) {rest}",
        outputs=outputs,
        W=W.T,
        V=V.T,
        c=C,
    )
    for settings in ({"eps": 0.0}, {"neurons": 2, "input_range": (0, 1)}):
        result = onnxfde.optimize(model, **settings)
        assert shapes(result.model)["W"] in ([3, 3], [3, 2])
        y, other = outputs_of(result.model, X)
        np.testing.assert_allclose(
            y, (other if "Neg" not in rest else -other) + C, rtol=1e-5, atol=1e-5
        )


def test_a_bias_reaches_readers_inside_bodies() -> None:
    model = build(
        "h = MatMul(x, W) s = Mul(h, h) d = MatMul(s, V) y = If(k) <"
        "then_branch = a () => (float[N,2] y1) { y1 = Neg(d) }, "
        "else_branch = e () => (float[N,2] y2) { y2 = Abs(d) }>",
        inputs="float[N,3] x, bool k",
        W=W.T,
        V=V.T,
    )
    plain = build("h = MatMul(x, W) s = Mul(h, h) d = MatMul(s, V) y = Neg(d)", W=W.T, V=V.T)
    settings = {"neurons": 2, "input_range": (0, 1)}
    inside, outside = (onnxfde.optimize(m, **settings).model for m in (model, plain))  # type: ignore[arg-type]
    assert "d_bias" in shapes(inside)
    yes = np.array([True])
    np.testing.assert_allclose(
        outputs_of(inside, X, k=yes)[0].reshape(-1, 2),
        outputs_of(outside, X)[0],
        rtol=1e-5,
        atol=1e-5,
    )


def test_a_new_bias_beside_constant_nodes_is_a_constant_node() -> None:
    model = build("y = Identity(x)", ir=3, opset=8)
    del model.graph.node[:]
    for name, values in (("W", MANY_W), ("V", MANY_V)):
        tensor = numpy_helper.from_array(np.asarray(values, order="C"))
        model.graph.node.append(helper.make_node("Constant", [], [name], value=tensor))
    parsed = build("h = MatMul(x, W) s = Mul(h, h) y = MatMul(s, V)")
    model.graph.node.extend(parsed.graph.node)
    result = onnxfde.optimize(model, neurons=2, input_range=(0, 1)).model
    assert not result.graph.initializer
    made = [n.output[0] for n in result.graph.node if n.op_type == "Constant"]
    assert {"h_bias", "y_bias"} < set(made)
    onnx.checker.check_model(result, full_check=True)
