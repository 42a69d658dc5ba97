"""Affine maps in a row become one where that is smaller, and nothing else changes."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from onnxfde.graph.input_specs import input_specs
from onnxfde.graph.model import Graph
from onnxfde.graph.protos import ModelProto
from onnxfde.numbers import ROUNDOFF
from onnxfde.passes import Context, Fold, FoldAffine, MergeNeurons, PassResult
from onnxfde.progress import Progress
from onnxfde.running.samples import Samples
from onnxfde.running.side_by_side import SideBySide
from onnxfde.running.verification import require_equal
from tests.models import Array, build, outputs_of

RNG = np.random.default_rng(0)
W, B, V, C = (RNG.normal(size=s).astype(np.float32) for s in ((8, 3), (8,), (2, 8), (2,)))
X = RNG.uniform(-1, 1, (50, 3)).astype(np.float32)
GEMMS = "[one] h = Gemm <transB = 1> (x, W, b) [two] y = Gemm <transB = 1> (h, V, c)"


def pair(body: str = GEMMS, **options: Any) -> ModelProto:
    return build(body, **{"W": W, "b": B, "V": V, "c": C, **options})


def folded(model: ModelProto) -> PassResult:
    """The result of the pass, which must leave the model alone and be valid and idempotent."""
    before = model.SerializeToString()
    result = FoldAffine().apply(Graph(model))
    assert model.SerializeToString() == before
    onnx.checker.check_model(result.model, full_check=True)
    again = FoldAffine().apply(Graph(result.model))
    assert not again.changed
    assert again.model is result.model
    return result


def kinds(result: PassResult) -> list[str]:
    return [node.op_type for node in result.model.graph.node]


def stored(result: PassResult) -> dict[str, list[int]]:
    return {t.name: list(t.dims) for t in result.model.graph.initializer}


def assert_equal_up_to_rounding(model: ModelProto, result: PassResult, x: Array) -> None:
    original = Graph(model)
    specs = input_specs(original)
    samples = Samples(specs, {specs[0].name: x}, "test")
    beside = SideBySide(original, samples)
    found = beside.compare(result.graph)
    assert found.verification.unverified is None
    require_equal(found.before, found.after, beside.magnitudes(), ROUNDOFF[x.dtype.name])


def assert_left_alone(model: ModelProto, *reasons: str) -> None:
    result = folded(model)
    assert not result.changed
    assert result.model is model
    assert [r.reason for r in result.unfolded] == list(reasons)


def test_two_gemms_become_one() -> None:
    result = folded(pair())
    assert result.folded == (Fold("one", "two", 24 + 8 + 16 + 2, 6 + 2, "float32"),)
    assert (result.layers, result.refused) == ((), ())
    assert kinds(result) == ["Gemm"]
    assert stored(result) == {"V": [2, 3], "c": [2]}
    weight, bias = map(numpy_helper.to_array, result.model.graph.initializer)
    exact = [a.astype(np.float64) for a in (W, B, V, C)]
    np.testing.assert_array_equal(weight, (exact[2] @ exact[0]).astype(np.float32))
    np.testing.assert_array_equal(bias, (exact[2] @ exact[1] + exact[3]).astype(np.float32))
    assert_equal_up_to_rounding(pair(), result, X)


def test_golden_text() -> None:
    model = build(
        "[start] r = Relu(x) [one] a = MatMul(r, W) [bias] h = Add(a, b) [same] i = Identity(h) "
        "[scale] k = Mul(i, two) [last] d = MatMul(k, V) [shift] e = Add(d, c) [end] y = Relu(e)",
        inputs="float[N,2] x",
        outputs="float[N,1] y",
        W=np.array([[1, 2, 3], [4, 5, 6]], np.float32),
        b=np.array([1, -1, 1], np.float32),
        V=np.array([[1], [0], [2]], np.float32),
        c=np.array([0.5], np.float32),
        two=np.float32(2),
    )
    for name, width in (("a", 3), ("h", 3), ("i", 3), ("k", 3), ("d", 1), ("e", 1)):
        shape = helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", width])
        model.graph.value_info.append(shape)
    result = folded(model)
    assert onnx.printer.to_text(result.model) == (
        "<\n"
        "   ir_version: 9,\n"
        '   opset_import: ["" : 17]\n'
        ">\n"
        "g (float[N,2] x) => (float[N,1] y) \n"
        "   <float[2,1] V =  {14,32}, float[1] c =  {6.5}, "
        "float[N,2] i, float[N,1] d, float[N,1] e>\n"
        "{\n"
        "   [start] r = Relu (x)\n"
        "   [same] i = Identity (r)\n"
        "   [last] d = MatMul (i, V)\n"
        "   [shift] e = Add (d, c)\n"
        "   [end] y = Relu (e)\n"
        "}"
    )


def same(a: Array) -> Array:
    return a


def column(a: Array) -> Array:
    return a[:, None]


Spelling = tuple[str, str, str]
Stored = Callable[[Array], Array]
FIRST: dict[str, tuple[str, Stored]] = {
    "gemm": ("h = Gemm <transB = 1> (x, W, b)", same),
    "gemm with alpha and beta": ("h = Gemm <alpha = 0.5, beta = -3.0> (x, W, b)", np.transpose),
    "gemm without C": ("h = Gemm <transB = 1> (x, W)", same),
    "gemm with an empty C": ("h = Gemm <transB = 1> (x, W, )", same),
    "matmul": ("h = MatMul(x, W)", np.transpose),
    "matmul and add": ("a = MatMul(x, W) h = Add(b, a)", np.transpose),
    "weight behind nodes": ("Wt = Transpose(W) Wi = Identity(Wt) h = MatMul(x, Wi)", same),
}
BETWEEN = {
    "nothing": "",
    "transparent": "h1 = Identity(h) h2 = Dropout(h1) h3 = Flatten(h2)",
    "constants": "h1 = Mul(h, k) h2 = Sub(two, h1) h3 = Add(h2, k)",
    "both": "h1 = Mul(k, h) h2, mask = Dropout(h1) h3 = Sub(h2, two)",
    "division": "h1 = Identity(h) h2 = Add(h1, k) h3 = Div(h2, two)",
}
SECOND: dict[str, tuple[str, Stored]] = {
    "gemm": ("y = Gemm <transB = 1> ({}, V, c)", same),
    "gemm with alpha and beta": ("y = Gemm <alpha = 2.0, beta = 0.5> ({}, V, c)", np.transpose),
    "gemm without C": ("y = Gemm({}, V)", np.transpose),
    "matmul": ("y = MatMul({}, V)", np.transpose),
    "matmul, read on": ("d = MatMul({}, V) y = Neg(d)", np.transpose),
    "matmul and add": ("d = MatMul({}, V) y = Add(d, c)", np.transpose),
}
NAMES = {"float32": "float", "float16": "float16", "float64": "double"}


def spelled(spelling: Spelling, sizes: tuple[int, int, int], dtype: str) -> ModelProto:
    """Two random affine maps."""
    (first, store_first), (second, store_second) = FIRST[spelling[0]], SECOND[spelling[2]]
    between, (inputs, hidden, outputs) = BETWEEN[spelling[1]], sizes
    body = f"{first} {between} {second.format('h3' if between else 'h')}"
    rng = np.random.default_rng(sum(sizes))
    weights: dict[str, Any] = {
        "W": store_first(rng.normal(size=(hidden, inputs))),
        "b": rng.normal(size=hidden),
        "V": store_second(rng.normal(size=(outputs, hidden))),
        "c": rng.normal(size=outputs),
        "k": rng.normal(size=hidden),
        "two": np.array(2.0),
    }
    used = set(re.findall(r"\w+", body))
    return build(
        body,
        inputs=f"{NAMES[dtype]}[N,{inputs}] x",
        outputs=f"{NAMES[dtype]}[N,{outputs}] y",
        **{name: a.astype(dtype) for name, a in weights.items() if name in used},
    )


@given(
    st.tuples(*(st.sampled_from(sorted(part)) for part in (FIRST, BETWEEN, SECOND))),
    # of one feature, k would be a scalar, which onnxruntime makes a float32 alpha even in float64
    st.tuples(st.integers(1, 5), st.integers(2, 12), st.integers(1, 5)),
    st.sampled_from(sorted(NAMES)),
)
def test_every_spelling_computes_the_same_and_is_never_larger(
    spelling: Spelling, sizes: tuple[int, int, int], dtype: str
) -> None:
    model = spelled(spelling, sizes, dtype)
    result = folded(model)
    x = np.random.default_rng(1).uniform(-1, 1, (20, sizes[0])).astype(dtype)
    assert_equal_up_to_rounding(model, result, x)
    assert sum(n.op_type in ("Gemm", "MatMul") for n in result.model.graph.node) == (
        1 if result.changed else 2
    )
    for fold in result.folded:
        assert fold.parameters_after < fold.parameters_before
        assert fold.parameters_after == sum(
            numpy_helper.to_array(t).size for t in result.model.graph.initializer if t.dims
        )


@pytest.mark.parametrize("between", BETWEEN)
@pytest.mark.parametrize("second", SECOND)
@pytest.mark.parametrize("first", FIRST)
def test_every_spelling_is_folded(first: str, between: str, second: str) -> None:
    model = spelled((first, between, second), (3, 9, 2), "float32")
    result = folded(model)
    assert len(result.folded) == 1
    assert_equal_up_to_rounding(model, result, X)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", ["3,N", "5,3,N", "3"])
def test_weights_on_the_left(bias: bool, shape: str) -> None:
    adds = "h = Add(a, b) d = MatMul(V, h) y = Add(d, c)" if bias else "y = MatMul(V, a)"
    along = same if shape == "3" else column
    weights: dict[str, Any] = {"W": W, "V": V}
    if bias:
        weights |= {"b": along(B), "c": along(C)}
    outputs = f"float[{shape.replace('3', '2')}] y"
    model = build(
        f"a = MatMul(W, x) {adds}", inputs=f"float[{shape}] x", outputs=outputs, **weights
    )
    result = folded(model)
    assert len(result.folded) == 1
    x = RNG.normal(size=[{"N": 4}.get(n) or int(n) for n in shape.split(",")]).astype(np.float32)
    np.testing.assert_allclose(
        outputs_of(result.model, x)[0], outputs_of(model, x)[0], rtol=0, atol=2e-5
    )


def test_a_bias_of_the_first_map_alone_on_the_left() -> None:
    model = build(
        "a = MatMul(W, x) h = Add(a, b) y = MatMul(V, h)",
        inputs="float[3,N] x",
        outputs="float[2,N] y",
        W=W,
        b=B[:, None],
        V=V,
    )
    result = folded(model)
    assert stored(result) == {"V": [2, 3], "y_bias": [2, 1]}
    np.testing.assert_allclose(
        outputs_of(result.model, X.T)[0], outputs_of(model, X.T)[0], rtol=0, atol=2e-5
    )


def test_more_axes_and_a_flatten_that_keeps_the_features() -> None:
    model = build(
        "h = MatMul(x, W) f = Flatten <axis = 2> (h) y = Gemm <transB = 1> (f, V, c)",
        inputs="float[4,5,3] x",
        outputs="float[20,2] y",
        W=W.T,
        V=V,
        c=C,
    )
    result = folded(model)
    assert kinds(result) == ["Flatten", "Gemm"]
    x = RNG.normal(size=(4, 5, 3)).astype(np.float32)
    assert_equal_up_to_rounding(model, result, x)


def test_a_fold_that_would_be_larger_is_refused() -> None:
    w, v = np.ones((2, 8), np.float32), np.ones((8, 2), np.float32)
    model = build(
        "[down] h = MatMul(x, W) [up] y = MatMul(h, V)",
        inputs="float[N,8] x",
        outputs="float[N,8] y",
        W=w.T,
        V=v.T,
    )
    assert_left_alone(
        model, "folded into 'up' it would need 64 parameters, not fewer than the 32 of both"
    )


def test_a_fold_that_saves_nothing_is_refused() -> None:
    model = build(
        "h = MatMul(x, W) y = MatMul(h, V)",
        inputs="float[N,4] x",
        outputs="float[N,4] y",
        W=np.eye(4, 2, dtype=np.float32),
        V=np.eye(2, 4, dtype=np.float32),
    )
    assert_left_alone(
        model, "folded into 'y' it would need 16 parameters, not fewer than the 16 of both"
    )


@pytest.mark.parametrize(
    ("body", "outputs"),
    [
        (GEMMS, "float[N,2] y, float[N,8] h"),
        (f"{GEMMS} z = Relu(h)", "float[N,2] y, float[N,8] z"),
        (f"{GEMMS} z = Gemm <transB = 1> (h, V, c)", "float[N,2] y, float[N,2] z"),
        ("h = Gemm <transB = 1> (x, W, b) y = Add(h, h)", "float[N,8] y"),
    ],
)
def test_a_value_in_between_with_another_use_keeps_both_maps(body: str, outputs: str) -> None:
    assert_left_alone(pair(body, outputs=outputs))


@pytest.mark.parametrize("activation", ["Mul(h, h)", "Pow(h, two)", "Relu(h)", "Add(h, h)"])
def test_an_activation_in_between_keeps_both_maps(activation: str) -> None:
    body = f"h = Gemm <transB = 1> (x, W, b) s = {activation} y = Gemm <transB = 1> (s, V, c)"
    assert_left_alone(pair(body, two=np.float32(2)))


def test_a_value_in_between_read_by_a_body_keeps_both_maps() -> None:
    body = (
        f"{GEMMS} z = If(k) <then_branch = t () => (float[N,8] p) {{ p = Neg(h) }}, "
        "else_branch = e () => (float[N,8] q) { q = Abs(h) }>"
    )
    assert_left_alone(
        pair(body, inputs="float[N,3] x, bool k", outputs="float[N,2] y, float[N,8] z")
    )


@pytest.mark.parametrize(
    "body",
    [
        "h = Gemm <transB = 1> (x, W, b) y = Gemm(h, x2, c)",
        "h = Gemm <transB = 1> (x, W, b) y = Gemm(x3, V, h)",
        "h = Gemm <transB = 1> (x, W, b) y = Gemm <transA = 1, transB = 1> (h, V)",
        "h = Gemm <transB = 1> (x, W, b) d = Dropout(h, half, yes) y = Gemm(d, V)",
    ],
)
def test_what_is_no_affine_map_of_the_value_is_left_alone(body: str) -> None:
    model = pair(body, inputs="float[N,3] x, float[8,2] x2, float[N,8] x3", half=np.float32(0.5))
    model.graph.initializer.append(numpy_helper.from_array(np.array(True), "yes"))
    assert not FoldAffine().apply(Graph(model)).changed


def test_a_weight_that_a_caller_may_override_is_left_alone() -> None:
    model = pair(inputs="float[N,3] x, float[8,3] W")
    assert not FoldAffine().apply(Graph(model)).changed


def test_maps_along_different_axes_are_left_alone() -> None:
    model = build(
        "h = MatMul(x, W) y = MatMul(V, h)",
        inputs="float[8,3] x",
        outputs="float[2,8] y",
        W=W.T,
        V=V,
    )
    assert_left_alone(model)


def test_a_flatten_between_maps_with_the_weight_on_the_left_is_left_alone() -> None:
    model = build(
        "h = MatMul(W, x) f = Flatten <axis = 2> (h) y = MatMul(V, f)",
        inputs="float[1,3,4] x",
        outputs="float[2,4] y",
        W=W,
        V=V,
    )
    assert_left_alone(model)


def test_old_opsets_are_left_alone() -> None:
    body = "h = Gemm <broadcast = 1> (x, W, b) y = Gemm <broadcast = 1> (h, V, c)"
    assert_left_alone(pair(body, opset=6, ir=4, W=W.T, V=V.T))


@pytest.mark.parametrize("dtype", [np.float16, np.float64, ml_dtypes.bfloat16])
def test_the_dtype_stays(dtype: Any) -> None:
    name = {"float64": "double"}.get(np.dtype(dtype).name, np.dtype(dtype).name)
    w, b, v, c = (a.astype(dtype) for a in (W, B, V, C))
    model = pair(inputs=f"{name}[N,3] x", outputs=f"{name}[N,2] y", W=w, b=b, V=v, c=c)
    result = folded(model)
    assert {t.data_type for t in result.model.graph.initializer} == {
        helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    }
    if dtype is not ml_dtypes.bfloat16:
        assert_equal_up_to_rounding(model, result, X.astype(dtype))


@pytest.mark.parametrize(
    ("dtype", "scale"),
    [
        ("float16", 1e3),
        ("float16", 1e-4),
        ("float32", 1e25),
        ("float32", 1e-25),
        ("float32", np.nan),
        ("float32", np.inf),
        ("float64", 1e200),
    ],
)
def test_a_product_that_does_not_fit_the_dtype_is_refused(dtype: str, scale: float) -> None:
    w, v = (np.full(a.shape, scale, dtype) for a in (W, V))
    body = "h = Gemm <transB = 1> (x, W) y = Gemm <transB = 1> (h, V)"
    name = NAMES[dtype]
    model = build(body, inputs=f"{name}[N,3] x", outputs=f"{name}[N,2] y", W=w, V=v)
    assert_left_alone(model, f"the product overflows or underflows {dtype}, or is not a number")


def test_a_product_that_cancels_is_folded() -> None:
    w = np.array([[1, 0, 1], [1, 1e-7, 1]], np.float32)
    v = np.array([[1, -1]], np.float32)
    body = "h = Gemm <transB = 1> (x, W) y = Gemm <transB = 1> (h, V)"
    model = build(body, outputs="float[N,1] y", W=w, V=v)
    result = folded(model)
    np.testing.assert_array_equal(
        numpy_helper.to_array(result.model.graph.initializer[0]),
        np.array([[0, -1e-7, 0]], np.float32),
    )
    assert_equal_up_to_rounding(model, result, X)


def chain(*widths: int) -> ModelProto:
    """MatMuls m1, m2 … from one width to the next."""
    values = ["x", *(f"v{i}" for i in range(1, len(widths) - 1)), "y"]
    rng = np.random.default_rng(2)
    weights: dict[str, Any] = {
        f"W{i}": rng.normal(size=shape).astype(np.float32)
        for i, shape in enumerate(pairwise(widths), 1)
    }
    return build(
        " ".join(f"[m{i}] {b} = MatMul({a}, W{i})" for i, (a, b) in enumerate(pairwise(values), 1)),
        inputs=f"float[N,{widths[0]}] x",
        outputs=f"float[N,{widths[-1]}] y",
        **weights,
    )


def test_a_chain_of_three_becomes_one() -> None:
    model = chain(3, 10, 20, 2)
    result = folded(model)
    assert result.folded == (
        Fold("m2", "m3", 240, 20, "float32"),
        Fold("m1", "m3", 50, 6, "float32"),
    )
    assert stored(result) == {"W3": [3, 2]}
    assert_equal_up_to_rounding(model, result, X)


def test_a_chain_is_folded_where_that_saves_most() -> None:
    result = folded(chain(10, 3, 4, 100))
    assert stored(result) == {"W1": [10, 3], "W3": [3, 100]}
    assert [r.node for r in result.unfolded] == ["m1"]


def test_a_chain_is_folded_up_to_its_bottleneck() -> None:
    result = folded(chain(16, 20, 1, 20, 16))
    assert stored(result) == {"W2": [16, 1], "W4": [1, 16]}


def test_weights_that_others_read_stay_and_count() -> None:
    model = pair(
        f"{GEMMS} [other] z = Gemm <transB = 1> (x, W, b)", outputs="float[N,2] y, float[N,8] z"
    )
    result = folded(model)
    assert result.folded == (Fold("one", "two", 50, 32 + 8, "float32"),)
    assert stored(result) == {"W": [8, 3], "b": [8], "V": [2, 3], "c": [2]}
    assert_equal_up_to_rounding(model, result, X)


def test_a_second_weight_that_others_read_is_copied_if_that_is_smaller() -> None:
    other = "g = Relu(h2) z = Gemm <transB = 1> (g, V, c)"
    model = pair(
        f"{GEMMS} {other}",
        inputs="float[N,3] x, float[N,8] h2",
        outputs="float[N,2] y, float[N,2] z",
    )
    result = folded(model)
    assert result.folded == (Fold("one", "two", 50, 18 + 8, "float32"),)
    assert stored(result) == {"V": [2, 8], "c": [2], "V_merged": [2, 3], "c_merged": [2]}


def test_towers_that_share_all_weights_are_left_alone() -> None:
    tower = "h{0} = Gemm <transB = 1> (x{0}, W, b) y{0} = Gemm <transB = 1> (h{0}, V, c) "
    model = pair(
        tower.format(1) + tower.format(2),
        inputs="float[N,3] x1, float[N,3] x2",
        outputs="float[N,2] y1, float[N,2] y2",
    )
    reason = "folded into '{}' it would need 58 parameters, not fewer than the 50 of both"
    assert_left_alone(model, reason.format("y1"), reason.format("y2"))


def test_one_weight_in_both_maps() -> None:
    square = W[:3]
    model = build("h = MatMul(x, W) y = MatMul(h, W)", outputs="float[N,3] y", W=square)
    assert_left_alone(
        model, "folded into 'y' it would need 9 parameters, not fewer than the 9 of both"
    )


def test_weights_in_constant_nodes_stay_in_constant_nodes() -> None:
    model = build("y = Identity(x)")
    del model.graph.node[:]
    for name, values in (("W", W), ("b", B), ("V", V), ("c", C)):
        tensor = numpy_helper.from_array(values)
        model.graph.node.append(helper.make_node("Constant", [], [name], value=tensor))
    model.graph.node.extend(build(GEMMS).graph.node)
    result = folded(model)
    assert kinds(result) == ["Constant", "Constant", "Gemm"]
    assert_equal_up_to_rounding(model, result, X)


def test_weights_in_a_file_beside_the_model(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(pair(), path, save_as_external_data=True, location="data", size_threshold=0)
    graph = Graph(onnx.load(path, load_external_data=False), tmp_path)
    result = FoldAffine().apply(graph)
    assert result.model == folded(pair()).model


def test_everything_else_in_the_model_stays_field_for_field() -> None:
    model = pair(f"{GEMMS} [end] z = Relu(y)", outputs="float[N,2] z")
    model.producer_name, model.domain, model.doc_string = "somebody", "org.example", "kept"
    model.metadata_props.add(key="onnxfde.version", value="0")
    model.graph.doc_string = "also kept"
    model.graph.node[1].doc_string = "the second"
    model.graph.node[1].metadata_props.add(key="where", value="file.py")
    model.graph.initializer.append(numpy_helper.from_array(np.ones(3, np.float32), "unused"))
    for name, width in (("h", 8), ("y", 2)):
        shape = helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", width])
        model.graph.value_info.append(shape)
    expected = ModelProto.FromString(model.SerializeToString())
    result = folded(model).model
    del expected.graph.node[0], expected.graph.value_info[0], expected.graph.initializer[:2]
    expected.graph.node[0].input[0] = "x"
    for i in range(2):
        expected.graph.initializer[i].CopyFrom(result.graph.initializer[i])
    assert [t.name for t in result.graph.initializer] == ["V", "c", "unused"]
    assert result == expected


def test_a_folded_pair_before_a_square_is_a_layer() -> None:
    model = pair(
        f"{GEMMS} s = Mul(y, y) o = Gemm <transB = 1> (s, R)",
        outputs="float[N,1] o",
        R=np.ones((1, 2), np.float32),
    )
    result = MergeNeurons(eps=0).apply(Graph(folded(model).model))
    assert [(layer.name, layer.inputs) for layer in result.layers] == [("two", 3)]


def test_it_says_what_it_does() -> None:
    said: list[str] = []
    progress = Progress(say=said.append)
    FoldAffine().apply(Graph(pair()), Context(progress=progress))
    assert said == ["one: folded into two"]
    assert set(progress.seconds) == {"fold"}
