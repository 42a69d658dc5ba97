"""A slice of `benchmarks.speed`: one small command, and how figures are judged."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks import speed
from benchmarks.common import speed_models
from benchmarks.common.measured_commands import measured_command
from benchmarks.common.speed_page import Records, holds, sections, table_row, verdict
from benchmarks.common.speed_rows import GROWTH, ROWS, Bar, Row

ROW = Row(
    "small", "6-20-3 random", "random 6-20-3", ("--keep", "25%", "--quotient", "refit"), "7 u",
    (Bar("u", 3.0), Bar("neurons", 1.02, "before")),
)  # fmt: skip
BEFORE = {"u": 9.0, "phase": 0.9, "unit": 0.1, "neurons": 100, "of": 200, "error": 0.1}


def bench_with(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, units: Iterator[float]
) -> speed.Bench:
    """A bench whose commands and units are made up."""
    figures = {"wall": 1.0, "cpu": 1.0, "gb": 0.1, "phase": 0.5, "neurons": 5, "of": 20}
    monkeypatch.setattr(speed.Bench, "run", lambda *_: dict(figures))
    monkeypatch.setattr(speed.Bench, "unit", lambda *_: next(units))
    return speed.Bench(before=tmp_path, folder=tmp_path)


@pytest.mark.skipif(sys.platform != "linux", reason="peak memory is counted as Linux does")
def test_a_row_makes_its_model_runs_the_command_and_keeps_what_it_took(tmp_path: Path) -> None:
    bench = speed.Bench(before=None, folder=tmp_path)
    model = speed_models.model_file(ROW.recipe, tmp_path)
    found = bench.run(ROW, "after", model)
    assert "failed" not in found, found
    assert (found["of"], found["neurons"]) == (20, 5)
    assert 0 < found["phase"] < found["wall"]
    assert found["cpu"] > 0.1
    assert 0.03 < found["gb"] < 2
    assert {path.name for path in tmp_path.iterdir()} == {"random-6-20-3.onnx"}


@pytest.mark.parametrize(
    ("units", "attempts", "noisy"),
    [((1.0, 1.1), 1, False), ((1.0, 1.3, 1.0, 1.0), 2, False), ((1.0, 1.2) * 4, 4, True)],
)
def test_a_row_is_repeated_while_its_units_differ_but_not_for_ever(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    units: tuple[float, ...],
    attempts: int,
    noisy: bool,
) -> None:
    left = iter(units)
    found = bench_with(monkeypatch, tmp_path, left).measured(replace(ROW, recipe=""))
    assert next(left, None) is None
    assert len(units) == 2 * attempts
    assert found["after"]["noisy"] is found["before"]["noisy"] is noisy
    assert found["after"]["u"] == pytest.approx(0.5 / (sum(units[-2:]) / 2), rel=1e-12)


def test_bars_are_judged_beside_what_was_measured() -> None:
    after: dict[str, Any] = {**BEFORE, "u": 2.9, "noisy": False}
    sides = {"before": {**BEFORE, "noisy": False}, "after": after}
    assert verdict(ROW, sides) == "pass"
    assert verdict(ROW, {**sides, "after": {**after, "u": 3.1}}) == "short of ≤ 3 u"
    more = {**sides, "after": {**after, "neurons": 103}}
    assert verdict(ROW, more) == "short of ≤ 1.02 × before in neurons"
    assert holds(ROW.bars[1], after, {"after": after}) is None
    assert verdict(ROW, {"after": {**after, "failed": "exit 1: no"}}) == "short"
    assert "200 → 100 neurons, error 0.1" in table_row(ROW, sides, None)[2]


def test_what_was_not_run_is_quoted_and_what_cannot_be_made_says_why(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(speed_models, "SPARE", 1e12)
    records = Records(tmp_path)
    row = next(row for row in ROWS if row.name == "external")
    records.keep(row.name, lambda: speed.Bench(None, folder=tmp_path).measured(row), "note")
    read_again = Records(tmp_path).by_name[row.name]
    line = table_row(row, read_again["sides"], read_again["skipped"])
    assert line[1] == "9.6 GB, unfinished at 500 s (quoted)"
    assert line[2].startswith("skipped: ")
    assert "of disk are needed" in line[2]
    whole, growth = (section.text() for section in sections(records))
    assert whole.count("\n|") == len(ROWS) + 2
    assert growth.count("\n|") == len(GROWTH) + 2


def test_exponents_are_slopes_of_logarithms() -> None:
    shapes = ("4-8-4", "4-16-4", "4-32-4")
    assert speed.exponent(shapes, 1, [1.0, 4.0, 16.0]) == pytest.approx(2.0, abs=1e-12)


@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
def test_a_command_that_takes_too_long_is_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "import time; time.sleep(60)"]
    done = measured_command(command, tmp_path, None, None, limit=0.1)
    assert done.code is None
    assert done.wall < 30
