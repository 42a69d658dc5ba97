"""Drafts are locked and removed by their process; what a dead run left, the next one removes."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import onnx
import pytest

import onnxfde
from onnxfde.graph.drafts import draft, write_text
from tests.models import contents, mlp, twins

BIG = twins(distinct=20, copies=2, inputs=8, outputs=30)
KILLED = """
import os, signal, sys
from pathlib import Path
from onnxfde.graph.drafts import draft

with draft(Path(sys.argv[1])) as new:
    new.stream.write(b"half a model")
    new.stream.flush()
    print(new.path, flush=True)
    sys.stdin.read(1)
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def external(tmp_path: Path) -> Path:
    path = tmp_path / "model.onnx"
    onnx.save(mlp(*BIG), path, save_as_external_data=True, location="w.bin", size_threshold=0)
    return path


def test_a_draft_of_a_run_that_lives_stays_and_one_of_a_killed_run_is_removed(
    tmp_path: Path,
) -> None:
    words = [sys.executable, "-c", KILLED, str(tmp_path / "out.onnx")]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        path = Path(run.stdout.readline().strip())
        write_text(tmp_path / "a", "text")
        assert contents(tmp_path) == {"a": b"text", path.name: b"half a model"}
        assert f"-{run.pid}-" in path.name
        run.communicate("x")
    assert path.exists()
    write_text(tmp_path / "b", "text")
    assert contents(tmp_path) == {"a": b"text", "b": b"text"}


def test_a_draft_is_never_more_open_than_what_it_replaces(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_text("secret")
    path.chmod(0o440)
    with draft(path) as new:
        assert new.path.stat().st_mode & 0o777 == 0o640
        new.replace(path)
    assert path.stat().st_mode & 0o777 == 0o440


def test_new_files_have_the_permissions_of_new_files(external: Path, tmp_path: Path) -> None:
    plain, folder = tmp_path / "plain", tmp_path / "out"
    plain.touch()
    folder.mkdir()
    onnxfde.optimize(external, eps=0).save(folder / "out.onnx")
    assert {file.stat().st_mode for file in folder.iterdir()} == {plain.stat().st_mode}


def test_the_folder_is_locked_from_the_rename_to_the_deletion(
    external: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out.onnx"
    (old,) = onnxfde.optimize(external, eps=0, quotient="refit").save(out).weight_files
    result = onnxfde.optimize(external, neurons=5, quotient="refit")
    locked: dict[str, bool] = {}

    def is_locked() -> bool:
        handle = os.open(tmp_path, os.O_RDONLY)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(handle)
        return False

    rename, unlink = os.replace, Path.unlink

    def replace(source: Any, target: Any) -> None:
        locked["rename"] = is_locked()
        rename(source, target)

    def remove(path: Path, missing_ok: bool = False) -> None:
        if path.name == old:
            locked["deletion"] = is_locked()
        unlink(path, missing_ok)

    monkeypatch.setattr(os, "replace", replace)
    monkeypatch.setattr(Path, "unlink", remove)
    result.save(out)
    assert locked == {"rename": True, "deletion": True}
    assert not (tmp_path / old).exists()


def test_where_the_folder_cannot_be_locked_old_data_stays(
    external: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out.onnx"
    (old,) = onnxfde.optimize(external, eps=0, quotient="refit").save(out).weight_files

    def refused(*_: Any) -> None:
        raise OSError(37, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refused)
    report = onnxfde.optimize(external, neurons=5, quotient="refit").save(out)
    assert [(each.file, each.read_by) for each in report.old_weights] == [(old, None)]
    assert (tmp_path / old).exists()
    assert onnxfde.inspect(out).layers[0].neurons == 5
