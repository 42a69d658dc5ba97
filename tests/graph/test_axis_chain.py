"""An axis as a chain of operations: it computes what onnxruntime does, and can be stored again."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from onnxfde.graph.affine_maps import NoMatch
from onnxfde.graph.axis_chain import OPERATIONS, AxisChain, axis_chain
from onnxfde.graph.find_axes import find_axes
from onnxfde.graph.model import Graph
from onnxfde.graph.onnx_calls import check
from onnxfde.graph.protos import ModelProto
from onnxfde.numbers import Array
from tests.graph.axis_cases import OUTPUTS, UNITS, WEIGHTS, between, image, normal
from tests.models import build, outputs_of

GEMM = "y = Gemm <transB = 1> (r, V, c)"
ROW = {"reader": GEMM, "outputs": "float[N,3] y"}
NUMBERS = {"k": normal(UNITS), "m": normal(UNITS, seed=1), "v": normal(UNITS) ** 2 + 1}
BEHIND = {"K": normal(OUTPUTS), "M": normal(OUTPUTS, seed=1), "U": normal(OUTPUTS) ** 2 + 1}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "Identity": ("r = Identity(h)", {}),
    "Relu": ("r = Relu(h)", {}),
    "LeakyRelu": ("r = LeakyRelu <alpha = 0.3> (h)", {}),
    "PRelu": ("r = PRelu(h, k)", {"k": normal(UNITS, 1, 1)}),
    "Clip": ("r = Clip(h, lo, hi)", {"lo": np.float32(0), "hi": np.float32(0.5)}),
    "Clip as Max and Min": (
        "a = Max(zero, h) r = Min(a, half)",
        {"zero": np.float32(0), "half": np.float32(0.5)},
    ),
    "Slice of everything": (
        "a = Relu(h) q = Slice(a, zeros, ends, axes) r = Concat <axis = 1> (q)",
        {"zeros": np.array([0, 0]), "ends": np.array([9, 99]), "axes": np.array([1, 2])},
    ),
    "Sigmoid": ("r = Sigmoid(h)", {}),
    "constants": (
        "a = Mul(h, k) d = Sub(one, a) e = Div(d, two) f = Add(k, e) r = Sub(f, two)",
        {"k": normal(UNITS, 1, 1), "one": np.float32(1), "two": np.float32(2)},
    ),
    "square": ("r = Mul(h, h)", {}),
    "SiLU in two nodes": ("a = Sigmoid(h) r = Mul(h, a)", {}),
    "GELU in several nodes": (
        "n = BatchNormalization(h, k, m, m, v) a = Div(n, s) e = Erf(a) p = Add(e, one) "
        "q = Mul(n, p) t = Mul(q, half) r = Identity(t)",
        {
            **NUMBERS,
            "s": np.float32(np.sqrt(2)),
            "one": np.float32(1),
            "half": np.float32(0.5),
        },
    ),
    "HardSwish in several nodes": (
        "a = Add(h, three) g = Clip(a, zero, six) p = Mul(h, g) r = Div(p, six)",
        {"three": np.float32(3), "zero": np.float32(0), "six": np.float32(6)},
    ),
    "BatchNormalization": ("n = BatchNormalization(h, k, m, m, v) r = Relu(n)", NUMBERS),
    "depthwise": (
        "a = Relu(h) r = Conv <group = 6, strides = [2, 1], dilations = [2, 1], "
        "pads = [1, 0, 2, 1]> (a, D, d)",
        {"D": normal(UNITS, 1, 3, 3), "d": normal(UNITS, seed=2)},
    ),
    "depthwise without bias": (
        'r = Conv <group = 6, auto_pad = "SAME_LOWER", strides = [2, 2]> (h, D)',
        {"D": normal(UNITS, 1, 2, 2)},
    ),
    "MaxPool": (
        "r = MaxPool <kernel_shape = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1]> (h)",
        {},
    ),
    "AveragePool": (
        "r = AveragePool <kernel_shape = [3, 2], pads = [1, 0, 1, 1]> (h)",
        {},
    ),
    "AveragePool of its padding": (
        "r = AveragePool <kernel_shape = [3, 2], pads = [1, 0, 1, 1], count_include_pad = 1> (h)",
        {},
    ),
    "GlobalAveragePool": (
        "a = Relu(h) g = GlobalAveragePool(a) r = Flatten(g)",
        {**ROW, "V": normal(OUTPUTS, UNITS)},
    ),
    "ReduceMean": (
        "a = Relu(h) r = ReduceMean <axes = [2, -1], keepdims = 0> (a)",
        {**ROW, "V": normal(OUTPUTS, UNITS)},
    ),
    "Flatten": ("a = Relu(h) r = Flatten(a)", {**ROW, "V": normal(OUTPUTS, UNITS * 64)}),
    "windows of the reader": (
        "r = Relu(h)",
        {"reader": 'y = Conv <auto_pad = "SAME_UPPER", strides = [2, 2]> (r, V)'},
    ),
    "constants behind the reader": (
        "r = Relu(h)",
        {"reader": "o = Conv(r, V, c) y = BatchNormalization(o, K, M, M, U)", **BEHIND},
    ),
}


def chain_of(model: ModelProto) -> tuple[Graph, AxisChain]:
    graph = Graph(model)
    (axis,), _ = find_axes(graph)
    return graph, axis_chain(graph, axis, (8, 8))


def as_made(chain: Array, expected: Array) -> Array:
    """Maps of one position as rows where the model makes rows."""
    return chain.reshape(expected.shape)


def moved(way: AxisChain, seed: int = 0) -> AxisChain:
    """All parameters that a descent may move, moved at random."""
    rng = np.random.default_rng(seed)
    chain = way.chain.replaced(
        {
            key: (a + 0.1 * rng.normal(size=a.shape)).astype(np.float32)
            for key, a in way.chain.parameters.items()
            if key[0] not in way.fixed
        }
    )
    return AxisChain(way.axis, chain, way.nodes, way.reader_at, way.after)


def test_there_is_a_case_of_every_row() -> None:
    assert {name for name in OPERATIONS if name not in CASES} == set()


@pytest.mark.parametrize("name", CASES)
def test_the_chain_computes_what_onnxruntime_computes(name: str) -> None:
    body, weights = CASES[name]
    model = between(body, **weights)
    (expected,) = outputs_of(model, image())
    _, way = chain_of(model)
    np.testing.assert_allclose(as_made(way.chain(image()), expected), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", CASES)
def test_weights_that_were_moved_are_stored(name: str) -> None:
    body, weights = CASES[name]
    model = between(body, **weights)
    (before,) = outputs_of(model, image())
    graph, way = chain_of(model)
    other = moved(way)
    way.write(graph, other.chain)
    check(graph.model, "the model")
    (after,) = outputs_of(graph.model, image())
    np.testing.assert_allclose(as_made(other.chain(image()), after), after, rtol=0, atol=1e-5)
    assert not np.allclose(before, after, rtol=0, atol=1e-2)


def test_signals_are_maps_of_one_row() -> None:
    model = build(
        "[first] h = Conv <strides = [2], pads = [1, 1]> (x, W, b) r = Relu(h) "
        "p = MaxPool <kernel_shape = [2]> (r) [second] y = Conv(p, V)",
        inputs="float[N,2,20] x",
        outputs="float[N,3,L] y",
        W=normal(UNITS, 2, 3),
        b=normal(UNITS),
        V=normal(OUTPUTS, UNITS, 3),
    )
    x = np.random.default_rng(0).normal(size=(4, 2, 20)).astype(np.float32)
    graph = Graph(model)
    (axis,), _ = find_axes(graph)
    way = axis_chain(graph, axis, (1, 20))
    (expected,) = outputs_of(model, x)
    np.testing.assert_allclose(way.chain(x[:, :, None])[:, :, 0], expected, rtol=0, atol=1e-5)
    other = moved(way)
    way.write(graph, other.chain)
    (after,) = outputs_of(graph.model, x)
    np.testing.assert_allclose(other.chain(x[:, :, None])[:, :, 0], after, rtol=0, atol=1e-5)


def test_the_activation_behind_the_target_is_found() -> None:
    names = {}
    for behind in ("Relu", "Softmax"):
        reader = f"o = Conv(r, V, c) y = {behind}(o)"
        names[behind] = chain_of(between("r = Relu(h)", reader=reader))[1].after.activation.name
    assert names == {"Relu": "Relu", "Softmax": "Identity"}


@pytest.mark.parametrize(
    ("body", "weights", "reason"),
    [
        ("s = Sin(h) t = Tanh(h) r = Mul(t, s)", {}, "Mul 'r' makes no activation that is known"),
        ("r = Mul(h, k)", {"k": normal(1, 8, 8)}, "has other numbers than one for each channel"),
        ("r = ReduceMean <axes = [3]> (h)", {}, "minimal does not know ReduceMean 'r' over axes"),
        ("r = Div(k, h)", {"k": normal(1)}, "minimal does not know Div 'r'"),
        (
            "r = AveragePool <kernel_shape = [3, 3], strides = [2, 2], ceil_mode = 1> (h)",
            {},
            "cut off",
        ),
        (
            "r = Transpose <perm = [0, 2, 3, 1]> (h)",
            {"reader": "y = MatMul(r, V)", "V": normal(UNITS, OUTPUTS)},
            "minimal does not know",
        ),
    ],
)
def test_what_a_descent_does_not_follow(body: str, weights: dict[str, Any], reason: str) -> None:
    with pytest.raises(NoMatch, match=reason):
        chain_of(between(body, **weights))


def test_two_readers_are_refused() -> None:
    model = build(
        "h = Conv(x, W, b) p = Conv(h, V, c) q = Conv(h, V) y = Add(p, q)",
        inputs="float[N,2,8,8] x",
        outputs="float[N,3,A,B] y",
        **dict[str, Any](WEIGHTS),
    )
    with pytest.raises(NoMatch, match="several nodes read its channels"):
        chain_of(model)
