"""How long does the whole command take, and how much memory, before and after a change?

`python -m benchmarks.speed --before CHECKOUT` runs `python -m onnxfde` of an older checkout and of
this one in turns, on models made into `benchmarks/.cache/speed`, and judges the lines of the table
in `common/speed_rows.py`. `--only NAME …` measures single lines, `--page` writes the page from what
was measured before, `--threads N` limits the linear algebra; with one thread, all times are CPU
time, which other work on the machine hardly disturbs. What the old code cannot do in a
sensible time or memory is quoted, unless `--before-all` is given.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks.common import table
from benchmarks.common.folders import CACHE
from benchmarks.common.measured_commands import MeasuredCommand, measured_command
from benchmarks.common.processes import load_note, run_apart
from benchmarks.common.speed_models import model_file
from benchmarks.common.speed_page import Figures, Records, note, sections
from benchmarks.common.speed_rows import AFTER_LIMIT, GROWTH, LONG, ROWS, GrowthRow, Row

HERE = Path(__file__).parents[1]
FOLDER = CACHE / "speed"
NOISE = 1.15
"""By which factor the two u of a row may differ before it is measured again. Chosen; not tuned."""
ATTEMPTS = 4
"""How often a row is measured at most; the last is marked "noisy" if it is."""


@dataclass(frozen=True)
class Bench:
    """The checkouts to compare, and how."""

    before: Path | None
    threads: int | None = None
    before_all: bool = False
    python: str = sys.executable
    """A Python with torch, scikit-learn and onnxslim, for the rows that need them."""
    folder: Path = FOLDER
    after_limit: float = AFTER_LIMIT

    def unit(self, row: Row) -> float:
        """One product W Wᵀ: wall time, or CPU time if that of a single thread counts."""
        inputs, neurons, _ = row.shape.split("-")
        threads = self.threads if row.in_units else 1
        words = ("benchmarks.common.gram_unit", neurons, inputs)
        return float(run_apart(*words, threads=threads)["cpu" if threads == 1 else "wall"])

    def sides(self, row: Row) -> list[str]:
        """Which commands are run."""
        with_before = self.before is not None and (row.run_before or self.before_all)
        return [
            *(["before"] if with_before else []),
            "after",
            *([row.beside] if row.beside else []),
        ]

    def sides_of(self, row: Row | GrowthRow) -> dict[str, Figures]:
        """What one row of either table measures."""
        return self.measured(row) if isinstance(row, Row) else self.growth(row)

    def measured(self, row: Row) -> dict[str, Figures]:
        """All sides of a row, again if the machine was disturbed meanwhile."""
        model = model_file(row.recipe, self.folder, self.python) if row.recipe else None
        found = {}
        for attempt in range(1, ATTEMPTS + 1):
            units = [self.unit(row)]
            runs: dict[str, list[Figures]] = {side: [] for side in self.sides(row)}
            for _ in range(row.rounds):
                for side, done in runs.items():
                    done.append(self.run(row, side, model))
            units.append(self.unit(row))
            found = {side: self.summary(row, done, units) for side, done in runs.items()}
            print(row.name, f"attempt {attempt}", found, file=sys.stderr)
            if not is_noisy(units):
                break
        return found

    def summary(self, row: Row, runs: list[Figures], units: list[float]) -> Figures:
        """Medians over all runs of one side.

        With one thread, time that the processor spent on other work does not count.
        """
        failed = next((run["failed"] for run in runs if "failed" in run), None)
        keys = [key for key, value in runs[0].items() if isinstance(value, int | float)]
        found: Figures = {
            key: statistics.median([run[key] for run in runs if key in run]) for key in keys
        }
        found |= {"unit": statistics.mean(units), "noisy": is_noisy(units)}
        if row.in_units and "phase" in found:
            found["phase"] *= min(1.0, found["cpu"] / found["wall"]) if self.threads == 1 else 1.0
            found["u"] = found["phase"] / found["unit"] / row.layers
        return found | ({"failed": failed} if failed else {})

    def run(self, row: Row, side: str, model: Path | None) -> Figures:
        """One run of one side."""
        with tempfile.TemporaryDirectory(dir=self.folder) as scratch:
            report = Path(scratch) / "report.json"
            out, package = (
                str(Path(scratch) / "out.onnx"),
                self.before if side == "before" else HERE,
            )
            if side == "onnxslim":
                command, package = [str(Path(self.python).parent / side), str(model), out], None
            else:
                command = [sys.executable, *command_words(row, str(model), out, str(report))]
            limit = LONG if side == "before" else self.after_limit
            done = measured_command(command, Path(scratch), package, self.threads, limit)
            return figures(done, report, model)

    def growth(self, row: GrowthRow) -> dict[str, Figures]:
        """Exponents of both sides, from one run per size."""
        sides = [side for side in ("before", "after") if side == "after" or self.before]
        found: dict[str, Figures] = {side: {} for side in sides}
        for axis, shapes in ((1, row.by_neurons), (0, row.by_inputs)):
            spent: dict[str, list[float]] = {side: [] for side in sides}
            for shape in shapes:
                one = Row(row.name, "", f"{row.kind} {shape}", row.words, "", ())
                model = model_file(one.recipe, self.folder)
                for side in sides:
                    spent[side].append(self.run(one, side, model).get("phase", float("nan")))
            for side in sides:
                found[side]["nd"[1 - axis]] = exponent(shapes, axis, spent[side])
                found[side]["seconds " + "nd"[1 - axis]] = dict(
                    zip(shapes, spent[side], strict=True)
                )
        print(row.name, found, file=sys.stderr)
        return found


def command_words(row: Row, model: str, out: str, report: str) -> list[str]:
    """What Python is called with."""
    named = {"IN": model, "DATA": str(Path(model).with_suffix(".npz"))}
    words = [named.get(word, word) for word in row.words]
    if words and words[0] in ("-m", "-c"):
        return words
    return ["-m", "onnxfde", "optimize", model, out, "--report", report, *words]


def figures(done: MeasuredCommand, report: Path, model: Path | None) -> Figures:
    """The figures of one run; "failed" says why there are none."""
    found: Figures = {"wall": done.wall, "cpu": done.cpu, "gb": done.megabytes * 1024**2 / 1e9}
    if done.code is None:
        found["failed"] = f"unfinished after {done.wall:.0f} s, {found['gb']:.1f} GB"
    elif done.code:
        found["failed"] = f"exit {done.code}: {done.last_line}"
    if model is not None:
        found["files"] = found["gb"] * 1e9 / model.stat().st_size
    if report.exists():
        told = json.loads(report.read_text())
        layers = told["layers"]
        found["phase"] = told["seconds"].get("partition", 0.0)
        found["neurons"] = sum(layer["neurons_after"] for layer in layers)
        found["of"] = sum(layer["neurons_before"] for layer in layers)
        found["error"] = max((layer["error"] for layer in layers), default=None)
        if told["refused"] and not layers:
            found["failed"] = f"left alone: {told['refused'][0]['reason']}"
    return found


def is_noisy(units: list[float]) -> bool:
    """Whether the machine was faster or slower at the end of a row than at its beginning."""
    return max(units) > NOISE * min(units)


def exponent(shapes: Iterable[str], axis: int, seconds: list[float]) -> float:
    """The slope of log time against the log of one dimension (0: inputs, 1: neurons)."""
    sizes = [math.log(int(shape.split("-")[axis])) for shape in shapes]
    return statistics.linear_regression(sizes, [math.log(s) for s in seconds]).slope


def write_page(records: Records) -> None:
    """Write speed.md."""
    title = "Time and memory of the whole command, before and after"
    table.write_sections(__file__, title, sections(records), note(records))


def compiled(checkouts: Iterable[Path]) -> None:
    """Compile checkouts, so that no run pays for it."""
    for checkout in checkouts:
        folders = [str(checkout / name) for name in ("onnxfde", "passes")]
        subprocess.run([sys.executable, "-m", "compileall", "-q", *folders], check=True)


def main() -> None:
    """Measure and write the page."""
    every: tuple[Row | GrowthRow, ...] = (*ROWS, *GROWTH)
    names = [row.name for row in every]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--before", type=Path, help="an older checkout")
    parser.add_argument("--only", nargs="+", choices=names, default=names, metavar="NAME")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--before-all", action="store_true")
    parser.add_argument("--page", action="store_true", help="measure nothing")
    parser.add_argument(
        "--python", default=sys.executable, help="one with torch, scikit-learn and onnxslim"
    )
    given = parser.parse_args()
    before = given.before and given.before.resolve()
    bench = Bench(before, given.threads, given.before_all, given.python)
    records = Records(bench.folder)
    if not given.page:
        compiled([HERE, *([before] if before else [])])
        for row in every:
            if row.name in given.only:
                records.keep(row.name, partial(bench.sides_of, row), run_note(given.threads))
    write_page(records)


def run_note(threads: int | None) -> str:
    """On what a row was measured."""
    limited = os.environ.get("OPENBLAS_NUM_THREADS") if threads is None else str(threads)
    return f"{load_note()} Threads: {limited or 'as many as the command takes'}."


if __name__ == "__main__":
    main()
