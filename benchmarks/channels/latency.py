"""Times and ARM instructions of some networks and of what is left of them, side by side.

All models of a network take turns in one run of `onnxfde.bench`, so that their ratios hold on a
machine whose speed changes. A cell is one network on one machine.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnxfde
from benchmarks.channels.cells import Cell
from benchmarks.channels.methods import measured, model_path, sizes
from benchmarks.channels.subjects import DETECTOR, RESNET8, RESNET20, Subject
from benchmarks.common.found_cells import Result
from benchmarks.common.processes import load_note

SECONDS = 15.0
"""How long each batch size is measured; chosen."""
TIMEOUT = 3600.0
"""Seconds after which a machine is given up; chosen."""
PLACES = {
    "cpu, 1 thread": ("cpu", 1, (1, 16)),
    "cpu, 2 threads": ("cpu", 2, (1, 16)),
    "Cortex-A76": ("arm64:cortex-a76", 1, (1,)),
    "Cortex-A53": ("arm64:cortex-a53", 1, (1,)),
}
"""Target, threads and batch sizes by name."""
ALIGNMENTS = ("refit, 500 images", "refit, 500 images, align 4", "refit, 500 images, align 8")
"""The methods whose models tell which alignment pays."""
SIZE = "50% MACs"
WITHOUT_LOSS = ("no loss, inputs in 0:1", "no loss, inputs in 0:1, align 8")


@dataclass(frozen=True)
class LatencyCell:
    """A network on a machine."""

    net: str
    place: str

    @property
    def key(self) -> str:
        """Its name in the file of results."""
        return f"{self.net} | latency | {self.place}"


def latency_cells() -> Iterator[LatencyCell]:
    """All of them."""
    for net in (RESNET20[0], RESNET8[0], DETECTOR[0]):
        yield from (LatencyCell(net, place) for place in PLACES)


def variants(net: str) -> list[Cell]:
    """The smaller models that are timed."""
    if net == DETECTOR[0]:
        return [Cell(net, method, "ε 0") for method in WITHOUT_LOSS]
    return [Cell(net, method, SIZE) for method in ALIGNMENTS]


def measured_latency(subject: Subject, cell: LatencyCell, folder: Path) -> Result:
    """Time the original and its smaller models; those that are missing are made first."""
    cells, note = variants(cell.net), load_note()
    for small in cells:
        if not model_path(folder, small).exists():
            measured(subject, small, folder)
    files = [subject.model, *(model_path(folder, small) for small in cells)]
    target, threads, batches = PLACES[cell.place]
    found = onnxfde.bench(
        files, targets=target, batches=batches, threads=threads, seconds=SECONDS, timeout=TIMEOUT
    )
    (place,) = json.loads(found.to_json())["targets"]
    names = ["original", *(f"{small.method}, {small.size}" for small in cells)]
    lines = zip(names, files, place["lines"], strict=True)
    models = {name: {**sizes(path), "runs": runs_of(line)} for name, path, line in lines}
    return {"machine": place["machine"], "note": note, "models": models}


def runs_of(line: dict[str, Any]) -> dict[str, Result]:
    """Ratio and figure by batch size."""
    kept = ("speedup", "p50", "instructions", "error")
    return {str(run["batch"]): {name: run[name] for name in kept} for run in line["latencies"]}
