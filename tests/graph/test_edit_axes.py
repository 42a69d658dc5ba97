"""Editing axes: what changes, what stays, and what writers write."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxfde.graph.axes import Axis
from onnxfde.graph.axis_readers import reader_bias, reader_matrix
from onnxfde.graph.edit_axes import keep_units, write_producer, write_reader
from onnxfde.graph.files import read_model
from onnxfde.graph.find_axes import find_axes, producer_rows
from onnxfde.graph.model import Graph
from onnxfde.graph.protos import ModelProto
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
    some,
    zeroed,
)
from tests.models import outputs_of, shapes

KEPT = some(UNITS)
FEWER = len(KEPT)


def only_axis(model: ModelProto) -> tuple[Graph, Axis]:
    graph = Graph(model)
    (axis,), _ = find_axes(graph)
    return graph, axis


def copy(model: ModelProto) -> ModelProto:
    return ModelProto.FromString(model.SerializeToString())


def recorded(model: ModelProto) -> dict[str, list[Any]]:
    return {
        v.name: [d.dim_param or d.dim_value for d in v.type.tensor_type.shape.dim]
        for v in model.graph.value_info
    }


def documented_model() -> ModelProto:
    model = between(
        "n = BatchNormalization(h, k, m, m, v) a = Relu(n) d = Conv <group = 6> (a, D) "
        "f = Flatten(d) r = Dropout(f)",
        "y = Gemm <transB = 1> (r, V, c)",
        k=normal(UNITS),
        m=normal(UNITS, seed=1),
        v=np.ones(UNITS, np.float32),
        D=normal(UNITS, 1, 3, 3),
        V=normal(OUTPUTS, UNITS * 36),
        outputs="float[N,3] y",
    )
    model.doc_string, model.producer_name = "kept", "somebody"
    model.metadata_props.add(key="author", value="me")
    model.graph.initializer.append(numpy_helper.from_array(normal(UNITS), "unused"))
    model.graph.initializer[0].doc_string = "a weight"
    model.graph.node[0].doc_string = "a convolution"
    hidden: dict[str, list[Any]] = {"h": ["N", 6, 8, 8], "f": ["N", 216], "d": ["N", 6, 6, 6]}
    for name, dims in hidden.items():
        model.graph.value_info.append(helper.make_tensor_value_info(name, 1, dims))
    model.graph.value_info.append(helper.make_tensor_value_info("z", 1, [6]))
    return model


def test_only_the_axis_changes_field_for_field() -> None:
    model = documented_model()
    before, result = copy(model), narrow(model)
    assert model == before
    assert recorded(result) == {
        "h": ["N", FEWER, 8, 8],
        "f": ["N", FEWER * 36],
        "d": ["N", FEWER, 6, 6],
        "z": [6],
    }
    assert {name: dims for name, dims in shapes(result).items() if name != "unused"} == {
        "W": [FEWER, 2, 3, 3],
        **{name: [FEWER] for name in ("b", "k", "m_merged", "v")},
        "D": [FEWER, 1, 3, 3],
        "V": [OUTPUTS, FEWER * 36],
        "c": [OUTPUTS],
    }
    assert result.graph.initializer[0].doc_string == "a weight"
    group = next(a for a in result.graph.node[3].attribute if a.name == "group")
    assert group.i == FEWER
    group.i = UNITS
    for part in (result, before):
        del part.graph.initializer[:], part.graph.value_info[:]
    result.graph.node[1].input[:] = before.graph.node[1].input
    assert result == before


def test_the_index_of_the_graph_follows() -> None:
    graph, axis = only_axis(documented_model())
    left = keep_units(graph, axis, KEPT)
    fresh = Graph(copy(graph.model))
    assert graph.initializers == fresh.initializers
    assert graph.consumers.keys() == fresh.consumers.keys()
    (again,), _ = find_axes(graph)
    (anew,), _ = find_axes(fresh)
    for found in (left, again):
        assert (found.units, found.values, found.flattened) == (FEWER, anew.values, anew.flattened)
        np.testing.assert_array_equal(found.readers[0].columns, anew.readers[0].columns)
    assert all(graph.shape(name) == fresh.shape(name) for name in axis.values)


def test_recorded_shapes_of_flattened_units_on_another_axis_than_the_last() -> None:
    model = between(
        "f = Flatten(h) p = Unsqueeze(f, two) q = Relu(p) r = Squeeze(q, two)",
        "y = Gemm <transB = 1> (r, V, c)",
        two=np.array([2]),
        V=normal(OUTPUTS, UNITS * 64),
        outputs="float[N,3] y",
    )
    model.graph.value_info.append(helper.make_tensor_value_info("q", 1, ["N", UNITS * 64, 1]))
    assert recorded(narrow(model)) == {"q": ["N", FEWER * 64, 1]}


def test_keeping_all_units_changes_nothing() -> None:
    graph, axis = only_axis(documented_model())
    before = copy(graph.model)
    assert keep_units(graph, axis, np.arange(UNITS)) is axis
    assert graph.model == before


@pytest.mark.parametrize("kept", [[], [1, 1], [2, 1], [-1, 2], [0, 6]])
def test_kept_units_must_rise_and_exist(kept: list[int]) -> None:
    graph, axis = only_axis(documented_model())
    with pytest.raises(ValueError, match="must rise"):
        keep_units(graph, axis, np.array(kept, np.intp))


def test_one_unit_can_be_left() -> None:
    graph, axis = only_axis(documented_model())
    keep_units(graph, axis, np.array([4]))
    assert outputs_of(graph.model, image())[0].shape == (3, OUTPUTS)


def test_a_weight_that_something_else_reads_stays() -> None:
    model = between(
        "a = Mul(h, k) r = Mul(a, k)",
        "y = Conv(r, V, c) z = Mul(V, V) u = Mul(k, k)",
        k=normal(UNITS, 1, 1),
        outputs="float[N,M,P,Q] y, float[3,6,3,3] z, float[6,1,1] u",
    )
    result = narrow(model)
    assert shapes(result)["V"] == [OUTPUTS, UNITS, 3, 3]
    assert shapes(result)["k"] == [UNITS, 1, 1]
    assert shapes(result)["k_merged"] == [FEWER, 1, 1]
    assert len(result.graph.initializer) == len(model.graph.initializer) + 2
    expected, found = outputs_of(zeroed(model), image()), outputs_of(result, image())
    for a, b in zip(expected, found, strict=True):
        np.testing.assert_allclose(b, a, rtol=0, atol=1e-5)


def test_weights_shared_by_producer_and_reader() -> None:
    square = normal(UNITS, UNITS, 3, 3)
    model = between(
        "p = Conv(h, V) q = Relu(p) r = Conv(q, V)",
        "y = Conv(r, U)",
        V=square,
        U=normal(3, UNITS, 1, 1),
    )
    assert len(axes_of(model)) == 3
    assert_same_without_units(model, image())


def test_weights_in_constant_nodes() -> None:
    model = between(
        "k = Constant <value_floats = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]> () "
        "t = Transpose <perm = [0, 2, 3, 1]> (h) m = Mul(t, k) "
        "r = Transpose <perm = [0, 3, 1, 2]> (m)"
    )
    for tensor in list(model.graph.initializer):
        node = helper.make_node("Constant", [], [tensor.name], value=tensor)
        model.graph.node.insert(0, node)
    del model.graph.initializer[:]
    assert_same_without_units(model, image())
    result = narrow(model)
    assert not result.graph.initializer
    assert sum(n.op_type == "Constant" for n in result.graph.node) == 5


def test_weights_behind_transposes() -> None:
    model = between("r = Relu(h)")
    weight = next(t for t in model.graph.initializer if t.name == "W")
    turned = np.ascontiguousarray(WEIGHTS["W"].transpose(2, 3, 1, 0))
    weight.CopyFrom(numpy_helper.from_array(turned, "hwio"))
    node = helper.make_node("Transpose", ["hwio"], ["W"], perm=[3, 2, 0, 1])
    model.graph.node.insert(0, node)
    assert_same_without_units(model, image())
    assert "Transpose" not in [n.op_type for n in narrow(model).graph.node]


@pytest.mark.parametrize(
    ("spelling", "opset"),
    [
        ("k = Reshape(flat, shape)", 17),
        ("k = Unsqueeze <axes = [1, 2]> (flat)", 12),
        ("p = Unsqueeze(flat, ax) q = Squeeze(p, ax) k = Reshape(q, shape)", 13),
    ],
)
def test_constants_that_are_reshaped(spelling: str, opset: int) -> None:
    model = between(
        f"{spelling} r = Add(h, k)",
        flat=normal(UNITS),
        shape=np.array([-1, 1, 1]),
        ax=np.array([0, 2]),
        opset=opset,
    )
    assert_same_without_units(model, image())
    assert not {"Reshape", "Unsqueeze"} & {n.op_type for n in narrow(model).graph.node}


def test_float16() -> None:
    half: dict[str, Any] = {name: a.astype(np.float16) for name, a in WEIGHTS.items()}
    model = between("r = Relu(h)", **half)
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.elem_type = TensorProto.FLOAT16
    assert_same_without_units(model, image().astype(np.float16), atol=1e-2)
    assert {t.data_type for t in narrow(model).graph.initializer} == {TensorProto.FLOAT16}


def test_external_data(tmp_path: Path) -> None:
    model = between("r = Relu(h)")
    path = tmp_path / "m.onnx"
    onnx.save(model, path, save_as_external_data=True, location="w.bin", size_threshold=0)
    graph = Graph(read_model(path), tmp_path)
    (axis,), _ = find_axes(graph)
    keep_units(graph, axis, KEPT)
    for tensor in graph.model.graph.initializer:
        inside = tensor.data_location != TensorProto.EXTERNAL
        assert inside == (tensor.name != "c")
    found = numpy_helper.to_array(graph.initializers["W"])
    np.testing.assert_array_equal(found, WEIGHTS["W"][KEPT])


FACTS: dict[str, tuple[str, dict[str, Any]]] = {
    "plain": ("g = Conv(r, V, c) y = Relu(g)", {}),
    "BatchNormalization": (
        "g = Conv(r, V) n = BatchNormalization(g, s, t, t, v) y = Relu(n)",
        {"s": normal(3), "t": normal(3, seed=1), "v": normal(3) ** 2 + 1},
    ),
    "constants": (
        "g = Conv(r, V, c) p = Mul(g, s) q = Add(t, p) o = Sub(t, q) e = Neg(o) n = Div(e, s) "
        "y = Relu(n)",
        {"s": normal(3, 1, 1), "t": normal(3, 1, 1, seed=1)},
    ),
    "MatMul": (
        "z = ReduceMean <axes = [2, 3], keepdims = 0> (r) g = MatMul(z, V) p = Add(c, g) "
        "n = Mul(p, s) y = Relu(n)",
        {"V": normal(UNITS, 3), "s": normal(3), "outputs": "float[N,3] y"},
    ),
    "Gemm": (
        "z = ReduceMean <axes = [2, 3], keepdims = 0> (r) "
        "g = Gemm <alpha = 0.5, beta = 3.0> (z, V, c) n = Mul(g, s) y = Relu(n)",
        {"V": normal(UNITS, 3), "s": normal(3), "outputs": "float[N,3] y"},
    ),
    "one bias for all": (
        "z = ReduceMean <axes = [2, 3], keepdims = 0> (r) g = Gemm(z, V, c) y = Relu(g)",
        {"V": normal(UNITS, 3), "c": np.float32(0.5), "outputs": "float[N,3] y"},
    ),
}


@pytest.mark.parametrize("name", FACTS)
def test_a_reader_is_what_it_says(name: str) -> None:
    """made = scale · (W φ + bias) + shift: with W and the bias of a product without constants."""
    reader_text, options = FACTS[name]
    model = between("r = Relu(h)", reader_text, **options)
    graph, axis = only_axis(model)
    (reader,) = axis.readers
    matrix, bias = reader_matrix(graph, reader), reader_bias(graph, reader)
    model.graph.output.append(onnx.ValueInfoProto(name=reader.made))
    model.graph.output.append(onnx.ValueInfoProto(name=reader.value))
    _, made, value = outputs_of(model, image())
    if reader.node.op_type == "Conv":
        views = np.lib.stride_tricks.sliding_window_view(value, (3, 3), axis=(2, 3))
        plain = np.einsum("nchwkl,ockl->nohw", views, matrix.reshape(3, UNITS, 3, 3))
        scale, shift, bias = (a[:, None, None] for a in (reader.scale, reader.shift, bias))
    else:
        plain, scale, shift = value @ matrix.T, reader.scale, reader.shift
    np.testing.assert_allclose(made, scale * (plain + bias) + shift, rtol=0, atol=1e-4)


@pytest.mark.parametrize("name", FACTS)
def test_writing_what_was_read_changes_nothing(name: str) -> None:
    reader_text, options = FACTS[name]
    model = between("r = Relu(h)", reader_text, **options)
    before, nodes = outputs_of(model, image())[0], len(model.graph.node)
    graph, axis = only_axis(model)
    (reader,) = axis.readers
    write_reader(graph, reader, reader_matrix(graph, reader), reader_bias(graph, reader))
    write_producer(graph, axis.producer, *producer_rows(graph, axis.producer))
    np.testing.assert_allclose(outputs_of(graph.model, image())[0], before, rtol=0, atol=1e-6)
    assert len(graph.model.graph.node) == nodes


@pytest.mark.parametrize("name", FACTS)
def test_a_new_bias_shows_in_the_result(name: str) -> None:
    """Also in readers without a bias, twice in a row, and after units were removed."""
    reader_text, options = FACTS[name]
    reader_text = reader_text.replace("(r, V, c)", "(r, V)").replace("(z, V, c)", "(z, V)")
    if name == "MatMul":
        reader_text = reader_text.replace("p = Add(c, g)", "").replace("Mul(p, s)", "Mul(g, s)")
    graph, axis = only_axis(between("r = Relu(h)", reader_text, **options))
    axis = keep_units(graph, axis, KEPT)
    (reader,) = axis.readers
    for bias in (np.array([1.0, 2.0, 3.0]), np.array([30.0, 20.0, 10.0])):
        reader = write_reader(graph, reader, 0 * reader_matrix(graph, reader), bias)
        np.testing.assert_array_equal(reader_bias(graph, reader), bias)
        model = copy(graph.model)
        model.graph.output.append(onnx.ValueInfoProto(name=reader.made))
        made = outputs_of(model, image())[1]
        flat = np.moveaxis(made, 1, -1).reshape(-1, 3)
        expected = np.broadcast_to(reader.scale * bias + reader.shift, flat.shape)
        np.testing.assert_allclose(flat, expected, rtol=1e-5, atol=1e-4)


def test_a_producer_gets_new_rows_and_a_bias_that_it_did_not_have() -> None:
    model = between("a = Relu(h) r = Sigmoid(a)")
    del model.graph.node[0].input[2], model.graph.initializer[1]
    graph, axis = only_axis(model)
    axis = keep_units(graph, axis, KEPT)
    bias = np.arange(FEWER, dtype=np.float64) - 1
    producer = write_producer(graph, axis.producer, np.zeros((FEWER, 18)), bias)
    assert producer.bias is not None
    graph.model.graph.output.append(onnx.ValueInfoProto(name="h"))
    made = outputs_of(graph.model, image())[1]
    np.testing.assert_array_equal(made, np.broadcast_to(bias[:, None, None], made.shape))


def test_the_sum_that_a_reader_goes_into() -> None:
    weights = {"G": normal(OUTPUTS, 2, 1, 1), "V": normal(OUTPUTS, UNITS, 1, 1)}
    tail = "g = Conv(r, V) o = Conv(x, G) s = Add(o, g) y = Relu(s)"
    (axis,) = axes_of(between("r = Relu(h)", tail, **weights))
    (reader,) = axis.readers
    assert reader.added is not None
    assert (reader.made, reader.added.other, reader.target) == ("g", "o", "s")
    read_twice = tail.replace("y = Relu(s)", "t = Relu(s) y = Mul(t, g)")
    broadcast = tail.replace("o = Conv(x, G)", "p = Conv(x, G) o = GlobalAveragePool(p)")
    own = tail.replace("o = Conv(x, G)", "o = Conv(r, V)")
    constant = tail.replace("o = Conv(x, G) s = Add(o, g)", "s = Sigmoid(g)")
    for text in (read_twice, broadcast, own, constant):
        axis = axes_of(between("r = Relu(h)", text, **weights))[0]
        assert all(reader.added is None for reader in axis.readers)
        assert axis.readers[0].target == "g"


@pytest.mark.parametrize(
    ("attributes", "padded"),
    [
        ("", False),
        ("<pads = [0, 0, 0, 1]>", True),
        ('<auto_pad = "SAME_LOWER">', True),
        ('<auto_pad = "VALID">', False),
    ],
)
def test_whether_windows_reach_beyond_the_border(attributes: str, padded: bool) -> None:
    (axis,) = axes_of(between("r = Relu(h)", f"g = Conv {attributes} (r, V, c) y = Relu(g)"))
    assert axis.readers[0].padded is padded
