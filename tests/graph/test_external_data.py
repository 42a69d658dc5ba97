"""External weights stay external, and no data file is overwritten that something else needs."""

from __future__ import annotations

import errno
import hashlib
import io
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.external_data_helper import convert_model_to_external_data

import onnxfde
from onnxfde.errors import ModelError, OutputError
from onnxfde.graph import saving
from onnxfde.graph.drafts import rename_to_new
from onnxfde.graph.external_data import locate, tensor_bytes
from onnxfde.graph.protos import ModelProto
from tests.models import contents, mlp, twins

BIG = twins(distinct=20, copies=2, inputs=8, outputs=30)


@pytest.fixture
def external(tmp_path: Path) -> Path:
    """A model whose weights lie in `weights.bin` beside it."""
    model = mlp(*BIG)
    convert_model_to_external_data(model, location="weights.bin", size_threshold=0)
    folder = tmp_path / "in"
    folder.mkdir()
    onnx.save(model, folder / "model.onnx")
    return folder / "model.onnx"


def test_external_weights_stay_external(external: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.onnx"
    before = contents(external.parent)
    report = onnxfde.optimize(external, eps=0).save(out)
    assert contents(external.parent) == before
    raw = onnx.load(out, load_external_data=False)
    assert {t.data_location for t in raw.graph.initializer} == {onnx.TensorProto.EXTERNAL}
    (data,) = {
        e.value for t in raw.graph.initializer for e in t.external_data if e.key == "location"
    }
    digest = hashlib.sha256((tmp_path / data).read_bytes()).hexdigest()
    assert data == f"out.onnx.{digest[:16]}.data"
    assert report.weight_files == (data,)
    assert report.bytes.after == out.stat().st_size + (tmp_path / data).stat().st_size
    assert report.layers[0].neurons_after == 20
    check = onnxfde.verify(external, out)
    assert check.relative_l2 is not None
    assert check.relative_l2 < 1e-5


def test_in_and_out_may_be_the_same_file(external: Path) -> None:
    original = onnx.load(external)
    onnxfde.optimize(external, eps=0).save(external)
    found = onnxfde.verify(original, onnx.load(external))
    assert found.relative_l2 is not None
    assert found.relative_l2 < 1e-5
    again = onnxfde.optimize(external, eps=0.2, force=True)
    (old,) = {*contents(external.parent)} - {"model.onnx", "weights.bin"}
    external.with_name(old).chmod(0o600)
    report = again.save(external)
    (data,) = {*contents(external.parent)} - {"model.onnx", "weights.bin"}
    assert report.old_weights == ()
    assert report.weight_files == (data,)
    assert external.with_name(data).stat().st_mode & 0o777 == 0o600
    assert re.fullmatch(r"model\.onnx\.[0-9a-f]{16}\.data", data)
    assert onnxfde.inspect(external).layers[0].neurons < 20


@pytest.mark.parametrize("name", ["o.onnx", "a-longer-name.onnx", "model.onnx"])
def test_the_bytes_reported_are_those_of_the_files(
    external: Path, tmp_path: Path, name: str
) -> None:
    folder = external.parent if name == "model.onnx" else tmp_path / "out"
    folder.mkdir(exist_ok=True)
    report = onnxfde.optimize(external, neurons=7, quotient="refit").save(folder / name)
    found = {path: len(raw) for path, raw in contents(folder).items() if path != "weights.bin"}
    assert report.bytes.after == sum(found.values())
    assert {name, *report.weight_files} == {*found}


def test_the_old_model_keeps_its_data_if_it_cannot_be_replaced(
    external: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    onnxfde.optimize(external, eps=0).save(external)
    before = contents(external.parent)

    def fail(*_: Any) -> None:
        raise OSError(errno.EIO, "no")

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", fail)
        with pytest.raises(OutputError, match="cannot be written"):
            onnxfde.optimize(external, neurons=3).save(external)
    after = contents(external.parent)
    (added,) = {*after} - {*before}
    assert before.items() <= after.items()
    assert re.fullmatch(r"model\.onnx\.[0-9a-f]{16}\.data", added)
    report = onnxfde.optimize(external, neurons=3).save(external)
    assert report.weight_files == (added,)


def test_when_nothing_merges_model_and_data_are_copied_unchanged(
    external: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    report = onnxfde.optimize(external, neurons=1000, layers=("first",), skip=("*",)).save(
        folder / "model.onnx"
    )
    assert not report.changed
    assert contents(folder) == contents(external.parent)
    assert report.output_sha256 == report.input_sha256


def test_copying_onto_itself_does_nothing(external: Path) -> None:
    before = external.stat().st_mtime_ns
    onnxfde.optimize(external, skip=("*",)).save(external)
    assert external.stat().st_mtime_ns == before


def test_beside_the_input_only_the_model_is_copied(external: Path) -> None:
    onnxfde.optimize(external, skip=("*",)).save(external.parent / "copy.onnx")
    assert sorted(contents(external.parent)) == ["copy.onnx", "model.onnx", "weights.bin"]


def broken(model: ModelProto, **changes: str) -> ModelProto:
    tensor = model.graph.initializer[0]
    kept = {e.key: e.value for e in tensor.external_data} | changes
    del tensor.external_data[:]
    for key, value in kept.items():
        tensor.external_data.add(key=key, value=value)
    return model


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"location": "../secret.bin"}, "outside the model's folder"),
        ({"location": "/etc/hostname"}, "outside the model's folder"),
        ({"location": ""}, "outside the model's folder"),
        ({"location": "gone.bin"}, "is missing"),
        ({"length": "99999999"}, "takes 1280 bytes, its external data in .* has 99999999"),
        ({"offset": "99999999"}, "too short"),
        ({"offset": "-4"}, "tensor 'W' has a bad offset"),
        ({"offset": "9" * 5000}, "tensor 'W' has a bad offset"),
        ({"offset": "٣"}, "tensor 'W' has a bad offset"),
        ({"length": "12"}, "tensor 'W' takes 1280 bytes, its external data in .* has 12"),
        ({"location": "a\0b"}, "of tensor 'W' is no file name"),
        ({"location": "n" * 5000}, "of tensor 'W' cannot be read .File name too long"),
        ({"location": "loop"}, "of tensor 'W' cannot be read .Too many levels"),
        ({"location": "folder"}, "of tensor 'W' is no regular file"),
        ({"location": "pipe"}, "of tensor 'W' is no regular file"),
        ({"location": "weights.bin/x"}, "of tensor 'W' cannot be read .Not a directory"),
    ],
)
def test_bad_external_data_is_named(external: Path, changes: dict[str, str], reason: str) -> None:
    (external.parent / "loop").symlink_to("loop")
    (external.parent / "folder").mkdir()
    os.mkfifo(external.parent / "pipe")
    model = broken(onnx.load(external, load_external_data=False), **changes)
    external.write_bytes(model.SerializeToString())
    with pytest.raises(ModelError, match=reason) as found:
        onnxfde.optimize(external)
    assert len(str(found.value)) < 400
    assert "\n" not in str(found.value)


