"""What is no layer is refused with its reason."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import onnxfde
from onnxfde.graph.match import find_layers
from onnxfde.graph.model import Graph
from onnxfde.graph.protos import ModelProto
from tests.models import build, mlp, twins

W, B, V, C = twins()
GEMMS = "h = Gemm <transB = 1> (x, W, b) {} y = Gemm <transB = 1> (s, V, c)"
WEIGHTS: dict[str, Any] = {"W": W, "b": B, "V": V, "c": C}


def refusals(model: ModelProto) -> list[str]:
    matches, refused = find_layers(Graph(model))
    assert not matches
    return [refusal.reason for refusal in refused]


@pytest.mark.parametrize(
    ("body", "extra", "reason"),
    [
        (GEMMS.format("s = Mul(h, h) z = Relu(h)"), {}, "'h' inside it is also read by Relu 'z'"),
        (GEMMS.format("s = Mul(h, h) z = Relu(s)"), {}, "'s' inside it is also read by Relu 'z'"),
        (GEMMS.format("r = Exp(h) s = Mul(r, r)"), {}, "Exp 'r' stands before the activation"),
        (GEMMS.format("t = Mul(h, h) s = Exp(t)"), {}, "Exp 's' stands after the activation"),
        (GEMMS.format("q = Div(one, h) s = Mul(q, q)"), {"one": np.float32(1)},
         "its nodes (Div, Mul) make no activation that is known"),
        (GEMMS.format("q = Add(h, x2) s = Mul(q, q)"), {}, "Add 'q' reads 'x2', which is an input"),
        ("h = Mul(x, x) y = Gemm <transB = 1> (h, V2)", {"V2": V[:, :3]}, "'x', which it reads"),
        (GEMMS.replace("transB = 1> (x, W, b)", "transA = 1> (x, W2)").format("s = Mul(h, h)"),
         {"W2": np.ones((1, 6), np.float32)}, "transposes its activation"),
        (GEMMS.replace("(x, W, b)", "(x, W, x2)").format("s = Mul(h, h)"), {}, "C of Gemm 'h'"),
        (GEMMS.replace("(x, W, b)", "(x, W, tall)").format("s = Mul(h, h)"),
         {"tall": np.ones((50, 6), np.float32)}, "'tall' of shape (50, 6) is not one value"),
        (GEMMS.format("q = Mul(h, deep) s = Mul(q, q)"),
         {"deep": np.ones((1, 1, 6), np.float32)}, "'deep' has more axes"),
        ("h = MatMul(x, W3) s = Mul(h, h) y = MatMul(s, V4)",
         {"W3": np.ones((1, 3, 6), np.float32), "V4": V.T}, "is not a matrix but (1, 3, 6)"),
        ("h = MatMul(x, x2) s = Mul(h, h) y = MatMul(s, V4)", {"V4": V.T}, "exactly one constant"),
        ("h = Gemm(W, x2) s = Mul(h, h) y = Gemm <transB = 1> (s, V5)",
         {"V5": np.ones((2, 6), np.float32)}, "is its first input"),
        ("h = MatMul(W, x2) s = Mul(h, h) y = MatMul(s, V5)",
         {"V5": np.ones((6, 2), np.float32)}, "features on different axes"),
        (GEMMS.format("f = Flatten <axis = 0> (h) s = Mul(f, f)"), {}, "mixes features"),
        (GEMMS.format("q = Dropout(h, half, yes) s = Mul(q, q)"),
         {"half": np.float32(0.5), "yes": np.array(True)}, "may be in training mode"),
        (GEMMS.format("q, k = Dropout(h, half) s = Mul(q, q) z = Not(k)"),
         {"half": np.float32(0.5)}, "the mask of Dropout 'q' is used"),
        ("h = MatMul(x, I) s = Mul(h, h) y = MatMul(s, I)",
         {"I": np.ones((3, 3), np.int32)}, "not a floating-point tensor"),
    ],
)  # fmt: skip
def test_what_is_no_layer_is_refused_with_a_reason(
    body: str, extra: dict[str, Any], reason: str
) -> None:
    used = {name: a for name, a in WEIGHTS.items() if f" {name}" in body or f"({name}" in body}
    model = build(body, inputs="float[N,3] x, float[3,6] x2", **used, **extra)
    (found,) = refusals(model)
    assert reason in found
    untouched = onnxfde.optimize(model, eps=0, verify=False) if "I" not in extra else None
    if untouched is not None:
        assert untouched.model == model


def test_a_hidden_value_that_is_a_graph_output_is_refused() -> None:
    model = build(GEMMS.format("s = Mul(h, h)"), outputs="float[N,2] y, float[N,6] s", **WEIGHTS)
    assert refusals(model) == ["'s' inside it is an output of the graph"]


@pytest.mark.parametrize("name", ["W", "b", "V", "c"])
def test_a_weight_that_a_caller_may_override_is_refused(name: str) -> None:
    shape = ",".join(map(str, WEIGHTS[name].shape))
    model = build(
        GEMMS.format("s = Mul(h, h)"), inputs=f"float[N,3] x, float[{shape}] {name}", **WEIGHTS
    )
    (reason,) = refusals(model)
    assert f"the weight '{name}' is also a graph input" in reason


def test_a_scale_that_a_caller_may_override_is_refused() -> None:
    body = GEMMS.format("q = Mul(h, k) s = Mul(q, q)")
    model = build(body, inputs="float[N,3] x, float[6] k", **WEIGHTS, k=np.ones(6, np.float32))
    assert "'k' is also a graph input" in refusals(model)[0]


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_weights_that_are_not_finite_are_refused(bad: float) -> None:
    w = W.copy()
    w[0, 0] = bad
    assert refusals(mlp(w, B, V, C)) == ["a weight is NaN or infinite"]


def test_maps_that_do_not_fit_are_refused() -> None:
    model = build(
        "h = MatMul(x, W) f = Flatten(h) s = Mul(f, f) y = MatMul(s, V)",
        inputs="float[1,3] x",
        W=W.T,
        V=np.ones((5, 2), np.float32),
    )
    assert "makes 6 features and the second one reads 5" in refusals(model)[0]


def test_maps_of_different_types_are_refused() -> None:
    model = build(
        "h = MatMul(x, W) s = Mul(h, h) y = MatMul(s, V)", W=W.T, V=V.T.astype(np.float16)
    )
    assert "weights of different types" in refusals(model)[0]


def test_an_unknown_rank_is_refused_where_it_matters() -> None:
    model = build("h = MatMul(W, x) s = Mul(h, h) y = MatMul(V, s)", W=W, V=V)
    model.graph.input[0].type.tensor_type.ClearField("shape")
    assert "rank of what 'h' multiplies from the left is not known" in refusals(model)[0]
    model = build("h = MatMul(x, W) f = Flatten(h) s = Mul(f, f) y = MatMul(s, V)", W=W.T, V=V.T)
    model.graph.input[0].type.tensor_type.ClearField("shape")
    assert "rank of what Flatten 'f' reads is not known" in refusals(model)[0]


def test_a_flatten_between_maps_on_the_left_is_refused() -> None:
    model = build(
        "h = MatMul(W, x) f = Flatten <axis = 1> (h) s = Mul(f, f) y = MatMul(V, s)",
        inputs="float[3,1] x",
        outputs="float[2,1] y",
        W=W,
        V=V,
    )
    assert "mixes features" in refusals(model)[0]


def test_squares_in_bodies_and_functions_are_named() -> None:
    body = onnx.parser.parse_graph("b () => (float[N,3] t) { t = Mul(x, x) }")
    other = onnx.parser.parse_graph("e () => (float[N,3] t) { t = Identity(x) }")
    model = build("y = Identity(x)", inputs="float[N,3] x, bool yes", outputs="float[N,3] y")
    node = helper.make_node("If", ["yes"], ["z"], "choice", then_branch=body, else_branch=other)
    model.graph.node.append(node)
    function = onnx.parser.parse_function(
        '<opset_import: ["": 17], domain: "own"> f (a) => (r) { r = Mul(a, a) }'
    )
    model.functions.append(function)
    reasons = refusals(model)
    assert "lies in a body of If 'choice'" in reasons[0]
    assert "lies in the local function 'f'" in reasons[1]


def test_a_value_read_inside_a_body_counts_as_used() -> None:
    body = onnx.parser.parse_graph("b () => (float[N,6] t) { t = Identity(h) }")
    model = build(GEMMS.format("s = Mul(h, h)"), inputs="float[N,3] x, bool yes", **WEIGHTS)
    model.graph.node.append(
        helper.make_node("If", ["yes"], ["z"], "choice", then_branch=body, else_branch=body)
    )
    assert refusals(model) == ["'h' inside it is also read by If 'choice'"]


def test_a_dropout_mask_that_is_a_graph_output_is_refused() -> None:
    body = GEMMS.format("q, mask = Dropout(h) s = Mul(q, q)")
    model = build(body, outputs="float[N,2] y, bool[N,6] mask", **WEIGHTS)
    assert refusals(model) == ["the mask of Dropout 'q' is used"]


def test_old_broadcasting_rules_are_not_guessed() -> None:
    model = build("h = MatMul(x, W) s = Mul(h, h) y = MatMul(s, V)", opset=6, W=W.T, V=V.T)
    assert "opset 6 broadcasts by other rules" in refusals(model)[0]


def test_a_power_of_two_inside_a_body_is_named() -> None:
    model = build(
        "y = If(k) <then_branch = a () => (float[N,3] y1) { y1 = Pow(x, two) }, "
        "else_branch = e () => (float[N,3] y2) { y2 = Identity(x) }>",
        inputs="float[N,3] x, bool k",
        outputs="float[N,3] y",
        two=np.float32(2),
    )
    assert "lies in a body of If 'y'" in refusals(model)[0]
