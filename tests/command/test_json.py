"""`--json FILE` of every command: strict JSON, alone on stdout with -, never over another file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from onnxfde.command.main import app
from onnxfde.report import strict_json
from tests.command.running import run

COMMANDS = {
    "optimize": ("optimize", "M", "O", "--input-range", "0:1"),
    "inspect": ("inspect", "M"),
    "verify": ("verify", "M", "M"),
    "bench": ("bench", "M", "--seconds", "0"),
}
FIELDS = {
    "optimize": "grp_percent",
    "inspect": "layers",
    "verify": "relative_l2",
    "bench": "targets",
}


def words(model: Path, name: str) -> list[str | Path]:
    files = {"M": model, "O": model.with_name("out.onnx")}
    return [files.get(word, word) for word in COMMANDS[name]]


def strict(text: str) -> Any:
    """JSON in which NaN and infinity are errors."""
    return json.loads(text, parse_constant=lambda name: pytest.fail(name))


@pytest.mark.parametrize("name", COMMANDS)
def test_a_dash_is_stdout_and_nothing_else_goes_there(model: Path, name: str) -> None:
    done = run(*words(model, name), "--json", "-")
    assert done.exit_code == 0
    assert FIELDS[name] in strict(done.stdout)


@pytest.mark.parametrize("name", ["inspect", "verify"])
def test_a_file_is_written_beside_the_table_and_quietly_without_it(model: Path, name: str) -> None:
    file = model.with_name("found.json")
    assert run(*words(model, name), "--json", file).stdout != ""
    assert FIELDS[name] in strict(file.read_text(encoding="utf-8"))
    file.write_text("{}")
    done = run(*words(model, name), "--json", file, "--quiet")
    assert done.output == ""
    assert FIELDS[name] in strict(file.read_text(encoding="utf-8"))


def test_report_is_another_name_for_json(model: Path) -> None:
    done = run(*words(model, "optimize"), "--report", "-")
    assert FIELDS["optimize"] in strict(done.stdout)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_file_that_is_not_json_is_not_replaced(model: Path, name: str) -> None:
    (model.parent / "notes.txt").write_text("notes")
    for victim in (model, model.parent / "notes.txt"):
        before = victim.read_bytes()
        done = run(*words(model, name), "--json", victim)
        assert (done.exit_code, done.stdout) == (2, "")
        assert "choose another file" in done.stderr
        assert victim.read_bytes() == before


def test_numbers_that_json_does_not_have_become_null() -> None:
    nested = {"a": [float("nan"), 1.5], "b": ({"c": -float("inf")}, "NaN")}
    assert strict(strict_json(nested)) == {"a": [None, 1.5], "b": [{"c": None}, "NaN"]}


def test_a_metric_that_is_no_number_is_null(model: Path) -> None:
    """A target that is NaN makes the mean square error NaN."""
    file = model.with_name("d.npz")
    np.savez(file, x=np.ones((4, 3)), y=np.full((4, 2), np.nan))
    found = strict(run("verify", model, model, "--data", file, "--json", "-").stdout)
    assert (found["metric"], found["metric_after"], found["relative_l2"]) == ("MSE", None, None)
    command = ("optimize", model, model.with_name("o.onnx"), "--data", file, "--json", "-")
    found = strict(run(*command).stdout)["verification"]
    assert (found["metric"], found["metric_after"]) == ("MSE", None)


def test_what_a_terminal_cannot_encode_is_escaped(model: Path) -> None:
    renamed = model.rename(model.with_name("ε.onnx"))
    command = [str(word) for word in words(renamed, "bench")]
    done = CliRunner(charset="ascii").invoke(app, [*command, "--json", "-"])
    assert done.exit_code == 0
    assert done.stdout_bytes.isascii()
    assert strict(done.stdout)["models"][0]["file"] == str(renamed)
