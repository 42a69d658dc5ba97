"""Each command in a process of its own; what it said, what it took, and how good its file is."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.common.folders import BENCHMARKS, CACHE
from benchmarks.common.found_cells import Found, Result
from benchmarks.common.measured_commands import measured_command
from benchmarks.common.processes import run_apart
from benchmarks.real.cells import ORIGINAL, Cell, cells_of
from onnxfde.estimates import interval_text

LIMIT = 600.0
"""Seconds after which a command is stopped; chosen."""
WORKER = "benchmarks.real.worker"


@dataclass(frozen=True)
class Bench:
    """Where networks are from, where files are kept, and how much is measured."""

    module: str = "benchmarks.real.subjects"
    cache: Path = CACHE / "real"
    timed: bool = True
    quick: bool = False

    def worker(self, net: str, *words: str) -> Result:
        """A step of `benchmarks.real.worker`."""
        return run_apart(WORKER, self.module, net, str(self.cache / net), *words, threads=1)

    def cells(self, net: str) -> tuple[Cell, ...]:
        """What is measured of a network, whose files are made now if they are missing."""
        return cells_of(net, bool(self.worker(net, "prepare")["labelled"]), self.quick)

    def run(self, cell: Cell) -> Result:
        """Run a cell."""
        target = self.cache / cell.net / "made" / f"{cell.slug}.onnx"
        target.parent.mkdir(exist_ok=True)
        target.unlink(missing_ok=True)
        found = self.made(cell, target)
        file = found.pop("file", None)
        if found["code"] != 0:
            return found
        timed = ("timed",) if self.timed else ()
        try:
            return found | self.worker(cell.net, "judge", file, *timed)
        except subprocess.CalledProcessError as error:
            return found | {"code": 1, "said": f"not judged: {last_line(error.stderr)}"}

    def made(self, cell: Cell, target: Path) -> Result:
        """Make the file of a cell."""
        if cell.command == ORIGINAL:
            return {"code": 0, "file": self.worker(cell.net, "prepare")["model"]}
        if not cell.command.startswith("int8"):
            return self.optimized(cell, target)
        try:
            self.worker(cell.net, "int8", cell.command.split()[1], str(target))
        except subprocess.CalledProcessError as error:
            return {"code": 1, "said": last_line(error.stderr)}
        return {"code": 0, "file": str(target)}

    def optimized(self, cell: Cell, target: Path) -> Result:
        """Run `onnxfde optimize` with one thread."""
        files = self.worker(cell.net, "prepare")
        data = files["labelled" if cell.command.startswith("--max-drop") else "data"]
        words = [*files["words"], *cell.command.split()]
        paths = [str(Path(name).resolve()) for name in (files["model"], target, data)]
        with TemporaryDirectory() as name:
            command = [sys.executable, "-m", "onnxfde", "optimize", *paths[:2], "--data", paths[2],
                       *words, "--report", "report.json", "--quiet"]  # fmt: skip
            took = measured_command(command, Path(name), BENCHMARKS.parent, 1, LIMIT)
            file = Path(name) / "report.json"
            report: dict[str, Any] = json.loads(file.read_text()) if took.code == 0 else {}
        alone = Counter(without_names(one["reason"]) for one in report.get("refused", ()))
        words_shown = " ".join(["--data", Path(data).name, *words])
        return {
            "shown": f"onnxfde optimize {Path(paths[0]).name} small.onnx {words_shown}",
            "alone": dict(alone),
            "code": took.code,
            "seconds": took.wall,
            "cpu": took.cpu,
            "megabytes": took.megabytes,
            "said": said(report) if report else took.last_line,
            "file": str(target),
        }


def said(report: dict[str, Any]) -> str:
    """What a report says of the whole model, in one line."""
    if report.get("unchanged"):
        return f"unchanged: {report['unchanged']}"
    changed = sum(one["neurons_after"] < one["neurons_before"] for one in report["layers"])
    parts = [f"{changed} of {len(report['layers'])} layers smaller"]
    measured = report["verification"] or {}
    if measured.get("relative_l2") is not None:
        ends = interval_text(measured["relative_l2_interval"])
        parts.append(f"error {measured['relative_l2']:.2g}{ends}")
    if measured.get("metric_lost") is not None:
        ends = interval_text(measured["metric_lost_interval"])
        parts.append(f"{measured['metric_lost']:.2g}{ends} points lost")
    return ", ".join(parts)


def without_names(reason: str) -> str:
    """A reason without the names of nodes and values, so that equal ones can be counted.

    >>> without_names("Add 'Add_65' adds the channels to another value, '715': a stream")
    'Add adds the channels to another value: a stream'
    """
    return re.sub(r",? '[^']*',?", "", reason)


def last_line(text: str) -> str:
    """The last line of what a process wrote."""
    return (text.strip().splitlines() or [""])[-1]


def run_missing(
    bench: Bench, nets: Iterable[str], found: Found, only: Iterable[str] = ("*",)
) -> None:
    """Run all cells that have no result for the code as it is now; keep each at once."""
    for net in nets:
        try:
            cells = bench.cells(net)
        except subprocess.CalledProcessError as error:
            print(f"{net}: no inputs: {last_line(error.stderr)}", file=sys.stderr)
            continue
        for cell in cells:
            if found.get(cell) is None and any(fnmatch(cell.key, f"{glob}*") for glob in only):
                found.forget(older(cell, found))
                found.add(cell, bench.run(cell))
                print(f"{cell.key}: {found.get(cell)}", file=sys.stderr, flush=True)


def older(cell: Cell, found: Found) -> list[Cell]:
    """The same cell on other states of the code."""
    keys = (key.split(" | ") for key in found.results)
    return [Cell(*parts) for parts in keys if parts[:2] == [cell.net, cell.command]]
