"""The times of all sizes of a model, measured in turns on this machine when nothing else runs."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from onnxfde import __version__
from onnxfde.errors import OnnxfdeError
from onnxfde.machines.benchmark import bench
from onnxfde.options import Range
from onnxfde.pages.sweep_rows import SweepRow
from onnxfde.sweeping.results_folder import ResultsFolder

SECONDS_EACH = 0.3
"""Measuring time for each size of a model. Chosen: a model of 1 ms then runs 300 times."""


def timed_rows(
    rows: Sequence[SweepRow], model: Path, results: ResultsFolder, limits: Range
) -> list[SweepRow]:
    """The rows of one model, the original first, with their times; unknown where it cannot run.

    Times are remembered if all could be measured; else the next sweep tries again.
    """
    made = [row for row in rows if row.file is not None]
    if len(made) == 0 or rows[0].file is not None:
        return list(rows)
    text = " ".join([__version__, str(limits), *(str(row.sha256) for row in rows)])
    key = hashlib.sha256(f"latency {text}".encode()).hexdigest()
    times = results.known.get(key, {}).get("times", [])
    if not times or not all(times):
        files = [model, *(results.path / str(row.file) for row in made)]
        times = times_of(files, limits)
        record = {"key": key, "row": {}, "times": times}
        results.remember(record)
        if all(times):
            results.append(record)
    names = [rows[0].size, *(row.size for row in made)]
    known = dict(zip(names, times, strict=True))
    return [replace(row, **known.get(row.size, {})) for row in rows]


def times_of(files: Sequence[Path], limits: Range) -> list[dict[str, Any]]:
    """The times of models, by the columns of a row."""
    try:
        found = bench(files, seconds=SECONDS_EACH * len(files), input_range=limits).targets[0]
    except OnnxfdeError:
        return [{} for _ in files]
    times: list[dict[str, Any]] = []
    for line in found.lines:
        first = line.latencies[0] if line.latencies else None
        known = first is not None and first.p50 is not None and first.speedup is not None
        times.append(
            {"latency_ms": 1e3 * first.p50, "speedup": first.speedup.value}
            if known and first and first.p50 and first.speedup
            else {}
        )
    return times if len(times) == len(files) else [{} for _ in files]
