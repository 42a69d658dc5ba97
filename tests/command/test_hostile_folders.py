"""Whatever lies in the folder of OUT: nothing is deleted, moved or written that is not ours."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import onnx
import pytest

from tests.command.running import run
from tests.command.test_errors_in_one_line import assert_one_line_error
from tests.models import contents, mlp, twins

MERGE = ("--eps", "0", "--quotient", "refit")
FEWER = ("--neurons", "5", "--quotient", "refit")
UNCHANGED = ("--skip", "*")
JOURNAL = {
    "model": {"temporary": "gone", "target": "m.onnx", "inode": 0},
    "data": [],
    "takes_away": False,
    "unneeded": ["thesis.txt", "sub/keys.txt"],
    "new_folders": [],
}


def saved(path: Path, location: str = "w.bin", seed: int = 0) -> Path:
    """A model with weights in another file beside it."""
    (path.parent / location).parent.mkdir(parents=True, exist_ok=True)
    weights = twins(distinct=20, copies=2, inputs=8, outputs=30, seed=seed)
    onnx.save(mlp(*weights), path, save_as_external_data=True, location=location, size_threshold=0)
    return path


@pytest.fixture
def external(tmp_path: Path) -> Path:
    return saved(tmp_path / "in" / "in.onnx")


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """OUT, which does not exist, in a folder of its own."""
    (tmp_path / "out").mkdir()
    return tmp_path / "out" / "out.onnx"


def data_name(out: Path) -> str:
    """The name of the only data file of OUT."""
    model = onnx.load(out, load_external_data=False)
    (name,) = {
        entry.value
        for tensor in model.graph.initializer
        for entry in tensor.external_data
        if entry.key == "location"
    }
    return str(name)


def optimized(*words: str | Path) -> str:
    """What a run prints that ends well, on a terminal that breaks no line."""
    done = run("optimize", *words)
    assert done.exit_code == 0, done.stderr
    return " ".join(done.stdout.split())


def test_a_journal_of_somebody_else_is_not_obeyed(external: Path, out: Path) -> None:
    folder = out.parent
    (folder / ".onnxfde-x").mkdir()
    (folder / ".onnxfde-x" / "journal.json").write_text(json.dumps(JOURNAL))
    (folder / "sub").mkdir()
    for name in ("thesis.txt", "sub/keys.txt"):
        (folder / name).write_text("precious")
    before = contents(folder)
    optimized(external, out, *MERGE)
    assert before.items() <= contents(folder).items()
    assert (folder / ".onnxfde-x" / "journal.json").exists()


def test_names_like_ours_are_not_touched_unless_they_are_files_of_a_dead_run(
    external: Path, out: Path, tmp_path: Path
) -> None:
    folder, victim = out.parent, tmp_path / "victim"
    victim.write_text("precious")
    name = ".onnxfde-1-{:016x}.tmp".format
    (folder / name(0)).symlink_to(victim)
    (folder / name(1)).symlink_to("gone")
    os.mkfifo(folder / name(2))
    (folder / name(3) / "inside").mkdir(parents=True)
    for other in (".onnxfde-notes", f"{name(4)}2", f"a{name(4)}", ".onnxfde-1-xyz.tmp", "x.tmp"):
        (folder / other).write_text("precious")
    before = names(folder)
    (folder / name(5)).write_text("a dead run's")
    data = data_of(external, out)
    assert names(folder) == before | {"out.onnx", data}
    assert victim.read_text() == "precious"


def names(folder: Path) -> set[str]:
    """Everything below a folder, files or not."""
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def data_of(external: Path, out: Path, *options: str) -> str:
    """Optimize to OUT; returns the name of its data file."""
    optimized(external, out, *(options or MERGE))
    return data_name(out)


def test_the_same_command_twice_leaves_the_same_files(external: Path, out: Path) -> None:
    optimized(external, out, *MERGE, "--force", "--json", out.with_name("r.json"))
    before = contents(out.parent)
    printed = optimized(external, out, *MERGE, "--force", "--json", out.with_name("r.json"))
    after = contents(out.parent)
    assert before.pop("r.json") != after.pop("r.json")
    assert before == after
    assert "old weights" not in printed


def test_another_result_takes_its_old_data_away(external: Path, out: Path) -> None:
    old = data_of(external, out)
    report = out.with_name("r.json")
    printed = optimized(external, out, *FEWER, "--json", report)
    assert names(out.parent) == {"out.onnx", data_name(out), "r.json"}
    assert data_name(out) != old
    assert "old weights" not in printed
    assert json.loads(report.read_text())["old_weights"] == []
    optimized(external, out, *UNCHANGED)
    assert names(out.parent) == {"out.onnx", "w.bin", "r.json"}


def test_in_place_old_weights_under_another_name_stay_and_are_named(external: Path) -> None:
    old = external.with_name("w.bin").read_bytes()
    report = external.with_name("r.json")
    printed = optimized(external, external, *MERGE, "--json", report)
    said = f"old weights stay in w.bin ({len(old):,} bytes): delete it if nothing needs it"
    assert said in printed
    assert external.with_name("w.bin").read_bytes() == old
    told = {"file": "w.bin", "bytes": len(old), "read_by": None}
    assert json.loads(report.read_text())["old_weights"] == [told]
    external.with_name("w.bin").unlink()
    first = data_name(external)
    assert "old weights" not in optimized(external, external, *FEWER, "--force")
    assert names(external.parent) == {"in.onnx", data_name(external), "r.json"}
    assert data_name(external) != first


def copy(out: Path, data: Path) -> Path:
    return Path(shutil.copy(out, out.with_name("backup")))


def copy_above(out: Path, data: Path) -> Path:
    """A model above, whose weights lie in a folder below it."""
    path = out.parents[1] / "above.onnx"
    model = onnx.load(out, load_external_data=False)
    for tensor in model.graph.initializer:
        for entry in tensor.external_data:
            entry.value = f"out/{entry.value}" if entry.key == "location" else entry.value
    onnx.save(model, path)
    return path


def link(out: Path, data: Path) -> Path:
    path = out.parents[1] / "link"
    path.symlink_to(data)
    return path


def linked_model(out: Path, data: Path) -> Path:
    (out.parents[1] / "elsewhere").mkdir()
    real = shutil.copy(out, out.parents[1] / "elsewhere")
    path = out.with_name("linked.onnx")
    path.symlink_to(real)
    return path


def unreadable(out: Path, data: Path) -> Path:
    path = out.with_name("closed.onnx")
    path.symlink_to(f"{out.with_name('out.onnx')}/nothing")
    return path


def as_text(out: Path, data: Path) -> Path:
    path = out.with_name("backup.textproto")
    onnx.save(onnx.load(out, load_external_data=False), path, format="textproto")
    return path


def as_json(out: Path, data: Path) -> Path:
    path = out.with_name("backup.json")
    onnx.save(onnx.load(out, load_external_data=False), path, format="json")
    return path


@pytest.mark.parametrize(
    "made", [copy, copy_above, link, linked_model, unreadable, as_text, as_json]
)
def test_old_data_stays_if_something_may_read_it(
    external: Path, out: Path, made: Callable[[Path, Path], Path]
) -> None:
    data = out.with_name(data_of(external, out))
    raw, reader = data.read_bytes(), made(out, data)
    printed = optimized(external, out, *FEWER)
    assert data.read_bytes() == raw
    shown = os.path.relpath(reader, out.parent)
    assert f"old weights stay in {data.name} ({len(raw):,} bytes): {shown} may" in printed
    reader.unlink()
    optimized(external, out, *MERGE)
    assert data.read_bytes() == raw


@pytest.mark.parametrize("kind", ["two", "a link", "below", "of another OUT", "upper case"])
def test_what_only_looks_like_the_old_data_stays(external: Path, out: Path, kind: str) -> None:
    """OUT is a model of somebody else, which says where its weights are."""
    name = {
        "below": "sub/out.onnx.0123456789abcdef.data",
        "of another OUT": "other.onnx.0123456789abcdef.data",
        "upper case": "out.onnx.0123456789ABCDEF.data",
    }.get(kind, "out.onnx.0123456789abcdef.data")
    saved(out, name, seed=1)
    if kind == "a link":
        os.rename(out.with_name(name), out.with_name("real"))
        out.with_name(name).symlink_to("real")
    if kind == "two":
        second = "out.onnx.fedcba9876543210.data"
        shutil.copy(out.with_name(name), out.with_name(second))
        model = onnx.load(out, load_external_data=False)
        model.graph.initializer[0].external_data[0].value = second
        onnx.save(model, out)
    before = contents(out.parent)
    before.pop("out.onnx")
    printed = optimized(external, out, *MERGE)
    assert before.items() <= contents(out.parent).items()
    assert printed.count("old weights stay in") == (2 if kind == "two" else 1)


def test_a_model_that_names_what_is_no_data_of_ours_deletes_nothing(
    external: Path, out: Path
) -> None:
    saved(out, "thesis.txt", seed=1)
    (out.parents[1] / "outside.onnx").write_bytes(b"precious")
    model = onnx.load(out, load_external_data=False)
    for tensor, where in zip(
        model.graph.initializer, ("../outside.onnx", "gone", "../out/thesis.txt"), strict=False
    ):
        next(e for e in tensor.external_data if e.key == "location").value = where
    onnx.save(model, out)
    before = contents(out.parents[1])
    before.pop("out/out.onnx")
    optimized(external, out, *MERGE)
    assert before.items() <= contents(out.parents[1]).items()


def test_two_models_in_one_folder_keep_to_their_own_data(external: Path, out: Path) -> None:
    other = out.with_name("other.onnx")
    found = {data_of(external, out), data_of(external, other)}
    found.add(data_of(external, other, *FEWER))
    optimized(external, out, *FEWER)
    assert names(out.parent) == {"out.onnx", "other.onnx", data_name(out), data_name(other)}
    assert len(found) == 3


@pytest.mark.parametrize("call", ["os.fsync", "os.link"])
def test_a_full_disk_leaves_what_was_there(
    external: Path, out: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    data_of(external, out)
    before = contents(out.parent)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(call, full)
        patch.setattr("os.rename", full)
        done = run("optimize", external, out, *FEWER, "--json", out.with_name("r.json"))
    assert_one_line_error(done, "out.onnx cannot be written (No space left on device)")
    assert contents(out.parent) == before


def test_a_read_only_folder_gets_one_line_before_any_work(
    external: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data_of(external, out)
    before = contents(out.parent)
    allowed = os.access

    def read_only(path: Path, mode: int) -> bool:
        return allowed(path, mode) and not (path == out.parent and mode & os.W_OK)

    monkeypatch.setattr(os, "access", read_only)
    done = run("optimize", external, out, *FEWER, "--quiet")
    assert_one_line_error(done, "is not writable")
    assert contents(out.parent) == before