def test_an_offset_without_a_length_means_what_the_tensor_takes(
    external: Path, tmp_path: Path
) -> None:
    wanted = onnx.load(external)
    model = onnx.load(external, load_external_data=False)
    for tensor in model.graph.initializer:
        kept = [entry for entry in tensor.external_data if entry.key != "length"]
        del tensor.external_data[:]
        tensor.external_data.extend(kept)
    external.write_bytes(model.SerializeToString())
    report = onnxfde.optimize(external, eps=0).save(tmp_path / "out.onnx")
    assert report.layers[0].neurons_after == 20
    found = onnxfde.verify(wanted, tmp_path / "out.onnx").relative_l2
    assert found is not None
    assert found < 1e-5


def test_types_of_external_tensors_are_checked(external: Path) -> None:
    for data_type, reason in ((77, "the unknown type 77"), (8, "holds strings")):
        model = onnx.load(external, load_external_data=False)
        model.graph.initializer[0].data_type = data_type
        with pytest.raises(ModelError, match=f"'W' .*{reason}"):
            locate(model.graph.initializer[0], external.parent)
    packed = onnx.TensorProto(name="p", data_type=onnx.TensorProto.INT4, dims=[3, 3])
    assert tensor_bytes(packed) == 5
    with pytest.raises(ModelError, match="'p' has a negative length"):
        tensor_bytes(onnx.TensorProto(name="p", data_type=1, dims=[-1]))


