"""Models that are malformed, or legal and strange: refused with a reason, or read as they are."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from onnxfde.errors import MOST_CHARACTERS, ModelError, in_one_line
from onnxfde.graph.inferred_shapes import inferred_dims
from onnxfde.graph.input_specs import input_specs
from onnxfde.graph.match import find_layers
from onnxfde.graph.model import Graph
from onnxfde.graph.onnx_calls import check
from onnxfde.graph.protos import ModelProto
from onnxfde.graph.tensors import to_array
from onnxfde.running.open_files import open_model
from tests.models import build, mlp, twins

W, B, V, C = twins()
NETWORK = "h = Gemm <transB = 1> (x, W, b) {} y = Gemm <transB = 1> (s, V, c)"


def network(between: str, **more: object) -> ModelProto:
    return build(NETWORK.format(between), W=W, b=B, V=V, c=C, **more)  # type: ignore[arg-type]


def test_bytes_that_are_too_many_for_a_shape_name_the_tensor() -> None:
    raw = np.ones(3, np.float32).tobytes()
    tensor = TensorProto(name="W", data_type=TensorProto.FLOAT, dims=[2], raw_data=raw)
    with pytest.raises(ModelError, match=r"tensor 'W' \(2, type 1\) is damaged: cannot reshape"):
        to_array(tensor, None)


@pytest.mark.parametrize("kind", [0, 77, -5])
def test_an_unknown_data_type_names_the_tensor_and_the_input(kind: int) -> None:
    tensor = TensorProto(name="W", data_type=kind, dims=[1], raw_data=b"1234")
    with pytest.raises(ModelError, match=f"'W' has the data type {kind}, which ONNX does not"):
        to_array(tensor, None)
    model = mlp(W, B, V, C)
    model.graph.input[0].type.tensor_type.elem_type = kind
    with pytest.raises(ModelError, match=f"'x' has the data type {kind}, which ONNX does not"):
        input_specs(Graph(model))


@pytest.mark.parametrize("old", [b"square", b"\x01h", b"Gemm"])
def test_text_that_is_not_utf8_is_refused_by_name(old: bytes, tmp_path: Path) -> None:
    raw = mlp(W, B, V, C).SerializeToString().replace(old, old[:-1] + b"\xff")
    (tmp_path / "m.onnx").write_bytes(raw)
    for given in (tmp_path / "m.onnx", ModelProto.FromString(raw)):
        with pytest.raises(ModelError, match=r"m.* holds text that is not UTF-8: b'.*\\xff'"):
            open_model(given)


def test_a_constant_of_an_old_model_need_not_be_an_input() -> None:
    check(onnx.load(Path(onnxruntime.__path__[0], "datasets", "mul_1.onnx")), "mul_1.onnx")


def test_what_the_checker_says_is_one_whole_line() -> None:
    model = mlp(W, B, V, C)
    model.graph.node[1].input[0] = "nowhere"
    with pytest.raises(ModelError) as found:
        check(model, "m.onnx")
    assert str(found.value).endswith(
        "input 'nowhere' of node: name: square OpType: Mul is not output of any previous nodes."
    )
    model = mlp(W, B, V, C)
    model.graph.node[0].op_type = "Gem"
    with pytest.raises(ModelError, match=r"for Gem with .* of 17 \(.*Name: first OpType: Gem\)$"):
        check(model, "m.onnx")


def test_a_librarys_message_is_bounded_and_has_no_control_characters() -> None:
    line = in_one_line(ValueError("a\n\x1b[31m" + "b" * 1000))
    assert line.startswith("a [31mbbb")
    assert len(line) == MOST_CHARACTERS + 1


def as_input_of_another_type(model: ModelProto) -> None:
    model.graph.input.append(helper.make_tensor_value_info("W", TensorProto.INT32, [6, 3]))


def with_an_unknown_type_inside(model: ModelProto) -> None:
    model.graph.value_info.append(helper.make_tensor_value_info("h", -1, [1]))


@pytest.mark.parametrize("change", [as_input_of_another_type, with_an_unknown_type_inside])
def test_shapes_that_contradict_each_other_are_as_the_model_says(
    change: Callable[[ModelProto], None],
) -> None:
    model = mlp(W, B, V, C)
    change(model)
    assert Graph(model).shape("x") == ("N", 3)
    assert inferred_dims(model, {"x": (5, 3)})["x"] == (5, 3)


def test_a_dimension_below_0_is_open() -> None:
    model = mlp(W, B, V, C, batch="4")
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = -1
    (spec,) = input_specs(Graph(model))
    assert spec.dims == (None, 3)
    assert spec.fixed_batch is None


@pytest.mark.parametrize(
    "between",
    [
        "k = Constant () g = Add(h, k) s = Mul(g, g)",
        "k = Constant <value_float = 1.0, value_int = 3> () g = Add(h, k) s = Mul(g, g)",
        'k = Constant <value_string = "a"> () s = Pow(h, k)',
        "k = Constant <value_float = 2.0> () t = Cast <to = 8> (k) s = Pow(h, t)",
        "k = Constant <value_float = 2.0> () t = Cast <to = 14> (k) s = Pow(h, t)",
        'k = Constant <value = string {"2"}> () s = Pow(h, k)',
    ],
)
def test_what_is_no_real_number_is_no_constant(between: str) -> None:
    graph = Graph(network(between))
    assert not graph.is_constant("k") or not graph.is_constant("t")
    assert find_layers(graph)[0] == []


def test_complex_numbers_are_no_constants() -> None:
    graph = Graph(network("s = Pow(h, k)", k=np.asarray([2], np.complex64)))
    assert not graph.is_constant("k")
    assert find_layers(graph) == ([], [])


@pytest.mark.parametrize("perm", ["[0, 5]", "[1, 1]", "[0]"])
def test_a_permutation_that_makes_no_sense_names_its_node(perm: str) -> None:
    model = build(f"t = Transpose <perm = {perm}> (W) y = MatMul(x, t)", W=W)
    with pytest.raises(ModelError, match="Transpose 't' cannot be computed"):
        Graph(model).constant("t")


def test_an_attribute_that_only_a_function_could_have_names_its_node() -> None:
    model = mlp(W, B, V, C)
    model.graph.node[0].attribute[0].ref_attr_name = "given"
    with pytest.raises(ModelError, match="Gemm 'first': Cannot get value of reference attribute"):
        find_layers(Graph(model))


def test_a_constant_inside_a_function_may_depend_on_its_caller() -> None:
    model = mlp(W, B, V, C)
    function = model.functions.add(name="f", domain="own", input=["a"], output=["b"])
    node = function.node.add(op_type="Cast", input=["two"], output=["k"])
    node.attribute.add(name="to", type=onnx.AttributeProto.INT, ref_attr_name="to")
    function.node.add(op_type="Pow", input=["a", "k"], output=["b"])
    matches, refused = find_layers(Graph(model))
    assert (len(matches), refused) == (1, [])


def test_a_dropout_with_several_modes_may_train() -> None:
    for modes in ([True, False], []):
        model = network(
            "d = Dropout(h, r, t) s = Mul(d, d)", r=np.float32(0.5), t=np.array(modes, bool)
        )
        (refusal,) = find_layers(Graph(model))[1]
        assert "may be in training mode" in refusal.reason


@pytest.mark.parametrize("kind", ["Identity", "Transpose"])
def test_thousands_of_copies_are_neither_too_deep_nor_too_slow(kind: str) -> None:
    copies = " ".join(f"i{n + 1} = {kind}(i{n})" for n in range(3000))
    after = Graph(network(f"i0 = Mul(h, h) {copies} s = Identity(i3000)"))
    assert find_layers(after)[0] == []
    before = Graph(build(f"i0 = Identity(W) {copies} y = MatMul(x, i3000)", W=W.T.copy()))
    assert before.constant("i3000") is not None
