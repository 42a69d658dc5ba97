"""Activations that are left alone are left alone for a reason that a user can read."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from onnxfde.graph.match import find_layers
from onnxfde.graph.model import Graph
from onnxfde.graph.other_activations import other_activations
from onnxfde.graph.protos import ModelProto
from tests.activation_spellings import CONSTANTS, GEMMS, SPELLINGS, WEIGHTS, spelled_layer_model
from tests.models import build

F = np.float32
W, B, V, C = (WEIGHTS[name].astype(F) for name in "WbVc")
OTHERS: dict[str, Any] = {
    "W2": np.ones((3, 6)),
    "row": np.full(6, 0.5),
    "table": np.ones((5, 6)),
    "minus": -1.0,
    "hundred": 100.0,
    "nan": np.full(6, np.nan),
    "infinite": np.inf,
    "undefined": np.nan,
}


def layer_model(body: str, inputs: str = "", outputs: str = "") -> ModelProto:
    """A layer 3-6-2 with these nodes between two Gemms."""
    found = {**WEIGHTS, **CONSTANTS, **OTHERS}
    words = GEMMS.format(body).replace("(", " ").replace(")", " ").replace(",", " ").split()
    used: dict[str, Any] = {n: np.asarray(a, F) for n, a in found.items() if n in words}
    return build(
        GEMMS.format(body), f"float[N,3] x{inputs}", f"float[N,2] y{outputs}", opset=17, **used
    )


def refusals(model: ModelProto) -> list[str]:
    matches, refused = find_layers(Graph(model))
    assert not matches
    return [refusal.reason for refusal in refused]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("s = Relu(h) z = Identity(h)", "'h' inside it is also read by Identity 'z'"),
        ("s = Relu(h) z = Softmax(s)", "'s' inside it is also read by Softmax 'z'"),
        ("g = Sigmoid(h) s = Mul(h, g) z = Exp(g)", "'g' inside it is also read by Exp 'z'"),
        ("r = Relu(h) s = Softmax(r)", "Softmax 's' stands after the activation; only Gemm,"),
        ("n = Softmax(h) s = Relu(n)", "Softmax 'n' stands before the activation"),
        ("n = LayerNormalization(h, row) s = Relu(n)", "LayerNormalization 'n' stands before"),
        ("g = Sigmoid(h) e = Exp(h) s = Mul(g, e)", "Exp 'e' stands beside the activation"),
        ("g = Gemm(x, W2) a = Add(h, g) s = Relu(a)", "it mixes values of Gemm 'first' and Gemm"),
        ("u = Gemm(x, W2) g = Sigmoid(h) r = Mul(g, h) s = Mul(r, u)",
         "it is a gated pair, a product of values of Gemm 'first' and Gemm 'u': not merged yet"),
        ("p = Div(h, root2) q = Erf(p) r = Add(q, one) t = Mul(h, row) s = Mul(t, r)",
         "Mul 't' inside the activation has a constant of shape 6; only single numbers fit"),
        ("p = Mul(h, row) g = Sigmoid(p) s = Mul(h, g)", "Mul 'p' inside the activation has a"),
        ("s = Clip(h, high, low)", "Clip 's' has limits with nothing between: 1.25, -0.75"),
        ("s = Clip(h, row)", "a limit of Clip 's' is not a single number"),
        ("s = PRelu(h, table)", "'table' of shape (5, 6) is not one value per feature"),
        ("s = PRelu(h, nan)", "a weight is NaN or infinite"),
        ("s = Pow(h, half)", "Pow 's' has the exponent 0.5; only whole numbers from 1 to 32"),
        ("s = Pow(h, minus)", "Pow 's' has the exponent -1; only whole numbers from 1 to 32"),
        ("s = Pow(h, hundred)", "Pow 's' has the exponent 100; only whole numbers from 1 to 32"),
        ("s = Pow(h, undefined)", "Pow 's' has the exponent nan; only whole numbers from 1 to 32"),
        ("s = Pow(h, row)", "Pow 's' inside the activation has a constant of shape 6"),
        ("g = Sigmoid(h) t = Tanh(h) s = Mul(g, t)",
         "its nodes (Sigmoid, Tanh, Mul) make no activation that is known"),
        ("r = Relu(h) s = Selu(r)", "its nodes (Relu, Selu) make no activation that is known"),
        ("t = Tanh(h) s = Sub(h, t)", "its nodes (Tanh, Sub) make no activation that is known"),
        ("t = Tanh(h) r = Mul(t, infinite) s = Mul(r, h)",
         "a constant of Mul 'r' is NaN or infinite"),
        ("g = PRelu(h, row) s = Mul(h, g)", "PRelu 'g' inside the activation has a constant of"),
    ],
)  # fmt: skip
def test_what_is_no_layer_is_refused(body: str, reason: str) -> None:
    (found,) = refusals(layer_model(body))
    assert reason in found


def test_a_step_that_double_precision_sees_is_no_softplus() -> None:
    wanted = SPELLINGS["Softplus: Where"]
    assert (
        "(Greater, Softplus, Where) make no" in refusals(spelled_layer_model(wanted, "double"))[0]
    )


def test_limits_and_slopes_that_a_caller_gives_are_no_constants() -> None:
    (reason,) = refusals(layer_model("s = PRelu(h, a)", ", float[6] a"))
    assert "PRelu 's' stands before the activation" in reason
    (reason,) = refusals(layer_model("s = Clip(h, a)", ", float a"))
    assert "Clip 's' stands before the activation" in reason
    (reason,) = refusals(layer_model("s = PRelu(h, row)", ", float[6] row"))
    assert "'row' is also a graph input" in reason


@pytest.mark.parametrize("value", ["h", "g", "s"])
def test_a_hidden_value_that_is_an_output_is_refused(value: str) -> None:
    model = layer_model("g = Sigmoid(h) s = Mul(h, g)", outputs=f", float[N,6] {value}")
    assert refusals(model) == [f"'{value}' inside it is an output of the graph"]


def test_a_bias_of_an_activation_on_another_axis_is_refused() -> None:
    model = build(
        "h = MatMul(W, x) s = com.microsoft.FastGelu(h, b) y = MatMul(V, s)",
        inputs="float[3,4] x",
        outputs="float[2,4] y",
        W=W,
        b=np.ones(4, F),
        V=V,
    )
    model.opset_import.add(domain="com.microsoft", version=1)
    assert refusals(model) == ["com.microsoft.FastGelu 's' adds its bias to another axis"]


@pytest.mark.parametrize(
    "body",
    [
        "h = Gemm <transB = 1> (x, W, b) t = Gemm <transB = 1> (h, V, c) y = Sigmoid(t)",
        "r = Relu(x) h = Gemm <transB = 1> (r, W, b) y = Gemm <transB = 1> (h, V, c)",
    ],
)
def test_an_activation_at_either_end_is_no_near_miss(body: str) -> None:
    graph = Graph(build(body, W=W, b=B, V=V, c=C))
    assert find_layers(graph) == ([], [])
    assert sum(other_activations(graph).values()) == 1


def test_activations_of_layers_are_not_among_the_others() -> None:
    wanted = SPELLINGS["SiLU"]
    model = spelled_layer_model(wanted)
    model.graph.node.append(helper.make_node("Tanh", ["y"], ["z"]))
    graph = Graph(model)
    matches, _ = find_layers(graph)
    assert other_activations(graph, [v for m in matches for v in m.values]) == {"Tanh": 1}
    assert other_activations(graph) == {"SiLU": 1, "Tanh": 1}


def test_layers_in_bodies_are_named() -> None:
    body = onnx.parser.parse_graph(
        "b () => (float[N,2] t) <float[3,6] A = {1,2,3,4,5,6,7,8,9,1,2,3,4,5,6,7,8,9}, "
        "float[6,2] D = {1,2,3,4,5,6,7,8,9,1,2,3}> "
        "{ h = MatMul(x, A) r = Relu(h) t = MatMul(r, D) }"
    )
    model = build("y = Identity(x)", inputs="float[N,3] x, bool yes", outputs="float[N,3] y")
    node = helper.make_node("If", ["yes"], ["z"], "choice", then_branch=body, else_branch=body)
    model.graph.node.append(node)
    (first, _) = refusals(model)
    assert "lies in a body of If 'choice'" in first


def test_old_rules_of_broadcasting_are_not_guessed() -> None:
    model = layer_model("s = PRelu(h, slopes)")
    model.opset_import[0].version = 6
    assert "opset 6 broadcasts by other rules" in refusals(model)[0]
