"""What a dead run left behind is put back or finished, and removed, by the next run there."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import onnx
import pytest

import onnxfde
from onnxfde.errors import OutputError
from onnxfde.graph.journal import JOURNAL, TAKEN, read_journal
from onnxfde.graph.staging import Stage, write_text
from tests.models import contents, mlp, twins

BIG = twins(distinct=20, copies=2, inputs=8, outputs=30)


@pytest.fixture
def external(tmp_path: Path) -> Path:
    path = tmp_path / "model.onnx"
    onnx.save(mlp(*BIG), path, save_as_external_data=True, location="w.bin", size_threshold=0)
    return path


def begun(path: Path) -> Stage:
    """A commit of a new model and its data that wrote its journal and did nothing more."""
    stage = Stage.made(path)
    for target, text in ((Path(f"{path}.data"), b"new data"), (path, b"new model")):
        with stage.open(target) as stream:
            stream.write(text)
    plan = stage.plan()
    assert plan is not None
    plan.write(stage.folder)
    return stage


def test_temporary_folders_of_dead_runs_are_removed_and_others_are_not(tmp_path: Path) -> None:
    alive, dead = Stage.made(tmp_path / "a"), Stage.made(tmp_path / "b")
    os.close(dead.lock)
    (tmp_path / ".onnxfde-older").mkdir()
    (tmp_path / ".onnxfde-notes").write_text("a file of the user")
    write_text(tmp_path / "c", "text")
    assert alive.folder.exists()
    assert {p.name for p in tmp_path.iterdir()} == {".onnxfde-notes", "c", alive.folder.name}
    alive.remove()


def test_folders_of_another_machine_stay_for_a_day(tmp_path: Path) -> None:
    stages = [Stage.made(tmp_path / name) for name in ("new", "old")]
    for stage in stages:
        os.close(stage.lock)
        (stage.folder / "lock").write_bytes(b"another machine")
    os.utime(stages[1].folder / "lock", (0, 0))
    write_text(tmp_path / "c", "text")
    assert [stage.folder.exists() for stage in stages] == [True, False]


@pytest.mark.parametrize("steps", [0, 1, 2, 3])
def test_what_was_begun_is_put_back(tmp_path: Path, steps: int) -> None:
    path, data = tmp_path / "o.onnx", tmp_path / "o.onnx.data"
    path.write_bytes(b"old model, which reads o.onnx.data")
    data.write_bytes(b"old data")
    before = contents(tmp_path)
    stage = begun(path)
    moves = [
        (path, stage.folder / TAKEN),
        (data, stage.folder / "1.old"),
        (stage.folder / "1", data),
    ]
    for source, target in moves[:steps]:
        os.rename(source, target)
    os.close(stage.lock)
    write_text(tmp_path / "c", "text")
    assert contents(tmp_path) == before | {"c": b"text"}


def test_what_was_decided_is_finished(tmp_path: Path) -> None:
    path = tmp_path / "o.onnx"
    path.write_bytes(b"old model, which reads o.onnx.data")
    stage = begun(path)
    plan = read_journal(stage.folder)
    assert plan is not None
    plan.carry_out(stage.folder)
    os.close(stage.lock)
    write_text(tmp_path / "c", "text")
    assert contents(tmp_path) == {
        "c": b"text", "o.onnx": b"new model", "o.onnx.data": b"new data"
    }  # fmt: skip


def test_data_without_a_model_is_no_obstacle_for_the_next_run(
    external: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out.onnx"
    stage = begun(out)
    os.rename(stage.folder / "1", tmp_path / "out.onnx.data")
    os.close(stage.lock)
    onnxfde.optimize(external, eps=0, quotient="refit").save(out)
    assert onnxfde.inspect(out).layers[0].neurons == 20


def test_a_model_that_a_dead_run_had_moved_away_can_be_read(external: Path) -> None:
    external.with_name("model.onnx.data").write_bytes(b"")
    model = onnx.load(external)
    name = "model.onnx.data"
    onnx.save(model, external, save_as_external_data=True, location=name, size_threshold=0)
    stage = begun(external)
    os.rename(external, stage.folder / TAKEN)
    os.close(stage.lock)
    assert onnxfde.inspect(external).layers[0].neurons == 40
    assert not stage.folder.exists()


def test_what_somebody_put_in_its_place_stays(tmp_path: Path) -> None:
    path = tmp_path / "o.onnx"
    path.write_bytes(b"old model, which reads o.onnx.data")
    stage = begun(path)
    os.rename(path, stage.folder / TAKEN)
    path.write_bytes(b"the user's")
    (tmp_path / "o.onnx.data").write_bytes(b"the user's")
    os.close(stage.lock)
    write_text(tmp_path / "c", "text")
    assert (path.read_bytes(), (tmp_path / "o.onnx.data").read_bytes()) == (b"the user's",) * 2


@pytest.mark.parametrize("name", ["../victim", "/victim", "link/victim"])
def test_a_journal_that_leads_out_of_its_folder_is_not_followed(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "link").symlink_to(tmp_path)
    victim = tmp_path / "victim"
    victim.write_text("precious")
    stage = begun(folder / "o.onnx")
    journal = json.loads((stage.folder / JOURNAL).read_text())
    name = str(victim) if name == "/victim" else name
    journal["data"][0] |= {"target": name, "inode": victim.stat().st_ino}
    (stage.folder / JOURNAL).write_text(json.dumps(journal))
    (stage.folder / "1").unlink()
    os.close(stage.lock)
    write_text(folder / "c", "text")
    assert victim.read_text() == "precious"
    assert not stage.folder.exists()


def test_a_second_interruption_leaves_what_the_next_run_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, data = tmp_path / "o.onnx", tmp_path / "o.onnx.data"
    path.write_bytes(b"old model, which reads o.onnx.data")
    data.write_bytes(b"old data")
    before = contents(tmp_path)
    stage = Stage.made(path)
    for target in (data, path):
        with stage.open(target) as stream:
            stream.write(b"new")

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", interrupt)
        with pytest.raises(KeyboardInterrupt):
            stage.commit()
    stage.remove()
    assert not path.exists()
    write_text(tmp_path / "c", "text")
    assert contents(tmp_path) == before | {"c": b"text"}


def test_a_journal_that_cannot_be_written_stops_the_commit(
    external: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = contents(tmp_path)
    result = onnxfde.optimize(external, eps=0, quotient="refit")

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("onnxfde.graph.journal.json.dump", full)
    with pytest.raises(OutputError, match="No space left"):
        result.save(tmp_path / "out.onnx")
    assert contents(tmp_path) == before


@pytest.mark.parametrize("reader", ["copy.onnx", "model.onnx.bak", "link.bin"])
def test_in_place_the_old_data_stays_if_something_reads_it(external: Path, reader: str) -> None:
    other = external.with_name(reader)
    if reader == "link.bin":
        other.symlink_to("w.bin")
    else:
        other.write_bytes(external.read_bytes())
    data = external.with_name("w.bin").read_bytes()
    onnxfde.optimize(external, eps=0, quotient="refit").save(external)
    assert external.with_name("w.bin").read_bytes() == data
    assert onnxfde.inspect(external).layers[0].neurons == 20


def test_a_data_file_that_two_models_read_is_not_replaced(external: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.onnx"
    onnxfde.optimize(external, eps=0, quotient="refit").save(out)
    out.with_name("copy.onnx").write_bytes(out.read_bytes())
    before = contents(tmp_path)
    with pytest.raises(OutputError, match=r"out\.onnx\.data holds weights of .*copy\.onnx, too"):
        onnxfde.optimize(external, neurons=5, quotient="refit").save(out)
    assert contents(tmp_path) == before


def test_data_that_a_replaced_out_leaves_behind_is_removed(external: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.onnx"
    onnxfde.optimize(external, eps=0, quotient="refit").save(out)
    onnxfde.optimize(external, skip=("*",)).save(out)
    assert sorted(contents(tmp_path)) == ["model.onnx", "out.onnx", "w.bin"]
    onnxfde.optimize(external, eps=0, quotient="refit").save(out)
    assert onnxfde.inspect(out).layers[0].neurons == 20
