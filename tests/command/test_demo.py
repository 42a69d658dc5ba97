"""The demo, and that what it tells the user to try works."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from onnxfde.command.demo_command import program
from onnxfde.command.main import app


@pytest.mark.parametrize(("words", "name"), [(["demo"], "gly"), (["demo", "digits"], "digits")])
def test_the_demo_ends_with_a_hint_that_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    hint = CliRunner().invoke(app, words).stdout.splitlines()[-1]
    command = shlex.split(hint.partition(": ")[2])
    assert command[0] == "onnxfde"
    done = CliRunner().invoke(app, command[1:])
    assert done.exit_code == 0
    assert sorted(os.listdir("demo")) == [f"{name}-small.onnx", f"{name}.npz", f"{name}.onnx"]
    again = shlex.split(done.stdout.splitlines()[-1].partition(": ")[2])
    assert CliRunner().invoke(app, [*again[1:], "--force"]).exit_code == 0


@pytest.mark.parametrize(
    ("called", "hint"),
    [
        (".venv/bin/onnxfde", ".venv/bin/onnxfde"),
        ("onnxfde/__main__.py", f"{sys.executable} -m onnxfde"),
    ],
)
def test_the_hint_works_where_onnxfde_is_not_on_the_path(
    monkeypatch: pytest.MonkeyPatch, called: str, hint: str
) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)
    monkeypatch.setattr("sys.argv", [called])
    assert program() == hint


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file")
    done = CliRunner().invoke(app, ["demo", "--save", str(tmp_path / "taken")])
    assert done.exit_code == 1
    assert done.stderr.startswith(f"onnxfde: {tmp_path / 'taken'} cannot be created (")
