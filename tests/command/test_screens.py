"""What is printed fits the terminal, in any encoding, with or without colours."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console
from typer.testing import CliRunner

from onnxfde.command.ascii_fallback import spelled
from onnxfde.command.inspection_table import SIZES, inspection_grid
from onnxfde.command.main import app
from onnxfde.command.report_table import MAIN_COLUMNS, MORE_COLUMNS, show_layers
from onnxfde.command.tables import show_first_that_fits
from onnxfde.command.terminal import console, print_line
from onnxfde.inspection import SHOWN_EPS, LayerView
from onnxfde.passes.result import LayerChange
from tests.command.running import GLY, ROWS, run

counts = st.integers(1, 20_000)
names = st.text("abcXYZ019_/.:", min_size=1, max_size=60)


def change(name: str, inputs: int, neurons: int, outputs: int, left: int) -> LayerChange:
    before, after = ((inputs + 1 + outputs) * n + outputs for n in (neurons, left))
    return LayerChange(
        name=name, activation="square", inputs=inputs, outputs=outputs, neurons_before=neurons,
        neurons_after=left, parameters_before=before, parameters_after=after, dtype="float32",
        eps=0.125, error=1.25e-17, lower_bound=1.25e-17, measured_error=1.25e-17, blocks=(),
        neurons_lossless=neurons,
    )  # fmt: skip


def assert_fits(text: str, width: int, name: str) -> None:
    """No line is too wide, and the name is there in full in each table, perhaps in parts."""
    assert max(map(len, text.splitlines())) <= width
    assert "…" not in text
    for table in text.strip().split("\n\n"):
        assert "".join(line.split(" ")[0] for line in table.splitlines()[2:]) == name


@settings(max_examples=30)
@given(names, counts, counts, counts)
def test_the_table_of_layers_fits_80_columns(
    name: str, inputs: int, neurons: int, outputs: int
) -> None:
    stream = io.StringIO()
    layers = (change(name, inputs, neurons, outputs, (neurons + 1) // 2),)
    show_layers(Console(width=80, file=stream), layers)
    assert_fits(stream.getvalue(), 80, name)
    assert f"{inputs}-{neurons}-{outputs}" in stream.getvalue()


@settings(max_examples=30)
@given(names, counts, counts, counts)
def test_the_table_of_inspect_fits_80_columns(
    name: str, inputs: int, neurons: int, outputs: int
) -> None:
    left, parameters = dict.fromkeys(SHOWN_EPS, neurons), (inputs + 1 + outputs) * neurons
    known: dict[float, int | None] = {**left}
    view = LayerView(
        name,
        "dense",
        "ThresholdedRelu(1)",
        inputs,
        neurons,
        outputs,
        parameters,
        neurons,
        known,
        left,
    )
    grids = [inspection_grid((view,), sizes) for sizes in SIZES]
    stream = io.StringIO()
    show_first_that_fits(Console(width=80, file=stream), *([grid] for grid in grids))
    assert_fits(stream.getvalue(), 80, name)
    assert f"{inputs}-{neurons}-{outputs}" in stream.getvalue()


def test_a_wide_terminal_gets_one_table_and_a_narrow_one_two() -> None:
    for width, tables in ((100, 1), (80, 2)):
        stream = io.StringIO()
        show_layers(Console(width=width, file=stream), (change("first", 7, 120, 7, 6),))
        assert stream.getvalue().count("first") == tables
        assert all(column in stream.getvalue() for column in (*MAIN_COLUMNS, *MORE_COLUMNS))


def test_lines_break_between_words_on_a_terminal_and_not_in_a_file() -> None:
    text = "certified   " + "word " * 30
    for terminal, lines in ((True, 6), (False, 1)):
        stream = io.StringIO()
        print_line(Console(width=40, file=stream, force_terminal=terminal), text)
        assert len(stream.getvalue().splitlines()) == lines
    stream = io.StringIO()
    print_line(Console(width=40, file=stream, force_terminal=True), text)
    assert stream.getvalue().splitlines()[1].startswith(" " * 12 + "word")


@pytest.mark.parametrize("charset", ["ascii", "cp1252", "latin-1"])
def test_every_encoding_gets_a_readable_table(charset: str, tmp_path: Path) -> None:
    command = ["optimize", GLY, tmp_path / "ε→.onnx", "--data", ROWS, "--quotient", "refit"]
    done = CliRunner(charset=charset).invoke(app, list(map(str, command)))
    assert done.exit_code == 0
    assert "120 -> " in done.stdout
    assert re.search(r"eps +error", done.stdout)
    assert f"written to  {tmp_path / 'eps->.onnx'}" in done.stdout
    header, rule, row = done.stdout.splitlines()[:3]
    assert len(header) == len(rule) == len(row)
    assert set(rule) == {"-"}


def test_errors_are_readable_in_every_encoding(tmp_path: Path) -> None:
    """In a process of its own, whose streams are those of a terminal without Unicode."""
    command = [sys.executable, "-m", "onnxfde", "optimize", GLY, str(tmp_path / "o"), "--eps", "-1"]
    done = subprocess.run(
        command, capture_output=True, env={**os.environ, "PYTHONIOENCODING": "ascii"}
    )
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr.split() == b"onnxfde: --eps -1.0 is not a number >= 0".split()


@given(st.text(max_size=20), st.sampled_from(["ascii", "cp1252", "latin-1", "utf-8", "koi8-r"]))
def test_any_text_can_be_spelled_in_any_encoding(text: str, encoding: str) -> None:
    found = spelled(text, encoding)
    found.encode(encoding)
    kept = [c for c in text if spelled(c, encoding) == c]
    assert all(c in found for c in kept)
    assert spelled(found, encoding) == found


def test_no_color_is_honoured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\x1b[" in run("inspect", GLY).stdout
    monkeypatch.setenv("NO_COLOR", "1")
    assert console().color_system is None
    assert "\x1b[" not in run("inspect", GLY).stdout