def test_a_data_file_that_shrinks_while_it_is_copied_is_an_error(
    external: Path, tmp_path: Path
) -> None:
    data = external.parent / "weights.bin"
    with pytest.raises(ModelError, match="became shorter while it was copied"):
        saving.copy_bytes(data, io.BytesIO(), 0, data.stat().st_size + 1)
    result = onnxfde.optimize(external, eps=0)
    os.truncate(data, data.stat().st_size - 4)
    with pytest.raises(ModelError, match="was changed by another program"):
        result.save(tmp_path / "out.onnx")
    assert list(tmp_path.iterdir()) == [external.parent]


def test_a_link_out_of_the_folder_is_not_followed(external: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret.bin"
    (external.parent / "weights.bin").rename(secret)
    (external.parent / "weights.bin").symlink_to(secret)
    with pytest.raises(ModelError, match="outside the model's folder"):
        onnxfde.optimize(external)


def test_a_large_new_tensor_joins_the_data_file(external: Path, tmp_path: Path) -> None:
    original = onnx.load(external, load_external_data=False)
    model = ModelProto.FromString(original.SerializeToString())
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.zeros(600, np.float32), "large"))
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.zeros(3, np.float32), "small"))
    names = [t.name for t in saving.outside(model, original)]
    assert "large" in names
    assert "small" not in names


def test_external_weights_outside_the_layer_are_carried_over(tmp_path: Path) -> None:
    model = mlp(*BIG)
    model.graph.initializer.append(
        onnx.numpy_helper.from_array(np.arange(5000, dtype=np.float32), "kept")
    )
    path, out = tmp_path / "in.onnx", tmp_path / "out.onnx"
    onnx.save(model, path, save_as_external_data=True, location="w.bin", size_threshold=0)
    onnxfde.optimize(path, eps=0).save(out)
    kept = next(t for t in onnx.load(out).graph.initializer if t.name == "kept")
    np.testing.assert_array_equal(onnx.numpy_helper.to_array(kept), np.arange(5000))


def test_the_weights_of_the_input_are_not_overwritten_by_the_result(tmp_path: Path) -> None:
    path, backup = tmp_path / "model.onnx", tmp_path / "backup.onnx"
    onnx.save(
        mlp(*BIG), path, save_as_external_data=True, location="model.onnx.data", size_threshold=0
    )
    backup.write_bytes(path.read_bytes())
    before = contents(tmp_path)
    report = onnxfde.optimize(backup, eps=0).save(path)
    before.pop("model.onnx")
    assert before.items() <= contents(tmp_path).items()
    (old,) = report.old_weights
    assert (old.file, old.read_by) == ("model.onnx.data", "backup.onnx")
    assert onnxfde.inspect(path).layers[0].neurons == 20


@pytest.mark.parametrize("what", ["other bytes", "a folder", "a link", "a broken link", "a pipe"])
@pytest.mark.parametrize("merges", [True, False])
def test_what_is_called_like_a_data_file_stays(
    external: Path, tmp_path: Path, merges: bool, what: str
) -> None:
    folder = tmp_path / "other"
    folder.mkdir()
    result = onnxfde.optimize(external, eps=0, skip=() if merges else ("*",))
    (name,) = result.save(tmp_path / "out.onnx").weight_files
    content, foreign = (tmp_path / name).read_bytes(), folder / name
    if what == "other bytes":
        foreign.write_bytes(bytes(len(content)))
    elif what == "a folder":
        (foreign / "inside").mkdir(parents=True)
    elif what == "a pipe":
        os.mkfifo(foreign)
    else:
        foreign.symlink_to(tmp_path / name if what == "a link" else "gone")
    before = states(folder)
    with pytest.raises(OutputError, match="exists and holds something else; move it out"):
        result.save(folder / "out.onnx")
    assert states(folder) == before


