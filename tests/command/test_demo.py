"""The demo, and that what it tells the user to try works."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

import onnx
import pytest
from typer.testing import CliRunner

import onnxfde
from onnxfde.command.demo_command import program
from onnxfde.command.main import app
from onnxfde.demo import DemoName, demo_data, demo_model
from onnxfde.graph.size import count_parameters


@pytest.mark.parametrize(("words", "name"), [(["demo"], "digits"), (["demo", "gly"], "gly")])
def test_the_demo_ends_with_a_hint_that_makes_a_much_smaller_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], name: DemoName
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    hint = CliRunner().invoke(app, words).stdout.splitlines()[-1]
    command = shlex.split(hint.partition(": ")[2])
    assert command[0] == "onnxfde"
    assert CliRunner().invoke(app, command[1:]).exit_code == 0
    files = [f"{name}-small.onnx", f"{name}.npz", f"{name}.onnx"]
    assert sorted(os.listdir("demo")) == files
    before, after = (count_parameters(onnx.load(Path("demo", files[i]))) for i in (2, 0))
    assert after < 0.1 * before
    found = onnxfde.verify(demo_model(name), Path("demo", files[0]), data=demo_data(name))
    assert found.relative_l2 is not None
    assert found.relative_l2 < 0.15  # ε is 0.1 for each layer, on rows of which some were fitted


def test_the_command_that_made_the_demo_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["demo", "gly", "--save", "demo"])
    words = shlex.split(done.stdout.splitlines()[-1].partition(": ")[2])
    again = words[words.index("optimize") :]
    assert CliRunner().invoke(app, [*again, "--force"]).exit_code == 0


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


@pytest.mark.parametrize("name", ["digits", "gly"])
def test_the_demo_networks_are_small(name: DemoName) -> None:
    assert demo_model(name).stat().st_size + demo_data(name).stat().st_size < 200_000
