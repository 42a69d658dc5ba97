"""Help pages: plain names, whole sentences, nothing wider than 80 columns."""

from __future__ import annotations

import re

import pytest
from typer.testing import CliRunner

from onnxfde.command import bench_table, inspection_table, report_table
from onnxfde.command.column_meanings import BENCH_MEANINGS, INSPECTION_MEANINGS
from onnxfde.command.main import app

PAGES = ("", "optimize", "inspect", "verify", "sweep", "demo", "bench", "target", "target setup")


def page(command: str, charset: str = "utf-8") -> str:
    runner = CliRunner(charset=charset, env={"COLUMNS": "80", "TERMINAL_WIDTH": "80"})
    done = runner.invoke(app, [*command.split(), "--help"], prog_name="onnxfde")
    assert done.exit_code == 0
    return done.stdout


@pytest.mark.parametrize("command", PAGES)
def test_a_page_fits_80_columns_and_cuts_nothing(command: str) -> None:
    text = page(command)
    assert max(map(len, text.splitlines())) <= 80
    assert "…" not in text
    assert not re.search(r"[a-z,]\.\.\.$", text, re.MULTILINE)
    for jargon in ("list[", "<path>", "<str>", "<float>", "{IN}", "lossless", "GRP", "Gaussian"):
        assert jargon not in text


def test_arguments_are_named_as_in_the_usage_line() -> None:
    text = page("optimize")
    assert "Usage: onnxfde optimize [OPTIONS] IN OUT\n" in text
    assert re.search(r"\nArguments:\n  IN   The model, an .onnx file\..*\n  OUT  ", text)
    assert "Usage: onnxfde bench [OPTIONS] MODEL...\n" in page("bench")


def test_the_paper_has_a_heading_of_its_own() -> None:
    first, _, second = page("optimize").partition("Other methods, to compare with the paper:")
    assert "--eps" in first
    assert "--semantics" not in first
    assert "--semantics" in second


def test_every_column_that_is_no_common_word_is_explained() -> None:
    common = {"layer", "model", "batch", "size", "parameters", "p50", "p90", "min"}
    listed = {*bench_table.TIME_COLUMNS, *bench_table.COUNT_COLUMNS, *bench_table.LOAD_COLUMNS}
    listed |= {*bench_table.SIZE_COLUMNS, bench_table.WITHOUT_CALL.replace("\n", " ")}
    shown = {column.removesuffix(" (95 %)") for column in listed}
    assert shown - common <= BENCH_MEANINGS.keys()
    assert inspection_table.AT_LEAST.strip() in INSPECTION_MEANINGS
    text = page("optimize")
    for column in report_table.LAYER_COLUMNS:
        assert re.search(rf"^  {column}  +\S", text, re.MULTILINE)


@pytest.mark.parametrize("charset", ["ascii", "cp1252", "latin-1"])
def test_help_can_be_read_in_any_encoding(charset: str) -> None:
    text = page("optimize", charset)
    assert re.search(r"instead of\s+eps\.", text)
    assert "Before -> after." in text
