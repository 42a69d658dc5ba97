"""Axes: every row of the table, against onnxruntime with units ignored and removed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onnxfde.graph.axis_rules import ENDS, RULES
from onnxfde.graph.find_axes import find_axes, producer_rows, read_again
from onnxfde.graph.model import Graph
from tests.graph.axis_cases import (
    OUTPUTS,
    UNITS,
    WEIGHTS,
    assert_same_without_units,
    axes_of,
    between,
    image,
    narrow,
    normal,
    zeroed,
)
from tests.models import build, outputs_of

PER_UNIT = {"k": normal(UNITS, 1, 1)}
DENSE = "float[N,3] y"


def integers(*numbers: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.array(numbers, np.int64)


def floats(*numbers: float) -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.array(numbers, np.float32)


def flat(body: str, units: int, **weights: Any) -> tuple[str, dict[str, Any]]:
    """Nodes in front of a Gemm that reads so many numbers."""
    given = {"V": normal(OUTPUTS, units), "outputs": DENSE, **weights}
    return body, {"reader": "y = Gemm <transB = 1> (r, V, c)", **given}


UNARY = (
    *("Relu", "LeakyRelu", "Elu", "Selu", "Celu", "Sigmoid", "Tanh", "HardSigmoid", "HardSwish"),
    *("Softplus", "Softsign", "ThresholdedRelu", "Abs", "Erf", "Sin", "Neg", "Exp", "Cos"),
    *("Tan", "Sinh", "Cosh", "Atan", "Floor", "Ceil", "Round", "Sign", "Shrink"),
)
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "nothing between": ("r = Identity(h)", {}),
    **{name: (f"r = {name}(h)", {}) for name in UNARY},
    "Sqrt, Log, Reciprocal": (
        "a = Exp(h) p = Sqrt(a) q = Log(p) e = Exp(q) r = Reciprocal(e)",
        {},
    ),
    "Gelu": ("r = Gelu(h)", {"opset": 20}),
    "Mish": ("r = Mish(h)", {"opset": 18}),
    "Clip": ("r = Clip(h, lo, hi)", {"lo": np.float32(0), "hi": np.float32(6)}),
    "Clip by attributes": ("r = Clip <min = 0.0, max = 6.0> (h)", {"opset": 10}),
    "PRelu": ("r = PRelu(h, k)", PER_UNIT),
    "constants": (
        "a = Mul(h, k) p = Add(k, a) q = Sub(p, k) s = Div(q, two) r = Pow(s, two)",
        {**PER_UNIT, "two": np.float32(2)},
    ),
    "constants of all axes": ("r = Mul(h, k)", {"k": normal(1, UNITS, 8, 8)}),
    "Sub from a constant": ("r = Sub(k, h)", PER_UNIT),
    "SiLU": ("s = Sigmoid(h) r = Mul(h, s)", {}),
    "HardSwish in parts": (
        "a = Add(h, three) t = Clip(a, zero, six) m = Mul(h, t) r = Div(m, six)",
        {"three": np.float32(3), "zero": np.float32(0), "six": np.float32(6)},
    ),
    "Max and Min": (
        "a = Max(h, zero) r = Min(a, k)",
        {**PER_UNIT, "zero": np.float32(0)},
    ),
    "Sum and Mean": ("s = Sigmoid(h) a = Sum(h, s, k) r = Mean(a, h)", PER_UNIT),
    "choices": (
        "a = Greater(h, k) p = Less(h, zero) q = Not(p) o = Or(a, q) n = And(o, a) "
        "e = Equal(n, o) g = GreaterOrEqual(h, zero) l = LessOrEqual(h, k) "
        "s = Where(g, h, k) t = Where(l, s, h) r = Where(e, t, s)",
        {**PER_UNIT, "zero": np.float32(0)},
    ),
    "Swish": ("r = Swish(h)", {"opset": 24}),
    "BatchNormalization": (
        "n = BatchNormalization(h, k, m, m, v) r = Relu(n)",
        {"k": normal(UNITS), "m": normal(UNITS, seed=1), "v": normal(UNITS) ** 2 + 1},
    ),
    "InstanceNormalization": (
        "r = InstanceNormalization(h, k, m)",
        {"k": normal(UNITS), "m": normal(UNITS, seed=1)},
    ),
    "depthwise": (
        "a = Relu(h) r = Conv <group = 6, strides = [2, 2], dilations = [2, 1], "
        "pads = [1, 0, 2, 1]> (a, D, d)",
        {"D": normal(UNITS, 1, 3, 3), "d": normal(UNITS, seed=2)},
    ),
    "depthwise without bias": (
        'r = Conv <group = 6, auto_pad = "SAME_UPPER"> (h, D)',
        {"D": normal(UNITS, 1, 3, 3)},
    ),
    "pools": (
        "a = MaxPool <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (h) "
        "p = LpPool <kernel_shape = [2, 2]> (a) r = AveragePool <kernel_shape = [2, 2]> (p)",
        {},
    ),
    "GlobalAveragePool": flat("g = GlobalAveragePool(h) r = Flatten(g)", UNITS),
    "GlobalMaxPool": flat("g = GlobalMaxPool(h) r = Flatten(g)", UNITS),
    "GlobalLpPool": flat("g = GlobalLpPool(h) r = Flatten(g)", UNITS),
    "ReduceMean": flat("r = ReduceMean <axes = [2, 3], keepdims = 0> (h)", UNITS),
    "ReduceMean from behind": flat("r = ReduceMean <axes = [-1, -2], keepdims = 0> (h)", UNITS),
    "ReduceSum": flat("r = ReduceSum <keepdims = 0> (h, ax)", UNITS, ax=integers(2, 3)),
    "ReduceMax that keeps axes": flat(
        "a = ReduceMax <axes = [2, 3]> (h) r = Squeeze(a, ax)", UNITS, ax=integers(2, -1)
    ),
    "ReduceMean by an input": flat(
        "r = ReduceMean <keepdims = 0> (h, ax)", UNITS, ax=integers(3, 2), opset=18
    ),
    **{
        name: flat(f"a = Relu(h) r = {name} <axes = [2, 3], keepdims = 0> (a)", UNITS)
        for name in ["ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceLogSumExp"]
    },
    "other reductions": flat(
        "a = Exp(h) m = ReduceMin <axes = [3]> (a) l = ReduceLogSum <axes = [3]> (a) "
        "p = ReduceProd <axes = [3]> (m) s = Add(p, l) r = ReduceMean <axes = [2, 3], "
        "keepdims = 0> (s)",
        UNITS,
    ),
    "Resize by factors": (
        'r = Resize <mode = "linear"> (h, , s)',
        {"s": floats(1, 1, 2, 1.5)},
    ),
    "Resize to lengths": ("r = Resize(h, , , s)", {"s": integers(1, UNITS, 16, 12)}),
    "Resize of some axes": (
        "r = Resize <axes = [2, 3]> (h, , s)",
        {"s": floats(2, 2), "opset": 18},
    ),
    "Resize, opset 10": ("r = Resize(h, s)", {"s": floats(1, 1, 2, 2), "opset": 10}),
    "Upsample": ("r = Upsample(h, s)", {"s": floats(1, 1, 2, 2), "opset": 9}),
    "Pad": ("r = Pad(h, p)", {"p": integers(0, 0, 1, 2, 0, 0, 3, 0)}),
    "Pad with a number": (
        "r = Pad(h, p, two)",
        {"p": integers(0, 0, 1, 2, 0, 0, 3, 0), "two": np.float32(2)},
    ),
    "Pad by reflection": (
        'r = Pad <mode = "reflect"> (h, p)',
        {"p": integers(0, 0, 1, 2, 0, 0, 3, 0)},
    ),
    "Pad of some axes": (
        'r = Pad <mode = "edge"> (h, p, , ax)',
        {"p": integers(1, 0, 0, 2), "ax": integers(2, -1), "opset": 18},
    ),
    "Pad, opset 9": ("r = Pad <pads = [0, 0, 1, 1, 0, 0, 1, 1]> (h)", {"opset": 9}),
    "Pad with computed widths": (
        "z = ConstantOfShape <value = int64[1] {0}> (two) a = Concat <axis = 0> (p, z) "
        "t = Reshape(a, pairs) f = Transpose <perm = [1, 0]> (t) q = Reshape(f, all) "
        "r = Pad(h, q)",
        {
            "two": integers(2),
            "p": integers(0, 0, 0, 0, 1, 1),
            "pairs": integers(-1, 2),
            "all": integers(-1),
        },
    ),
    "Slice": (
        "r = Slice(h, s, e, ax)",
        {"s": integers(1, 0), "e": integers(8, -1), "ax": integers(2, 3)},
    ),
    "Slice of everything": (
        "r = Slice(h, s, e, ax)",
        {"s": integers(0, -9), "e": integers(9, 2**62), "ax": integers(1, 3)},
    ),
    "Slice of exactly everything, opset 9": (
        "r = Slice <starts = [-6], ends = [6], axes = [1]> (h)",
        {"opset": 9},
    ),
    "Concat of one value": ("r = Concat <axis = 1> (h)", {}),
    "Split into one": ("r = Split <axis = 1> (h)", {}),
    "Split into one of a given length": (
        "a = Split <axis = 1> (h, parts) r = Split <axis = 2> (a, rows)",
        {"parts": integers(UNITS), "rows": integers(8)},
    ),
    "Tile": ("r = Tile(h, n)", {"n": integers(1, 1, 2, 1)}),
    "Expand": ("r = Expand(h, n)", {"n": integers(UNITS, 1, 8)}),
    "Gather of columns": ("r = Gather <axis = 3> (h, n)", {"n": integers(3, 1, 1, 7)}),
    "Gather of one column": flat(
        "a = Gather <axis = -1> (h, n) r = Flatten(a)", UNITS * 8, n=integers(3).reshape(())
    ),
    "Dropout and Cast": ("a = Cast <to = 11> (h) q = Cast <to = 1> (a) r = Dropout(q)", {}),
    "Transpose": (
        "t = Transpose <perm = [0, 2, 3, 1]> (h) a = Mul(t, k) "
        "r = Transpose <perm = [0, 3, 1, 2]> (a)",
        {"k": normal(UNITS)},
    ),
    "Transpose without an order": (
        "t = Transpose(h) a = Relu(t) r = Transpose(a)",
        {},
    ),
    "Unsqueeze and Squeeze": (
        "a = Unsqueeze(h, ax) q = Relu(a) r = Squeeze(q, ax)",
        {"ax": integers(1, -1)},
    ),
    "Squeeze, opset 12": flat(
        "g = GlobalAveragePool(h) r = Squeeze <axes = [2, 3]> (g)", UNITS, opset=12
    ),
    "Flatten": flat("a = Relu(h) r = Flatten(a)", UNITS * 64),
    "Flatten and constants": flat(
        "a = Flatten(h) p = Mul(a, k) n = BatchNormalization(p, k, k, k, v) r = Relu(n)",
        UNITS * 64,
        k=normal(UNITS * 64),
        v=normal(UNITS * 64) ** 2 + 1,
    ),
    "Flatten of channels last": flat(
        "t = Transpose <perm = [0, 2, 3, 1]> (h) f = Flatten(t) r = Mul(f, k)",
        UNITS * 64,
        k=normal(UNITS * 64),
    ),
    "Flatten from behind": flat("r = Flatten <axis = -3> (h)", UNITS * 64),
    "Reshape": flat("r = Reshape(h, s)", UNITS * 64, s=integers(-1, UNITS * 64)),
    "Reshape, open": flat("r = Reshape(h, s)", UNITS * 64, s=integers(0, -1)),
    "Reshape of channels last": flat(
        "t = Transpose <perm = [0, 2, 3, 1]> (h) r = Reshape(t, s)",
        UNITS * 64,
        s=integers(-1, UNITS * 64),
    ),
    "Reshape that joins space": flat(
        "a = Reshape(h, s) r = ReduceMean <axes = [2], keepdims = 0> (a)",
        UNITS,
        s=integers(-1, UNITS, 64),
    ),
    "Reshape twice": flat(
        "a = Reshape(h, s) r = Reshape(a, t)",
        UNITS * 64,
        s=integers(0, 0, -1),
        t=integers(-1, UNITS * 64),
    ),
    "Reshape back": (
        "a = Reshape(h, s) r = Reshape(a, t)",
        {"s": integers(0, -1), "t": integers(-1, UNITS, 8, 8)},
    ),
    "a shape of parts": flat(
        "a = Shape(h) n = Gather(a, zero) u = Unsqueeze(n, ax) s = Concat <axis = 0> (u, rest) "
        "r = Reshape(h, s)",
        UNITS * 64,
        zero=np.int64(0),
        ax=integers(0),
        rest=integers(UNITS * 64),
    ),
    "a shape of parts, open": flat(
        "a = Shape <start = 0, end = 1> (h) s = Concat <axis = 0> (a, rest) r = Reshape(h, s)",
        UNITS * 64,
        rest=integers(-1),
    ),
    "MatMul": (
        "a = Flatten(h) r = Relu(a)",
        {"reader": "p = MatMul(r, V) y = Add(p, c)", "V": normal(UNITS * 64, 3), "outputs": DENSE},
    ),
    "MatMul of channels last": (
        "r = Transpose <perm = [0, 2, 3, 1]> (h)",
        {"reader": "y = MatMul(r, V)", "V": normal(UNITS, 3)},
    ),
    "Gemm with factors": (
        "r = Flatten(h)",
        {
            "reader": "y = Gemm <alpha = 0.5, beta = 2.0> (r, V, c)",
            "V": normal(UNITS * 64, 3),
            "outputs": DENSE,
        },
    ),
    "several readers": (
        "r = Relu(h)",
        {
            "reader": "a = Conv(r, V, c) p = Sigmoid(r) q = Conv(p, V) y = Mul(a, q)",
        },
    ),
}
"""Nodes between two products, and constants."""


@pytest.mark.parametrize("name", CASES)
def test_removing_units_does_what_ignoring_them_does(name: str) -> None:
    body, options = CASES[name]
    model = between(body, **options)
    (axis,) = axes_of(model)
    assert (axis.name, axis.units) == ("first", UNITS)
    assert_same_without_units(model, image(1 if "Resize to" in name else 3))


def test_every_row_of_the_table_has_a_case() -> None:
    texts = [body + options.get("reader", "Conv(") for body, options in CASES.values()]
    rows = {name for name in RULES if name not in ENDS and not name.startswith("com.microsoft")}
    assert {name for name in rows if not any(f" {name}" in text for text in texts)} == set()


STEPS = (
    *("{} = Relu({})", "{} = PRelu({}, k)", "{} = Mul({}, k)", "{} = Sub(k, {})"),
    '{} = Conv <group = 6, auto_pad = "SAME_LOWER", strides = [2, 1]> ({}, D)',
    "{} = Conv <group = 6, pads = [2, 0, 1, 1], dilations = [1, 2]> ({}, D)",
    "{} = BatchNormalization({}, v, v, v, v)",
    "{} = MaxPool <kernel_shape = [2, 3], pads = [0, 1, 1, 1], ceil_mode = 1> ({})",
    '{} = AveragePool <kernel_shape = [2, 2], auto_pad = "SAME_UPPER"> ({})',
    "{} = Resize({}, , s)",
    "{} = Pad({}, p)",
)


@settings(max_examples=40)
@given(steps=st.lists(st.sampled_from(STEPS), max_size=6), flattened=st.booleans())
def test_any_row_of_steps(steps: list[str], flattened: bool) -> None:
    """Up to six nodes that act on each unit by itself, and a reader with or without Flatten."""
    names = ["h", *(f"t{i}" for i in range(len(steps)))]
    body = " ".join(s.format(b, a) for s, a, b in zip(steps, names, names[1:], strict=False))
    end = f"{body} g = GlobalMaxPool({names[-1]}) r = Flatten(g)"
    model = between(
        end if flattened else f"{body} r = Tanh({names[-1]})",
        "y = MatMul(r, V)" if flattened else 'y = Conv <auto_pad = "SAME_UPPER"> (r, V, c)',
        **({"V": normal(UNITS, 3), "outputs": DENSE} if flattened else {}),
        k=normal(UNITS, 1, 1),
        D=normal(UNITS, 1, 3, 3),
        v=np.abs(normal(UNITS)) + np.float32(0.5),
        s=floats(1, 1, 2, 1),
        p=integers(0, 0, 1, 2, 0, 0, 2, 3),
    )
    result, expected = outputs_of(narrow(model), image()), outputs_of(zeroed(model), image())
    np.testing.assert_allclose(
        result[0], expected[0], rtol=0, atol=1e-5 * (1 + abs(expected[0]).max())
    )


@pytest.mark.parametrize("opset", [11, 13, 18])
def test_old_and_new_opsets(opset: int) -> None:
    model = between("a = Relu(h) r = MaxPool <kernel_shape = [2, 2]> (a)", opset=opset)
    assert_same_without_units(model, image())


def test_convolutions_over_time() -> None:
    model = build(
        "h = Conv <strides = [2], pads = [1, 1]> (x, W, b) a = Relu(h) "
        "d = Conv <group = 6> (a, D) y = Conv <dilations = [2]> (d, V)",
        inputs="float[N,2,20] x",
        outputs="float[N,3,P] y",
        W=normal(UNITS, 2, 3),
        b=normal(UNITS),
        D=normal(UNITS, 1, 3),
        V=normal(OUTPUTS, UNITS, 3),
    )
    x = np.random.default_rng(0).normal(size=(2, 2, 20)).astype(np.float32)
    assert_same_without_units(model, x)


def test_a_dense_layer_whose_units_reach_a_convolution_or_several_readers_is_an_axis() -> None:
    convolved = build(
        "h = Gemm <transB = 1> (x, W, b) a = Relu(h) u = Unsqueeze(a, ax) y = Conv(u, V)",
        outputs="float[N,3,1] y",
        W=normal(UNITS, 3),
        b=normal(UNITS),
        ax=integers(2),
        V=normal(OUTPUTS, UNITS, 1),
    )
    heads = build(
        "p = MatMul(x, W) h = Add(p, b) a = Tanh(h) y = Gemm(a, V) z = MatMul(a, V)",
        outputs="float[N,3] y, float[N,3] z",
        W=normal(3, UNITS),
        b=normal(UNITS),
        V=normal(UNITS, OUTPUTS),
    )
    x = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
    for model in (convolved, heads):
        (axis,) = axes_of(model)
        assert axis.units == UNITS
        assert_same_without_units(model, x)


def test_a_dense_layer_with_one_reader_is_left_to_the_search_for_layers() -> None:
    model = build(
        "h = Gemm(x, W, b) a = Relu(h) y = Gemm(a, V)",
        W=normal(3, UNITS),
        b=normal(UNITS),
        V=normal(UNITS, 2),
    )
    assert find_axes(Graph(model)) == ([], [])


def test_what_an_axis_says() -> None:
    model = between(
        "n = BatchNormalization(h, k, m, m, v) a = Relu(n) d = Conv <group = 6> (a, D) "
        "f = Flatten(d) r = Dropout(f)",
        "y = Gemm <transB = 1> (r, V, c)",
        k=normal(UNITS),
        m=normal(UNITS, seed=1),
        v=np.ones(UNITS, np.float32),
        D=normal(UNITS, 1, 3, 3),
        V=normal(OUTPUTS, UNITS * 36),
        outputs=DENSE,
    )
    graph = Graph(model)
    (axis,), refusals = find_axes(graph)
    assert not refusals
    assert (axis.producer.source, axis.producer.value) == ("x", "h")
    assert [inner.node.op_type for inner in axis.inner] == [
        *("BatchNormalization", "Relu", "Conv", "Flatten", "Dropout")
    ]
    assert [len(inner.ports) for inner in axis.inner] == [4, 0, 1, 0, 0]
    assert [inner.depthwise for inner in axis.inner] == [False, False, True, False, False]
    assert axis.values == dict.fromkeys("hnadfr", 1)
    assert axis.flattened == {"f": 36, "r": 36}
    rows, bias = producer_rows(graph, axis.producer)
    np.testing.assert_array_equal(rows, WEIGHTS["W"].reshape(UNITS, -1))
    np.testing.assert_array_equal(bias, WEIGHTS["b"])


def test_the_columns_of_units_in_a_flattened_value() -> None:
    first, last = (
        axes_of(between(CASES[name][0], **CASES[name][1]))[0].readers[0]
        for name in ("Flatten", "Flatten of channels last")
    )
    np.testing.assert_array_equal(first.columns[2], 128 + np.arange(64))
    np.testing.assert_array_equal(last.columns[2], 2 + 6 * np.arange(64))


def test_names_are_unique() -> None:
    model = between(
        "r = Relu(h)", "g = Conv(r, V, c) s = Relu(g) y = Conv(s, U)", U=normal(2, 3, 1, 1)
    )
    model.graph.node[2].name = "first"
    assert [axis.name for axis in axes_of(model)] == ["first", "first#2"]


def test_an_axis_is_read_again_after_edits() -> None:
    graph = Graph(between("r = Relu(h)"))
    (axis,), _ = find_axes(graph)
    again = read_again(graph, axis)
    assert (again.name, again.units, again.values) == (axis.name, axis.units, axis.values)
