"""Only the nodes and tensors of a rewritten layer change."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import onnxfde
from onnxfde.graph.protos import ModelProto
from tests.models import build, mlp, outputs_of, shapes, twins

W, B, V, C = twins()
X = np.random.default_rng(1).uniform(-1, 1, (50, 3)).astype(np.float32)


def node_texts(model: ModelProto) -> list[str]:
    return [
        f"{n.name}: {','.join(n.output)} = {n.op_type}({','.join(n.input)})"
        for n in model.graph.node
    ]


def test_everything_else_in_the_model_stays_field_for_field() -> None:
    model = mlp(W, B, V, C)
    model.producer_name, model.domain, model.model_version = "somebody", "org.example", 7
    model.doc_string = "kept"
    model.metadata_props.add(key="author", value="me")
    model.graph.doc_string = "also kept"
    model.graph.initializer.append(numpy_helper.from_array(np.ones(3, np.float32), "unused"))
    model.graph.value_info.append(helper.make_tensor_value_info("h", TensorProto.FLOAT, ["N", 6]))
    model.graph.node[1].doc_string = "squares"
    model.graph.node[1].metadata_props.add(key="where", value="file.py")
    before = ModelProto.FromString(model.SerializeToString())
    result = onnxfde.optimize(model, eps=0).model
    assert model == before
    assert node_texts(result) == node_texts(before)
    assert shapes(result) == {"W": [3, 3], "b": [3], "V": [2, 3], "c": [2], "unused": [3]}
    hidden = result.graph.value_info[0].type.tensor_type.shape
    assert [d.dim_param or d.dim_value for d in hidden.dim] == ["N", 3]
    for part in (result, before):
        del part.graph.initializer[:], part.graph.value_info[:]
    assert [p.key for p in result.metadata_props][:1] == ["author"]
    del result.metadata_props[1:]
    assert result == before


def test_golden_text_of_a_folded_layer() -> None:
    model = build(
        "[first] a = MatMul(x, W) [scale] p = Mul(a, two) [shift] h = Add(p, b) [sq] s = Mul(h, h) "
        "[again] t = Mul(s, two) [second] d = MatMul(t, V) [bias] y = Add(d, c)",
        W=W.T,
        b=B,
        V=V.T,
        c=C,
        two=np.float32(2),
    )
    result = onnxfde.optimize(model, eps=0)
    assert node_texts(result.model) == [
        "first: a = MatMul(x,W)",
        "shift: h = Add(a,b)",
        "sq: s = Mul(h,h)",
        "second: d = MatMul(s,V)",
        "bias: y = Add(d,c)",
    ]
    assert shapes(result.model) == {"W": [3, 3], "b": [3], "V": [3, 2], "c": [2]}


def test_alpha_and_beta_become_one() -> None:
    model = build(
        "h = Gemm <alpha = 0.5, transB = 1> (x, W, b) s = Mul(h, h) "
        "y = Gemm <beta = 2.0, transB = 1> (s, V, c)",
        W=W,
        b=B / 2,
        V=V,
        c=C,
    )
    result = onnxfde.optimize(model, eps=0).model
    assert [[a.name for a in n.attribute] for n in result.graph.node] == [
        ["transB"],
        [],
        ["transB"],
    ]


def constant_model(ir: int) -> ModelProto:
    model = build("y = Identity(x)", ir=ir, opset=8 if ir == 3 else 17)
    del model.graph.node[:]
    for name, values in (("W", W), ("b", B), ("V", V), ("c", C)):
        tensor = numpy_helper.from_array(values)
        model.graph.node.append(helper.make_node("Constant", [], [name], value=tensor))
    parsed = mlp(W, B, V, C)
    model.graph.node.extend(parsed.graph.node)
    return model


@pytest.mark.parametrize("ir", [3, 9])
def test_weights_in_constant_nodes_stay_in_constant_nodes(ir: int) -> None:
    model = constant_model(ir)
    onnx.checker.check_model(model)
    result = onnxfde.optimize(model, eps=0).model
    onnx.checker.check_model(result)
    assert not result.graph.initializer
    constants = [n.attribute[0].t for n in result.graph.node if n.op_type == "Constant"]
    assert sorted(list(tensor.dims) for tensor in constants) == [[2], [2, 3], [3], [3, 3]]
    np.testing.assert_allclose(
        outputs_of(result, X)[0], outputs_of(model, X)[0], rtol=2e-5, atol=2e-5
    )


def test_a_chain_of_nodes_behind_a_weight_is_removed_with_it() -> None:
    model = build(
        "W1 = Identity(W) W2 = Transpose(W1) h = Gemm(x, W2, b) s = Mul(h, h) "
        "y = Gemm <transB = 1> (s, V, c)",
        W=W,
        b=B,
        V=V,
        c=C,
    )
    result = onnxfde.optimize(model, eps=0).model
    assert [n.op_type for n in result.graph.node] == ["Gemm", "Mul", "Gemm"]
    assert set(shapes(result)) == {"W2_merged", "b", "V", "c"}


def test_a_name_that_is_taken_is_not_used_again() -> None:
    model = build(
        "h = Gemm <transB = 1> (x, W, b) s = Mul(h, h) y = Gemm <transB = 1> (s, V, c) "
        "z = Gemm <transB = 1> (x, W, b) W_merged = Relu(x)",
        outputs="float[N,20] y, float[N,6] z, float[N,3] W_merged",
        W=W,
        b=B,
        V=np.tile(V, (10, 1)),
        c=np.tile(C, 10),
    )
    result: Any = onnxfde.optimize(model, eps=0).model
    assert list(result.graph.node[0].input) == ["x", "W_merged_1", "b_merged"]
    onnx.checker.check_model(result, full_check=True)


def test_shapes_of_values_that_are_gone_are_forgotten() -> None:
    model = build(
        "a = MatMul(x, W) h = Mul(a, two) s = Mul(h, h) y = MatMul(s, V)",
        W=W.T,
        V=V.T,
        two=np.float32(2),
    )
    for name in ("a", "h", "s"):
        model.graph.value_info.append(
            helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", 6])
        )
    result = onnxfde.optimize(model, eps=0).model
    assert [v.name for v in result.graph.value_info] == ["a", "s"]
    onnx.checker.check_model(result, full_check=True)


def test_weights_that_are_graph_outputs_stay_as_they_are() -> None:
    model = build(
        "h = Gemm <transB = 1> (x, W, b) s = Mul(h, h) y = Gemm <transB = 1> (s, V, c)",
        outputs="float[N,2] y, float[6,3] W",
        W=W,
        b=B,
        V=V,
        c=C,
    )
    result = onnxfde.optimize(model, eps=0, verify=False).model
    assert shapes(result) == {"W": [6, 3], "b": [3], "V": [2, 3], "c": [2], "W_merged": [3, 3]}
    onnx.checker.check_model(result, full_check=True)


def test_a_constant_behind_nodes_that_is_a_graph_output_stays() -> None:
    model = build(
        "W1 = Identity(W) h = Gemm <transB = 1> (x, W1, b) s = Mul(h, h) "
        "y = Gemm <transB = 1> (s, V, c)",
        outputs="float[N,2] y, float[6,3] W1",
        W=W,
        b=B,
        V=V,
        c=C,
    )
    result = onnxfde.optimize(model, eps=0, verify=False)
    assert result.report.layers[0].neurons_after == 3
    y, w = outputs_of(result.model, X)
    np.testing.assert_array_equal(w.reshape(6, 3), W)
    np.testing.assert_allclose(y, outputs_of(model, X)[0], rtol=2e-5, atol=2e-5)


def test_towers_that_share_their_weights_share_the_merged_ones() -> None:
    layer = (
        "h{0} = Gemm <transB = 1> (x{0}, W, b) s{0} = Mul(h{0}, h{0}) "
        "y{0} = Gemm <transB = 1> (s{0}, V, c) "
    )
    model = build(
        layer.format(1) + layer.format(2),
        inputs="float[N,3] x1, float[N,3] x2",
        outputs="float[N,2] y1, float[N,2] y2",
        W=W,
        b=B,
        V=V,
        c=C,
    )
    result = onnxfde.optimize(model, eps=0)
    assert len(result.model.graph.initializer) == 4
    assert result.report.parameters.after == 9 + 3 + 6 + 2


def test_metadata_of_a_rewritten_tensor_is_kept() -> None:
    model = mlp(W, B, V, C)
    model.graph.initializer[0].metadata_props.add(key="k", value="v")
    model.graph.initializer[0].doc_string = "weights"
    tensor = onnxfde.optimize(model, eps=0).model.graph.initializer[0]
    assert (tensor.name, list(tensor.dims)) == ("W", [3, 3])
    assert (tensor.doc_string, tensor.metadata_props[0].value) == ("weights", "v")


def test_the_shape_of_an_unused_dropout_mask_is_corrected() -> None:
    model = build(
        "h = Gemm <transB = 1> (x, W, b) q, mask = Dropout(h) s = Mul(q, q) "
        "y = Gemm <transB = 1> (s, V, c)",
        W=W,
        b=B,
        V=V,
        c=C,
    )
    model.graph.value_info.append(helper.make_tensor_value_info("mask", TensorProto.BOOL, ["N", 6]))
    result = onnxfde.optimize(model, eps=0).model
    onnx.checker.check_model(result, full_check=True)
    mask = result.graph.value_info[0].type.tensor_type.shape
    assert [d.dim_param or d.dim_value for d in mask.dim] == ["N", 3]
