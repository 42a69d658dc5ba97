"""Proofs stop where a value would not fit into memory, before it is computed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from onnxfde.graph.model import Graph
from onnxfde.graph.nodes import op
from onnxfde.graph.reference import evaluate
from onnxfde.proof.certificate import certify
from onnxfde.proof.node_call import NodeCall, as_value
from onnxfde.proof.output_size import output_size
from tests.models import build, mlp, twins

HUGE = 2**33
W, B, V, C = twins()


@pytest.mark.parametrize(
    ("nodes", "constants"),
    [
        ("big = Expand(y, n)", {"n": [HUGE, 1, 1]}),
        ("big = Tile(y, n)", {"n": [HUGE, 1]}),
        ("big = Pad(y, n)", {"n": [0, HUGE, 0, 0]}),
        ("f = ConstantOfShape(n) big = Add(f, y)", {"n": [HUGE, 1]}),
        ("r = Range(zero, n, one) f = Cast <to = 1> (r) big = Mul(f, f)",
         {"zero": 0, "n": HUGE, "one": 1}),
        ("t = Unsqueeze(y, n) u = Gather <axis = 2> (t, i) a = Unsqueeze(u, m) big = Mul(a, u)",
         {"n": [2], "m": [3], "i": [0] * 100_000}),
    ],
)  # fmt: skip
def test_a_side_branch_that_is_too_large_is_not_followed(
    nodes: str, constants: dict[str, Any]
) -> None:
    after = f"h = Gemm <transB = 1> (x, W, b) s = Mul(h, h) y = Gemm <transB = 1> (s, V, c) {nodes}"
    weights: dict[str, Any] = {name: np.asarray(value) for name, value in constants.items()}
    outputs = "float[N,2] y, float big"
    old, new = (
        build(after, outputs=outputs, W=w, b=B, V=V, c=C, **weights) for w in (W, W * np.float32(2))
    )
    found = certify(Graph(old), Graph(new), {"x": (-1.0, 1.0)})
    assert found.unavailable
    assert "values, more than are followed" in found.unavailable


def test_an_input_that_is_too_large_is_not_followed() -> None:
    model = mlp(W, B, V, C)
    model.graph.input[0].type.tensor_type.shape.dim[1].dim_value = HUGE
    found = certify(Graph(model), Graph(mlp(W, B, V, C)), {"x": (-1.0, 1.0)})
    assert "values, more than are followed" in (found.unavailable or "")


FLOAT = np.ones((2, 3, 4, 5), np.float32)


@pytest.mark.parametrize(
    ("node", "inputs"),
    [
        ("y = Add(a, b)", [FLOAT, np.ones((7, 1, 1, 1, 1), np.float32)]),
        ("y = MatMul(a, b)", [FLOAT, np.ones((3, 5, 6), np.float32)]),
        ("y = Gemm <transA = 1, transB = 1> (a, b)", [FLOAT[0, 0], FLOAT[0, 0].T.copy()[:, :4]]),
        ("y = Gemm(a, b)", [FLOAT[0, 0], np.ones((5, 9), np.float32)]),
        ("y = Expand(a, b)", [FLOAT, np.array([6, 1, 1, 1, 1])]),
        ("y = Tile(a, b)", [FLOAT, np.array([1, 2, 3, 1])]),
        ("y = ConstantOfShape(a)", [np.array([3, 4])]),
        ("y = Range(a, b, c)", [np.int64(9), np.int64(2), np.int64(-2)]),
        ("y = Gather <axis = -1> (a, b)", [FLOAT, np.array([[0, 1], [2, 3]])]),
        ("y = Pad(a, b)", [FLOAT, np.array([0, 0, 1, 2, 0, 0, 3, 4])]),
        ("y = Pad(a, b, c, d)", [FLOAT, np.array([1, 2]), np.float32(0), np.array([-1])]),
        ("y = Concat <axis = 0> (a, b)", [FLOAT, FLOAT]),
        ("y = Transpose(a)", [FLOAT]),
    ],
)
def test_the_size_is_that_of_what_onnx_computes(node: str, inputs: list[Any]) -> None:
    made = build(node, inputs="float[1] a", outputs="float[1] y", opset=18).graph.node[0]
    arrays = [np.asarray(a) for a in inputs]
    (found,) = evaluate(made, arrays, 18)
    call = NodeCall(made, tuple(as_value(a) for a in arrays), 18)
    assert output_size(call, op(made)) == found.size
