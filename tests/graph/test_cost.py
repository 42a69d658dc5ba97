"""Multiply-adds and stored weights, counted on paper."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

import onnxfde
from onnxfde.graph.cost import multiply_adds, one_sample, stored_weights
from onnxfde.graph.model import Graph
from tests.models import build, mlp, twins

RNG = np.random.default_rng(0)


def normal(*shape: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    return RNG.normal(size=shape).astype(np.float32)


def test_a_network_costs_a_multiplication_for_each_weight_and_sample() -> None:
    model = mlp(*twins(distinct=4, copies=2, inputs=3, outputs=2))
    assert multiply_adds(model, {"x": (1, 3)}) == 8 * 3 + 2 * 8
    assert multiply_adds(model, {"x": (5, 3)}) == 5 * (8 * 3 + 2 * 8)
    assert stored_weights(model) == 8 * 3 + 8 + 2 * 8 + 2


def test_convolutions_cost_a_window_for_each_value() -> None:
    model = build(
        "h = Conv <strides = [2, 2], pads = [1, 1, 1, 1], group = 2> (x, W) y = Flatten(h)",
        inputs="float[1,4,8,8] x",
        outputs="float[1,M] y",
        W=normal(6, 2, 3, 3),
    )
    assert multiply_adds(model, {"x": (1, 4, 8, 8)}) == 6 * 4 * 4 * (2 * 3 * 3)


def test_a_transposed_product_is_counted_along_the_right_axis() -> None:
    model = build(
        "y = Gemm <transA = 1> (x, W)",
        inputs="float[5,N] x",
        outputs="float[N,2] y",
        W=normal(5, 2),
    )
    assert multiply_adds(model, {"x": (5, 7)}) == 7 * 2 * 5


def test_batched_products_are_counted_whole() -> None:
    model = build(
        "y = MatMul(x, W)", inputs="float[N,4,3] x", outputs="float[N,4,2] y", W=normal(3, 2)
    )
    assert multiply_adds(model, {"x": (6, 4, 3)}) == 6 * 4 * 2 * 3


@pytest.mark.parametrize("opset", [11, 13, 17])
def test_lengths_that_are_asked_for_are_followed(opset: int) -> None:
    """x.view(x.size(0), -1), twice, as torch writes it."""
    flatten = "{0} = Shape({1}) {0}i = Gather({0}, k) {0}c = Concat <axis = 0> ({0}i, l) "
    model = build(
        flatten.format("s", "x") + "f = Reshape(x, sc) h = MatMul(f, A) "
        "g = Reshape(h, w) " + flatten.format("t", "g") + "r = Reshape(g, tc) y = MatMul(r, B)",
        inputs="float[N,3,4] x",
        outputs="float[N,M] y",
        opset=opset,
        k=np.array([0]),
        l=np.array([-1]),
        w=np.array([-1, 2, 5]),
        A=normal(12, 10),
        B=normal(10, 2),
    )
    assert multiply_adds(model, {"x": (6, 3, 4)}) == 6 * (12 * 10 + 10 * 2)


@pytest.mark.parametrize(
    "body",
    [
        "c = ReduceSum <keepdims = 0> (x) b = Cast <to = 9> (c) "
        "y = If (b) <then_branch = t () => (a) { a = MatMul(x, W) }, "
        "else_branch = e () => (a) { a = MatMul(x, W) }>",
        "z = NonZero(x) f = Cast <to = 1> (z) y = MatMul(f, W)",
        'y = Einsum <equation = "ij,jk->ik"> (x, W)',
    ],
)
def test_what_cannot_be_told_is_not_guessed(body: str) -> None:
    model = build(body, inputs="float[2,3] x", outputs="float[A,B] y", W=normal(3, 3))
    assert multiply_adds(model, {"x": (2, 3)}) is None


def test_quantized_weights_count_and_their_scales_do_not() -> None:
    model = build(
        "w = DequantizeLinear <axis = 0> (W, s, z) b = DequantizeLinear(B, t) "
        "y = Gemm <transB = 1> (x, w, b)",
        W=RNG.integers(-127, 127, (2, 3)).astype(np.int8),
        s=np.ones(2, np.float32),
        z=np.zeros(2, np.int8),
        B=np.zeros(2, np.int32),
        t=np.float32(1.0),
    )
    assert stored_weights(model) == 2 * 3 + 2
    assert multiply_adds(model, {"x": (1, 3)}) == 6


def test_an_int8_model_has_as_many_parameters_as_before() -> None:
    model = mlp(*twins(distinct=8, inputs=16, outputs=4))
    small = onnxfde.optimize(model, skip=("*",), int8="dynamic").model
    assert stored_weights(small) == stored_weights(model)
    assert multiply_adds(small, {"x": (2, 16)}) == multiply_adds(model, {"x": (2, 16)})


def test_integer_operators_hold_weights_too() -> None:
    model = build(
        "y = QLinearMatMul(x, s, z, W, s, z, s, z)",
        inputs="uint8[N,3] x",
        outputs="uint8[N,2] y",
        W=RNG.integers(0, 255, (3, 2)).astype(np.uint8),
        s=np.ones(1, np.float32),
        z=np.zeros(1, np.uint8),
    )
    assert stored_weights(model) == 6
    assert multiply_adds(model, {"x": (4, 3)}) == 24


def test_lengths_that_are_computed_from_constants_are_known() -> None:
    model = build(
        "z = ConstantOfShape <value = int64[1] {0}> (two) a = Concat <axis = 0> (ends, z) "
        "pads = Reshape(a, all) h = Pad(x, pads) c = Conv(h, W) m = Cast <to = 7> (large) "
        "f = Slice(m, zero, two) n = Add(f, f) y = Reshape(c, n)",
        inputs="float[N,2,4] x",
        outputs="float[N,M] y",
        two=np.array([2]),
        zero=np.array([0]),
        ends=np.array([0, 0, 1, 0]),
        all=np.array([-1]),
        W=normal(3, 2, 2),
        large=np.full(100, -0.5, np.float32),
    )
    assert multiply_adds(model, {"x": (5, 2, 4)}) == 5 * 3 * 4 * (2 * 2)


OPEN = "float[N,2,H,W] x"


def sliced(kernel: int) -> onnx.ModelProto:
    """A Conv without padding, and a Slice behind it, on maps of any size."""
    ends: Any = {"from": np.array([0]), "to": np.array([2**31]), "axis": np.array([3])}
    body = "h = Conv(x, W) s = Slice(h, from, to, axis) y = Conv(s, V)"
    weights: Any = {"W": normal(6, 2, kernel, kernel), "V": normal(3, 6, 1, 1)}
    return build(body, OPEN, "float[N,3,P,Q] y", **ends, **weights)


def test_lengths_that_windows_move_over_are_taken_from_data_or_not_known() -> None:
    graph = Graph(sliced(3))
    assert one_sample(graph) == {"x": (1, 2, None, None)}
    assert multiply_adds(graph.model, one_sample(graph)) is None
    seen = one_sample(graph, {"x": (64, 2, 8, 8)})
    assert seen == {"x": (1, 2, 8, 8)}
    assert multiply_adds(graph.model, seen) == 36 * (6 * 2 * 9 + 3 * 6)


@pytest.mark.parametrize("length", [1, 2])
def test_maps_smaller_than_a_window_have_no_cost(length: int) -> None:
    """onnx ends the process if it infers the shape of a Slice of a negative length."""
    assert multiply_adds(sliced(3), {"x": (1, 2, length, length)}) is None


def test_open_lengths_without_windows_are_one() -> None:
    model = build("y = MatMul(x, W)", "float[N,S,4] x", "float[N,S,2] y", W=normal(4, 2))
    assert one_sample(Graph(model)) == {"x": (1, 1, 4)}


def test_a_pipeline_of_sklearn_is_counted() -> None:
    """Shapes behind its own operators, and their work, which is no product, are known."""
    model = build(
        "z = ai.onnx.ml.Scaler <offset = [0.0], scale = [2.0]> (x) h = MatMul(z, W) r = Relu(h) "
        "p = MatMul(r, V) t = ArgMax <axis = 1> (p) "
        "y = ai.onnx.ml.ArrayFeatureExtractor (names, t)",
        outputs="float y",
        W=np.ones((3, 6), np.float32),
        V=np.ones((6, 2), np.float32),
        names=np.ones(2, np.float32),
    )
    model.opset_import.add(domain="ai.onnx.ml", version=3)
    assert multiply_adds(model, {"x": (1, 3)}) == 3 * 6 + 6 * 2
    model.graph.node[-1].op_type = "SVMRegressor"
    assert multiply_adds(model, {"x": (1, 3)}) is None


@pytest.mark.parametrize(("kind", "gates"), [("LSTM", 4), ("GRU", 3), ("RNN", 1)])
def test_a_recurrent_layer_costs_all_its_gates_in_each_step(kind: str, gates: int) -> None:
    model = build(
        f'h = {kind} <direction = "bidirectional", hidden_size = 7> (x, W, R) y = MatMul(h, V)',
        inputs="float[S,N,5] x",
        outputs="float y",
        W=normal(2, gates * 7, 5),
        R=normal(2, gates * 7, 7),
        V=normal(7, 3),
    )
    assert multiply_adds(model, one_sample(Graph(model))) is None
    steps, batch = 11, 2
    recurrent = steps * batch * 2 * gates * 7 * (5 + 7)
    assert multiply_adds(model, {"x": (steps, batch, 5)}) == recurrent + steps * 2 * batch * 7 * 3


def test_a_recurrent_layer_without_its_weights_is_not_counted() -> None:
    model = build("y = LSTM(x)", inputs="float[3,2,5] x", outputs="float y")
    assert multiply_adds(model, {"x": (3, 2, 5)}) is None
