"""Large files are read without their weights, and written with them."""

from __future__ import annotations

import resource
import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st

import onnxfde
from onnxfde.errors import ModelError
from onnxfde.graph.constant_edit import ConstantEdit
from onnxfde.graph.external_data import is_in_model_file
from onnxfde.graph.files import pieces_to_write, read_model_file
from onnxfde.graph.large_files import (
    LARGE_FILE,
    LARGE_TENSOR,
    fields,
    varint,
    varint_bytes,
    whole_model,
)
from onnxfde.graph.model import Graph
from onnxfde.graph.protos import ModelProto, TensorProto
from onnxfde.graph.saving import write_pieces
from onnxfde.graph.size import stored_bytes
from onnxfde.graph.stamp import weights_hash
from onnxfde.graph.tensors import external_tensors, keyed_tensors, make_tensor, to_array
from tests.models import contents, mlp, twins

ROWS = LARGE_TENSOR // 4 // 64
"""Rows of 64 numbers in the smallest tensor that stays in its file."""


def embedding(rows: int = ROWS, seed: int = 0) -> ModelProto:
    """A table that is looked up (large), a Constant beside it, and a layer with twin neurons."""
    rng = np.random.default_rng(seed)
    model = mlp(*twins())
    first = model.graph.node[0]
    width = next(d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim[1:])
    table = rng.standard_normal((rows * 64 // width + 1, width)).astype(np.float32)
    name, first.input[0] = first.input[0], "looked up"
    nodes = [
        onnx.helper.make_node("Gather", ["table", name], ["row"]),
        onnx.helper.make_node("Constant", [], ["shift"], value=make_tensor("", table[:1])),
        onnx.helper.make_node("Add", ["row", "shift"], ["looked up"]),
    ]
    for node in reversed(nodes):
        model.graph.node.insert(0, node)
    stored = make_tensor("table", table)
    stored.doc_string = "a table"
    model.graph.initializer.insert(0, stored)
    del model.graph.input[:]
    kind = onnx.helper.make_tensor_value_info(name, TensorProto.INT64, ["N"])
    model.graph.input.append(kind)
    return model


def saved(path: Path, model: ModelProto) -> bytes:
    raw = model.SerializeToString()
    path.write_bytes(raw)
    return raw


def test_a_large_file_is_read_without_its_large_tensors(tmp_path: Path) -> None:
    model, path = embedding(), tmp_path / "m.onnx"
    raw = saved(path, model)
    light = read_model_file(path, large=0)
    whole = read_model_file(path)
    assert [t.name for t in external_tensors(light.model)] == ["table"]
    assert light.model.ByteSize() < LARGE_TENSOR < len(raw)
    assert (light.sha256, light.state) == (whole.sha256, whole.state)
    for (key, tensor), (_, old) in zip(
        keyed_tensors(light.model), keyed_tensors(model), strict=True
    ):
        np.testing.assert_array_equal(to_array(tensor, tmp_path), to_array(old, None), err_msg=key)
    assert whole_model(light.model, tmp_path) == model == whole.model


def test_it_counts_hashes_and_is_written_as_if_it_were_whole(tmp_path: Path) -> None:
    model, path, out = embedding(), tmp_path / "m.onnx", tmp_path / "out.onnx"
    raw = saved(path, model)
    light = Graph(read_model_file(path, large=0).model, tmp_path)
    assert stored_bytes(light) == len(raw)
    assert weights_hash(light) == weights_hash(Graph(model))
    with out.open("wb") as stream:
        write_pieces(pieces_to_write(light.model, tmp_path), stream)
    assert out.read_bytes() == raw


def test_a_large_tensor_that_is_replaced_is_no_longer_in_the_file(tmp_path: Path) -> None:
    """Another one stays there."""
    model, path, out = embedding(), tmp_path / "m.onnx", tmp_path / "out.onnx"
    model.graph.initializer.add().CopyFrom(model.graph.initializer[0])
    model.graph.initializer[-1].name = "another"
    saved(path, model)
    light = Graph(read_model_file(path, large=0).model, tmp_path)
    gather = light.model.graph.node[0]
    half = to_array(light.initializers["table"], tmp_path)[: ROWS // 2]
    ConstantEdit(light, half.dtype).put(gather, 0, half)
    with out.open("wb") as stream:
        write_pieces(pieces_to_write(light.model, tmp_path), stream)
    written = onnx.load(out).graph.initializer
    assert written[0].doc_string == "a table"
    np.testing.assert_array_equal(to_array(written[0], None), half)
    assert written[-1] == model.graph.initializer[-1]


def test_a_constant_in_the_graph_stays_in_the_file_too(tmp_path: Path) -> None:
    model, path = embedding(), tmp_path / "m.onnx"
    table = model.graph.initializer.pop(0)
    model.graph.node.insert(0, onnx.helper.make_node("Constant", [], ["table"], value=table))
    saved(path, model)
    light = read_model_file(path, large=0).model
    assert is_in_model_file(light.graph.node[0].attribute[0].t)
    assert whole_model(light, tmp_path) == model


@pytest.mark.parametrize("fault", ["length", "external", "both kinds", "type"])
def test_a_tensor_that_is_not_just_shape_and_bytes_is_read_as_it_is(
    tmp_path: Path, fault: str
) -> None:
    model, path = embedding(), tmp_path / "m.onnx"
    table = model.graph.initializer[0]
    if fault == "length":
        table.dims[0] += 1
    elif fault == "external":
        table.external_data.add(key="location", value="elsewhere")
    elif fault == "both kinds":
        table.float_data.append(1.0)
    else:
        table.data_type = 99
    saved(path, model)
    assert read_model_file(path, large=0).model == model


@given(cut=st.integers(0, 2_000), flip=st.integers(0, 255))
def test_damaged_files_are_refused_or_read_alike(
    tmp_path_factory: pytest.TempPathFactory, cut: int, flip: int
) -> None:
    path = tmp_path_factory.getbasetemp() / "damaged.onnx"
    raw = bytearray(mlp(*twins()).SerializeToString())
    raw[cut % len(raw)] ^= flip
    path.write_bytes(raw[: len(raw) - cut % 7])

    def read(large: int) -> ModelProto | str:
        try:
            return read_model_file(path, large).model
        except ModelError as error:
            return str(error)

    assert read(0) == read(LARGE_FILE)


@given(number=st.integers(0, 2**63 - 1))
def test_a_number_is_read_as_it_is_written(number: int) -> None:
    raw = varint_bytes(number)
    assert varint(raw, 0, len(raw)) == (number, len(raw))


def test_fields_cover_a_message_without_gaps() -> None:
    raw = mlp(*twins()).SerializeToString()
    found = list(fields(raw, 0, len(raw)))
    assert [f.start for f in found] + [len(raw)] == [0] + [f.end for f in found]


def test_a_link_to_a_large_file_is_followed(tmp_path: Path) -> None:
    (tmp_path / "blobs").mkdir()
    (tmp_path / "names").mkdir()
    model, link = embedding(), tmp_path / "names" / "m.onnx"
    saved(tmp_path / "blobs" / "1234", model)
    link.symlink_to("../blobs/1234")
    found = read_model_file(link, large=0)
    assert found.folder.name == "blobs"
    assert whole_model(found.model, found.folder) == model


def test_a_link_with_weights_beside_it_is_read_whole(tmp_path: Path) -> None:
    (tmp_path / "names").mkdir()
    model, link = embedding(), tmp_path / "names" / "m.onnx"
    other = model.graph.initializer[1]
    (tmp_path / "names" / "w.bin").write_bytes(other.raw_data)
    other.ClearField("raw_data")
    other.data_location = TensorProto.EXTERNAL
    other.external_data.add(key="location", value="w.bin")
    saved(tmp_path / "1234", model)
    link.symlink_to("../1234")
    found = read_model_file(link, large=0)
    assert (found.model, found.folder) == (model, link.parent)


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file that is just large."""
    path = tmp_path_factory.mktemp("large") / "in.onnx"
    saved(path, embedding(LARGE_FILE // 256 + 1))
    return path


def test_a_large_file_is_optimized_to_one_file(large: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.onnx"
    result = onnxfde.optimize(large, eps=0)
    report = result.save(out)
    assert report.changed
    assert report.verification is not None
    assert report.verification.beyond(1e-6) is None
    assert report.weight_files == ()
    assert list(contents(tmp_path)) == ["out.onnx"]
    assert report.bytes.after == out.stat().st_size
    assert result.model.SerializeToString() == out.read_bytes()
    onnx.checker.check_model(str(out))
    of_the_model = onnxfde.optimize(onnx.load(large), eps=0)
    assert of_the_model.model.graph == result.model.graph


def test_a_large_file_is_optimized_in_place(large: Path, tmp_path: Path) -> None:
    path = tmp_path / "in.onnx"
    shutil.copy(large, path)
    onnxfde.optimize(path, eps=0).save(path)
    assert list(contents(tmp_path)) == ["in.onnx"]
    assert onnxfde.verify(large, path).relative_l2 == pytest.approx(0, abs=1e-6)


def test_a_large_file_that_changes_meanwhile_is_noticed(large: Path, tmp_path: Path) -> None:
    path, out = tmp_path / "in.onnx", tmp_path / "out.onnx"
    shutil.copy(large, path)
    result = onnxfde.optimize(path, eps=0)
    with path.open("r+b") as stream:
        stream.truncate(path.stat().st_size - 1)
    with pytest.raises(ModelError, match=r"too short|changed by another program"):
        result.save(out)
    assert not out.exists()


def test_its_weights_are_never_all_in_memory(large: Path, tmp_path: Path) -> None:
    result = onnxfde.optimize(large, eps=0, verify=False)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    onnxfde.optimize(large, eps=0, verify=False).save(tmp_path / "out.onnx")
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert result.kept.ByteSize() < LARGE_TENSOR
    assert after - before < LARGE_FILE // 1024 // 4