def states(folder: Path) -> dict[str, tuple[int, int]]:
    """What is in a folder, files or not, and when each was changed last."""
    found = {path: path.lstat() for path in sorted(folder.rglob("*"))}
    return {str(path): (stat.st_ino, stat.st_mtime_ns) for path, stat in found.items()}


@pytest.mark.parametrize("merges", [True, False])
def test_a_data_file_with_the_same_content_is_used(
    external: Path, tmp_path: Path, merges: bool
) -> None:
    out = tmp_path / "out.onnx"
    result = onnxfde.optimize(external, eps=0, skip=() if merges else ("*",))
    (name,) = result.save(out).weight_files
    out.unlink()
    before = (tmp_path / name).stat()
    assert result.save(out).weight_files == (name,)
    after = (tmp_path / name).stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    check = onnxfde.verify(external, out).relative_l2
    assert check is not None
    assert check < 1e-5


def test_a_copy_writes_no_data_through_a_link_out_of_the_folder(tmp_path: Path) -> None:
    path, folder, victim = tmp_path / "in.onnx", tmp_path / "out", tmp_path / "victim"
    for each in (folder, victim, tmp_path / "sub"):
        each.mkdir()
    onnx.save(mlp(*BIG), path, save_as_external_data=True, location="sub/w", size_threshold=0)
    (folder / "sub").symlink_to(victim)
    with pytest.raises(OutputError, match="a link leads out of it"):
        onnxfde.optimize(path, skip=("*",)).save(folder / "out.onnx")
    assert list(victim.iterdir()) == []
    assert [each.name for each in folder.iterdir()] == ["sub"]


def test_a_copy_does_not_take_the_name_of_its_own_data(external: Path, tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="is the name of a data file, too"):
        onnxfde.optimize(external, skip=("*",)).save(tmp_path / "weights.bin")
    assert [each.name for each in tmp_path.iterdir()] == ["in"]


def test_a_result_may_be_replaced_with_its_own_data(external: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.onnx"
    onnxfde.optimize(external, eps=0).save(out)
    onnxfde.optimize(external, neurons=5).save(out)
    assert onnxfde.inspect(out).layers[0].neurons == 5


def test_the_data_file_takes_its_place_before_the_model(
    external: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []

    def recorded(call: Callable[..., None]) -> Callable[..., None]:
        def record(source: Any, target: Any) -> None:
            order.append(Path(target).name)
            call(source, target)

        return record

    result = onnxfde.optimize(external, eps=0)
    monkeypatch.setattr(os, "replace", recorded(os.replace))
    monkeypatch.setattr(os, "link", recorded(os.link))
    (data,) = result.save(tmp_path / "out.onnx").weight_files
    assert order == [data, "out.onnx"]


def test_data_has_one_name_before_a_model_says_where_it_is(
    external: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The checker of onnx refuses data files with two, as a kill could leave them."""
    links: list[int] = []
    rename = os.replace

    def replace(source: Any, target: Any) -> None:
        links.extend(data.stat().st_nlink for data in tmp_path.glob("*.data"))
        rename(source, target)

    monkeypatch.setattr(os, "replace", replace)
    onnxfde.optimize(external, eps=0).save(tmp_path / "out.onnx")
    assert links == [1]


def test_without_hard_links_nothing_is_replaced_either(
    external: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: Any) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refused)
    (data,) = onnxfde.optimize(external, eps=0).save(tmp_path / "out.onnx").weight_files
    assert onnxfde.inspect(tmp_path / "out.onnx").layers[0].neurons == 20
    foreign = tmp_path / "foreign"
    foreign.write_bytes(b"somebody else's")
    with pytest.raises(FileExistsError):
        rename_to_new(tmp_path / data, foreign)
    assert foreign.read_bytes() == b"somebody else's"
