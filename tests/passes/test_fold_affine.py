"""Affine maps in a row become one where that is smaller, and nothing else changes."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxfde.graph.model import Graph
from onnxfde.graph.protos import ModelProto
from onnxfde.passes import Context, Fold, FoldAffine, MergeNeurons
from onnxfde.progress import Progress
from tests.models import build
from tests.passes.affine_pairs import (
    GEMMS,
    B,
    C,
    V,
    W,
    X,
    assert_equal_up_to_rounding,
    folded,
    kinds,
    pair,
    stored,
)


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
