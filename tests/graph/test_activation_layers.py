"""Layers with other activations than squares in all kinds of surroundings."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import helper

from onnxfde.graph.edit import write_layer
from onnxfde.graph.match import find_layers, reread
from onnxfde.graph.model import Graph
from onnxfde.graph.protos import ModelProto
from onnxfde.neurons.piecewise_activations import IDENTITY, PRELU, RELU
from onnxfde.neurons.polynomial_activations import scaled_activation
from onnxfde.neurons.smooth_activations import GELU, TANH, selu
from tests.activation_spellings import SLOPES, WEIGHTS, f32
from tests.models import build, outputs_of, shapes

F = np.float32
W, B, V, C = (WEIGHTS[name].astype(F) for name in "WbVc")
KEPT = [5, 1, 2]
X = np.random.default_rng(0).uniform(-1, 1, (4, 5, 3)).astype(F)
GELU_NODES = "p = Div(h, root2) q = Erf(p) r = Add(q, one) t = Mul(h, r) s = Mul(t, half)"
NUMBERS: dict[str, Any] = {"root2": F(np.sqrt(2)), "one": F(1), "half": F(0.5)}


def shrunk(model: ModelProto, kept: list[int] = KEPT) -> tuple[ModelProto, Any]:
    """The model with a few neurons of its only layer, and this layer."""
    graph = Graph(model)
    (match,), _ = find_layers(graph)
    layer = match.layer.only(kept)
    write_layer(graph, match, layer)
    onnx.checker.check_model(model)
    return model, layer


def test_a_feed_forward_block_keeps_its_dynamic_axes() -> None:
    model = build(
        f"n = LayerNormalization(x, g) a = MatMul(n, W) h = Add(a, b) {GELU_NODES} "
        "d = MatMul(s, V) e = Add(c, d) y = Add(x, e)",
        inputs="float[N,T,3] x",
        outputs="float[N,T,3] y",
        g=np.ones(3, F),
        W=W.T,
        b=B,
        V=WEIGHTS["W"].astype(F),
        c=np.ones(3, F),
        **NUMBERS,
    )
    infos = [helper.make_tensor_value_info(name, 1, ["N", "T", 6]) for name in "ahpqrts"]
    model.graph.value_info.extend(infos)
    found, layer = shrunk(model)
    assert layer.activation == scaled_activation(GELU, 2.0)
    dims = [[d.dim_param or d.dim_value for d in v.type.tensor_type.shape.dim] for v in infos]
    assert dims == [["N", "T", 6]] * 7
    kept = {
        v.name: [d.dim_param or d.dim_value for d in v.type.tensor_type.shape.dim]
        for v in found.graph.value_info
    }
    assert kept == {name: ["N", "T", 3] for name in "ahpqrt"}
    normed = (X - X.mean(-1, keepdims=True)) / np.sqrt(X.var(-1, keepdims=True) + 1e-5)
    wanted = X + layer(normed.reshape(-1, 3)).reshape(X.shape)
    for rows in (X, X[:2, :3]):
        (out,) = outputs_of(found, rows)
        np.testing.assert_allclose(out, wanted[: len(rows), : rows.shape[1]], atol=1e-5)


@pytest.mark.parametrize("slopes", [SLOPES[:, None], SLOPES.reshape(1, 6, 1)])
def test_features_on_the_second_last_axis(slopes: Any) -> None:
    model = build(
        "a = MatMul(W, x) h = Add(a, b) s = PRelu(h, slopes) y = MatMul(V, s)",
        inputs="float[M,3,N] x",
        outputs="float[M,2,N] y",
        W=W,
        b=B[:, None],
        V=V,
        slopes=slopes.astype(F),
    )
    found, layer = shrunk(model)
    assert layer.activation == PRELU
    x = X.transpose(0, 2, 1)
    wanted = layer(X.reshape(-1, 3)).reshape(4, 5, 2).transpose(0, 2, 1)
    np.testing.assert_allclose(outputs_of(found, x)[0], wanted, atol=1e-5)


def test_a_slope_that_another_node_reads_is_copied() -> None:
    model = build(
        "[first] h = Gemm <transB = 1> (x, W, b) s = PRelu(h, a) "
        "[second] y = Gemm <transB = 1> (s, V, c) z = Identity(a)",
        outputs="float[N,2] y, float[6] z",
        W=W,
        b=B,
        V=V,
        c=C,
        a=SLOPES.astype(F),
    )
    found, layer = shrunk(model)
    assert shapes(found)["a"] == [6]
    assert shapes(found)["a_merged"] == [3]
    out, slopes = outputs_of(found, X[0])
    np.testing.assert_allclose(out, layer(X[0]), atol=1e-5)
    np.testing.assert_array_equal(slopes.ravel(), SLOPES.astype(F))


@pytest.mark.parametrize("kind", ["BiasGelu", "FastGelu"])
def test_a_bias_is_folded_and_its_tensor_goes(kind: str) -> None:
    model = build(
        f"h = MatMul(x, W) s = com.microsoft.{kind}(h, b) y = MatMul(s, V)", W=W.T, b=B, V=V.T
    )
    model.opset_import.add(domain="com.microsoft", version=1)
    found, layer = shrunk(model)
    bias = next(n for n in found.graph.node if n.op_type == "Add")
    np.testing.assert_array_equal(layer.incoming[:, -1], B[KEPT])
    assert list(shapes(found)) == ["W", "V", bias.input[1]]
    np.testing.assert_allclose(outputs_of(found, X[0])[0], layer(X[0]), atol=1e-5)


def test_maps_between_two_layers_belong_to_both() -> None:
    model = build(
        "h = Gemm <transB = 1> (x, W, b) s = Relu(h) k = Gemm <transB = 1> (s, U, b) "
        "t = Tanh(k) y = Gemm <transB = 1> (t, V, c)",
        W=W,
        b=B,
        U=np.random.default_rng(1).normal(size=(6, 6)).astype(F),
        V=V,
        c=C,
    )
    graph = Graph(model)
    (first, second), refused = find_layers(graph)
    assert (first.layer.activation, second.layer.activation, refused) == (RELU, TANH, [])
    wanted = second.layer.only([0, 3])
    write_layer(graph, first, first.layer.only(KEPT))
    now = reread(graph, second)
    assert (now.layer.inputs, now.layer.neurons) == (3, 6)
    write_layer(graph, now, now.layer.only([0, 3]))
    hidden = first.layer.only(KEPT).hidden(X[0].astype(float))
    rows = np.column_stack([wanted.incoming[:, :-1][:, KEPT], wanted.incoming[:, -1]])
    out = np.tanh(hidden @ rows[:, :-1].T + rows[:, -1]) @ wanted.outgoing.T + wanted.offset
    np.testing.assert_allclose(outputs_of(model, X[0])[0], out, atol=1e-5)


def test_constants_around_an_activation_are_folded() -> None:
    model = build(
        "a = MatMul(x, W) k = Mul(a, scale) h = Add(k, b) i = Dropout(h) r = Relu(i) "
        "n = BatchNormalization(r, g, b, b, g) y = MatMul(n, V)",
        W=W.T,
        scale=np.linspace(0.5, 2, 6, dtype=F),
        b=B,
        g=np.linspace(1, 2, 6, dtype=F),
        V=V.T,
    )
    (before,), _ = find_layers(Graph(model))
    (out,) = outputs_of(model, X[0])
    np.testing.assert_allclose(out, before.layer(X[0]), atol=1e-5)
    found, layer = shrunk(model)
    assert "BatchNormalization" not in [node.op_type for node in found.graph.node]
    np.testing.assert_allclose(outputs_of(found, X[0])[0], layer(X[0]), atol=1e-5)


@pytest.mark.parametrize("nodes", ["s = Relu(h)", GELU_NODES, "g = Sigmoid(h) s = Mul(h, g)"])
def test_bfloat16(nodes: str) -> None:
    weights = {"W": W, "b": B, "V": V, "c": C, **NUMBERS}
    used: dict[str, Any] = {}
    used |= {n: np.asarray(a).astype(ml_dtypes.bfloat16) for n, a in weights.items()}
    model = build(
        f"h = Gemm <transB = 1> (x, W, b) {nodes} y = Gemm <transB = 1> (s, V, c)",
        inputs="bfloat16[N,3] x",
        outputs="bfloat16[N,2] y",
        **used,
    )
    _, layer = shrunk(model)
    assert layer.neurons == 3
    (now,), _ = find_layers(Graph(model))
    np.testing.assert_array_equal(now.layer.incoming, layer.incoming)


def linear_model(neurons: int) -> ModelProto:
    rng = np.random.default_rng(0)
    return build(
        "h = MatMul(x, W) k = Mul(h, two) s = Identity(k) y = MatMul(s, V)",
        inputs="float[N,12] x",
        outputs="float[N,10] y",
        W=rng.normal(size=(12, neurons)).astype(F),
        V=rng.normal(size=(neurons, 10)).astype(F),
        two=F(2),
    )


def test_a_linear_layer_is_one_if_one_map_would_be_larger() -> None:
    found, layer = shrunk(linear_model(5), [4, 1, 2])
    assert layer.activation == IDENTITY
    x = np.random.default_rng(1).normal(size=(4, 12)).astype(F)
    np.testing.assert_allclose(outputs_of(found, x)[0], layer(x), atol=1e-4)
    assert find_layers(Graph(linear_model(6))) == ([], [])


def test_defaults_are_those_of_the_opset() -> None:
    model = build(
        "h = Gemm <transB = 1> (x, W, b) s = Selu(h) y = Gemm <transB = 1> (s, V, c)",
        opset=5,
        W=W,
        b=B,
        V=V,
        c=C,
    )
    (match,), _ = find_layers(Graph(model))
    assert match.layer.activation == selu(f32(1.6732), f32(1.0507))


def test_a_scaler_of_other_domains_does_not_hide_the_number_of_axes() -> None:
    model = build(
        "z = ai.onnx.ml.Scaler <offset = [0.0], scale = [2.0]> (x) a = MatMul(z, W) "
        "h = Add(a, b) s = Relu(h) y = MatMul(s, V)",
        W=W.T,
        b=B[None],
        V=V.T,
    )
    model.opset_import.add(domain="ai.onnx.ml", version=1)
    found, layer = shrunk(model)
    np.testing.assert_allclose(outputs_of(found, X[0])[0], layer(2 * X[0]), atol=1e-5)


def test_layers_further_behind_a_scaler_are_found_too() -> None:
    model = build(
        "z = ai.onnx.ml.Scaler <offset = [0.0], scale = [2.0]> (x) a = MatMul(z, W) "
        "h = Add(a, b) r = Relu(h) k = MatMul(r, V) m = Add(k, c) t = Relu(m) y = MatMul(t, W2)",
        outputs="float[N,6] y",
        W=W.T,
        b=B[None],
        V=V.T,
        c=C[None],
        W2=V,
    )
    model.opset_import.add(domain="ai.onnx.ml", version=1)
    assert [len(match.layer.incoming) for match in find_layers(Graph(model))[0]] == [6, 2]


KERAS = (
    "size = Shape(x) lengths = Cast <to = 6> (size) front = Gather(lengths, leading) "
    "whole = Concat <axis = 0> (front, width) target = Cast <to = 7> (whole) "
    "flat = Reshape(x, inner) a = MatMul(flat, W) k = Reshape(a, target) h = Add(k, b) "
    "g = Sigmoid(h) s = Mul(g, h) size2 = Shape(s) front2 = Gather(size2, leading) "
    "whole2 = Concat <axis = 0> (front2, last) t = Reshape(s, outer) d = MatMul(t, V) "
    "y = Reshape(d, whole2)"
)
"""A feed-forward block on sequences as tf2onnx writes it."""
KERAS_WEIGHTS: dict[str, Any] = {
    "leading": np.array([0, 1]),
    "width": np.array([6], np.int32),
    "inner": np.array([-1, 3]),
    "outer": np.array([-1, 6]),
    "last": np.array([2]),
    "W": W.T,
    "b": B,
    "V": V.T,
}


def keras_block(**other: Any) -> ModelProto:
    weights = {**KERAS_WEIGHTS, **other}
    return build(KERAS, "float[N,T,3] x", "float[N,T,2] y", **weights)


def test_reshapes_that_keep_the_features_may_stand_inside() -> None:
    found, layer = shrunk(keras_block())
    for rows in (X, X[:2, :3]):
        wanted = layer(rows.reshape(-1, 3)).reshape(*rows.shape[:2], 2)
        np.testing.assert_allclose(outputs_of(found, rows)[0], wanted, atol=1e-5)
    assert {"width", "outer"}.isdisjoint(shapes(found))


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        ({"leading": np.array([0, 2])}, "'s' inside it is also read by Shape 'size2'"),
        ({"outer": np.array([-1, 12]), "V": np.ones((12, 2), F)}, "the second one reads 12"),
        ({"width": np.array([3], np.int32)}, "Reshape 'k' mixes features with other axes"),
        ({"outer": np.array([6, -1])}, "Reshape 't' mixes features with other axes"),
    ],
)
def test_other_reshapes_are_refused(other: Any, reason: str) -> None:
    matches, (refused,) = find_layers(Graph(keras_block(**other)))
    assert not matches
    assert reason in refused.reason


def test_a_shape_that_another_node_needs_is_refused() -> None:
    model = keras_block()
    model.graph.node.append(helper.make_node("Identity", ["target"], ["z"]))
    matches, (refused,) = find_layers(Graph(model))
    assert not matches
    assert refused.reason == "the shape of Reshape 'k' is used elsewhere, too"
