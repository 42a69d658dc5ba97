"""What is no polynomial of degree 2 between affine maps is called what it is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import onnxfde
from onnxfde.graph.match import find_layers
from onnxfde.graph.model import Graph
from onnxfde.graph.other_activations import other_activations
from onnxfde.graph.protos import ModelProto
from tests.models import build
from tests.polynomial_models import WEIGHTS, polynomial_layer


def refusals(model: ModelProto) -> list[str]:
    matches, refused = find_layers(Graph(model))
    assert not matches
    return [refusal.reason for refusal in refused]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("q = Mul(h, h) p = Mul(q, holes) s = Add(p, h)",
         "it is linear, not quadratic, for 2 of 6 features"),
        (
            "q = Mul(h, h) p = Sub(q, q) s = Add(p, h)",
            "it is linear: its square terms are 0 or cancel",
        ),
        ("q = Mul(h, h) p = Mul(q, k) s = Mul(p, h)",
         "Mul 'p' inside the activation has a constant of shape 6; only single numbers fit"),
        ("q = Mul(h, h) p = Pow(h, half) s = Add(q, p)", "Pow 'p' has the exponent 0.5; only"),
        ("q = Mul(h, h) p = Div(q, h) s = Add(p, q)", "(Mul, Div, Add) make no activation that"),
        ("q = Mul(h, h) r = Relu(h) s = Add(q, r)", "(Mul, Relu, Add) make no activation that is"),
        ("q = Mul(h, h) p = Add(q, h) s = Sin(p)", "(Mul, Add, Sin) make no activation that is"),
        ("q = Mul(h, h) r = Exp(h) s = Add(q, r)", "Exp 'r' stands beside the activation"),
        ("q = Mul(h, h) p = Add(q, h) s = Exp(p)", "Exp 's' stands after the activation"),
        ("r = Log(h) q = Mul(r, r) s = Add(q, r)", "Log 'r' stands before the activation"),
        ("q = Mul(h, h) s = Add(q, h) z = Exp(q)", "'q' inside it is also read by Exp 'z'"),
        ("q = Mul(h, h) s = Add(q, h) z = Identity(h)", "'h' inside it is also read by Identity"),
        ("g = Gemm(x, W2) q = Mul(h, h) s = Add(q, g)", "it mixes values of Gemm 'first' and Gemm"),
        ("q = Mul(h, h) f = Flatten(h) s = Add(q, f)", "Flatten 'f' stands inside the polynomial"),
        ("q = Mul(h, h) p = Add(h, table) s = Add(q, p)", "'table' of shape (5, 6) is not one"),
        ("n = BatchNormalization <training_mode = 1> (h, k, l, m, var) s = Mul(n, n)",
         "BatchNormalization 'n' may be in training mode"),
        ("q = Mul(h, h) s = BatchNormalization(q, k, l, m, short)",
         "does not have four constants with one value per feature"),
    ],
)  # fmt: skip
def test_a_refusal_names_the_obstacle(body: str, reason: str) -> None:
    other: dict[str, Any] = {
        "holes": [1, 0, 2, 1, 0, 2],
        "three": 3.0,
        "W2": np.ones((3, 6)),
        "table": np.ones((5, 6)),
        "short": [1.0],
    }
    model = polynomial_layer(body, **other)
    (found,) = refusals(model)
    assert reason in found
    assert onnxfde.optimize(model, eps=0, verify=False).model == model


def test_powers_that_differ_between_features_are_no_square() -> None:
    body = "q = Mul(h, h) p = Pow(h, mixed) s = Sub(p, q)"
    model = polynomial_layer(body, mixed=[2, 1, 2, 2, 1, 2])
    assert refusals(model) == ["it is linear, not quadratic, for 4 of 6 features"]


def test_a_coefficient_that_a_caller_may_override_is_no_constant() -> None:
    model = polynomial_layer("q = Mul(h, h) p = Mul(q, half) s = Add(p, h)")
    model.graph.input.append(build("y = Identity(x)", inputs="float half").graph.input[0])
    assert "the weight 'half' is also a graph input" in refusals(model)[0]


def test_a_polynomial_that_is_an_output_is_left_alone() -> None:
    model = polynomial_layer("q = Mul(h, h) s = Add(q, h)")
    model.graph.output.append(build("y = Identity(x)", outputs="float[N,6] q").graph.output[0])
    assert refusals(model) == ["'q' inside it is an output of the graph"]


def test_a_normalization_of_other_axes_is_refused() -> None:
    """On three axes BatchNormalization acts on the second, and the features are on the last."""
    model = build(
        "h = MatMul(x, W) n = BatchNormalization(h, k, k, k, k) s = Mul(n, n) y = MatMul(s, V)",
        inputs="float[N,6,3] x",
        outputs="float[N,6,2] y",
        W=WEIGHTS["W"].T.astype(np.float32),
        V=WEIGHTS["V"].T.astype(np.float32),
        k=np.ones(6, np.float32),
    )
    reason = "BatchNormalization 'n' does not normalize the features of the affine map"
    assert refusals(model) == [reason]


NORMS = {
    "layer normalization": "a = ReduceMean <axes = [-1]> (h) d = Sub(h, a) q = Pow(d, two) "
    "v = ReduceMean <axes = [-1]> (q) r = Sqrt(v) s = Div(d, r)",
    "root mean square": "q = Mul(h, h) i = Identity(q) v = ReduceMean <axes = [-1]> (i) "
    "r = Sqrt(v) s = Div(h, r)",
}


@pytest.mark.parametrize("norm", NORMS)
def test_the_square_of_a_normalization_is_no_activation(norm: str) -> None:
    model = polynomial_layer(NORMS[norm])
    assert refusals(model) == []
    assert "no activation between two dense layers" in (
        onnxfde.optimize(model).report.unchanged or ""
    )


@pytest.mark.parametrize(
    ("body", "names"),
    [
        ("s = Clip(h)", {"Clip": 1}),
        ("b2 = Add(h, one) s = Sin(b2)", {"Sin": 1}),
        ("g = Sigmoid(h) s = Mul(h, g)", {"SiLU": 1}),
        ("p = Mul(h, three) g = Sigmoid(p) s = Mul(g, h)", {"SiLU": 1}),
        ("g = HardSigmoid(h) s = Mul(h, g)", {"HardSwish": 1}),
        ("p = Softplus(h) g = Tanh(p) s = Mul(h, g)", {"Mish": 1}),
        ("g = Sigmoid(h) t = Tanh(h) s = Mul(t, g)", {"Sigmoid": 1, "Tanh": 1}),
        ("r = Relu(h) s = Selu(r)", {"Relu": 1, "Selu": 1}),
        ("r = Relu(h) s = Sqrt(r)", {"Relu": 1}),
    ],
)
def test_other_activations_are_called_by_their_names(body: str, names: dict[str, int]) -> None:
    assert other_activations(Graph(polynomial_layer(body))) == names
    model = build(
        f"h = ConvTranspose(x, K) {body} y = MatMul(s, V)",
        inputs="float[N,3,4,4] x",
        outputs="float[N,3,4,2] y",
        K=np.ones((3, 3, 1, 1), np.float32),
        V=np.ones((4, 2), np.float32),
        one=np.float32(1),
        three=np.float32(3),
    )
    said = onnxfde.optimize(model, verify=False).report.unchanged or ""
    assert "; its activations are " + ", ".join(f"{n} × {k}" for k, n in names.items()) in said


def test_functions_that_prepare_data_are_no_activations() -> None:
    model = build("c = Clip(x) s = Sin(c) y = MatMul(s, W)", W=np.ones((3, 2), np.float32))
    assert other_activations(Graph(model)) == {}


def test_a_long_sum_of_branches_is_not_followed_to_its_start() -> None:
    adds = " ".join(f"h{i + 1} = Add(h{i}, h{i})" for i in range(80))
    model = polynomial_layer(f"h0 = Identity(h) {adds} s = Mul(h80, h80)")
    assert refusals(model) == ["it is computed by more than 64 nodes"]
