"""Constants behind the second map of a layer belong to it."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import onnx
import pytest

import onnxfde
from onnxfde.graph.match import find_layers
from onnxfde.graph.model import Graph
from onnxfde.graph.protos import ModelProto
from tests.models import build, outputs_of

RNG = np.random.default_rng(0)
W, V = (RNG.normal(size=s).astype(np.float32) for s in ((3, 8), (8, 2)))
B, C, MEAN, BIAS = (RNG.normal(size=n).astype(np.float32) for n in (8, 2, 2, 2))
S = np.array([0.01, 3.0], np.float32)
"""Factors so different that it matters for a relative error whether they are part of the layer."""
VARIANCE = np.array([0.5, 2.0], np.float32)
X = RNG.uniform(-1, 1, (50, 3)).astype(np.float32)
FIRST = "h = Gemm(x, W, b) r = Relu(h)"
NORMALIZED = "n = BatchNormalization(d, s, t, m, v) y = Abs(n)"


def network(rest: str, outputs: str = "float[N,2] y") -> ModelProto:
    """A layer of ReLUs with a rest behind it."""
    constants: dict[str, Any] = {"V": V, "c": C, "s": S, "t": BIAS, "m": MEAN, "v": VARIANCE}
    words = re.findall(r"\w+", rest)
    used = {name: a for name, a in constants.items() if name in words}
    return build(f"{FIRST} {rest}", outputs=outputs, W=W, b=B, **used)


@pytest.mark.parametrize(
    ("rest", "nodes"),
    [
        (f"d = Gemm(r, V, c) {NORMALIZED}", ["Gemm", "Abs"]),
        (f"e = MatMul(r, V) d = Add(e, c) {NORMALIZED}", ["MatMul", "Add", "Abs"]),
        (f"d = MatMul(r, V) {NORMALIZED}", ["MatMul", "Add", "Abs"]),
        ("e = MatMul(r, V) d = Mul(e, s) y = Add(d, c)", ["MatMul", "Add"]),
        ("e = MatMul(r, V) d = Add(c, e) y = Mul(s, d)", ["MatMul", "Add"]),
        ("e = Gemm(r, V) d = Div(e, s) f = Identity(d) y = Sub(c, f)", ["Gemm", "Identity"]),
        ("d = Gemm(r, V) y = Neg(d)", ["Gemm"]),
    ],
)
def test_they_are_folded_when_the_layer_is_written(rest: str, nodes: list[str]) -> None:
    model = network(rest)
    result = onnxfde.optimize(model, neurons=7).model
    onnx.checker.check_model(result, full_check=True)
    kinds = [node.op_type for node in result.graph.node]
    assert kinds[kinds.index("Relu") + 1 :] == nodes
    assert result.graph.output[0].name == "y"
    (found,), _ = find_layers(Graph(model))
    (wanted,) = outputs_of(model, X)
    made = found.layer(X.astype(np.float64))
    np.testing.assert_allclose(np.abs(made), np.abs(wanted), rtol=0, atol=1e-4)
    (got,) = outputs_of(result, X)
    change = np.linalg.norm(got - wanted) / np.linalg.norm(wanted - wanted.mean(axis=0))
    assert change < 0.3  # one neuron of eight is left out


@pytest.mark.parametrize("eps", [0.1, 0.3])
def test_a_normalization_gives_the_same_layer_folded_or_not(eps: float) -> None:
    factor = S / np.sqrt(VARIANCE + np.float32(1e-5))
    folded = build(
        f"{FIRST} d = Gemm(r, V, c) y = Abs(d)",
        W=W, b=B, V=(V * factor).astype(np.float32), c=(factor * (C - MEAN) + BIAS),
    )  # fmt: skip
    spelled = network(f"d = Gemm(r, V, c) {NORMALIZED}")
    counts = [
        onnxfde.optimize(m, eps=eps).report.layers[0].neurons_after for m in (folded, spelled)
    ]
    assert counts[0] == counts[1]
    assert counts[0] < len(B)


@pytest.mark.parametrize(
    ("rest", "outputs"),
    [
        (f"d = Gemm(r, V, c) {NORMALIZED}", "float[N,2] y, float[N,2] d"),
        (f"d = Gemm(r, V, c) {NORMALIZED} z = Neg(d)", "float[N,2] y, float[N,2] z"),
        ("d = Gemm(r, V, c) y = Mul(d, d)", "float[N,2] y"),
    ],
)
def test_a_value_that_something_else_reads_ends_the_layer(rest: str, outputs: str) -> None:
    model = network(rest, outputs)
    (found,), _ = find_layers(Graph(model))
    assert found.result == "d"
    result = onnxfde.optimize(model, neurons=4).model
    onnx.checker.check_model(result, full_check=True)
    at = [node.op_type for node in model.graph.node].index("Gemm", 1)
    assert [n.op_type for n in result.graph.node] == [n.op_type for n in model.graph.node]
    assert result.graph.node[at].output[0] == "d"


def test_a_factor_that_the_stored_type_cannot_hold_stays_behind() -> None:
    tiny = np.array([1e-7, 1.0], np.float16)
    weights: dict[str, Any] = {"W": W, "b": B, "V": V, "c": C}
    model = build(
        "h = Gemm(x, W, b) r = Relu(h) d = Gemm(r, V, c) y = Mul(d, s)",
        inputs="float16[N,3] x",
        outputs="float16[N,2] y",
        s=tiny,
        **{name: a.astype(np.float16) for name, a in weights.items()},
    )
    (found,), _ = find_layers(Graph(model))
    assert found.result == "d"
