"""How much time and memory does `--quotient minimal` take?

`python -m benchmarks.minimal_time` shrinks networks d-n-m with x² and random float32 weights
(normal, over √ of the fan-in: nothing in them is redundant) to a quarter of their neurons, with no
data and no verification. Each run has a fresh process: one with the linear algebra's default number
of threads, one with a single thread. Peak memory includes the interpreter and the libraries, which
the first line shows alone. The last column is the error of the layer's output.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from typing import Any

import onnxfde
from benchmarks.common import table
from benchmarks.common.processes import load_note, peak_megabytes, run_apart
from benchmarks.common.random_network import random_network

KEEP = 0.25
"""The share of neurons to keep; chosen."""
LIMIT = 1800.0
"""Seconds after which a run is given up; chosen."""
SHAPES = {
    "All together": ("16-128-16", "32-256-32", "64-512-64", "128-1024-128", "256-2048-256"),
    "More neurons": tuple(f"64-{n}-64" for n in (128, 256, 512, 1024, 2048)),
    "More inputs": tuple(f"{d}-512-64" for d in (16, 32, 64, 128, 256)),
    "More outputs": tuple(f"64-512-{m}" for m in (1, 16, 64, 256)),
}
"""Headings of the tables and their networks d-n-m."""
HEADER = "d-n-m | neurons | seconds | seconds, 1 thread | peak MB | error"


def run_one(shape: str) -> dict[str, Any]:
    """Shrink one network in this process."""
    model = random_network(*map(int, shape.split("-")))
    start = time.perf_counter()
    result = onnxfde.optimize(model, keep=KEEP, quotient="minimal", verify=False)
    seconds = time.perf_counter() - start
    (layer,) = result.report.layers
    return {
        "seconds": seconds,
        "neurons": f"{layer.neurons_before} → {layer.neurons_after}",
        "error": layer.error,
        "megabytes": peak_megabytes(),
    }


def run_in_time(shape: str, threads: int | None) -> dict[str, Any] | None:
    """The figures of one network from a fresh process, if it ends within the limit."""
    try:
        return run_apart("benchmarks.minimal_time", shape, threads=threads, timeout=LIMIT)
    except subprocess.TimeoutExpired:
        return None


def shape_row(shape: str) -> tuple[object, ...]:
    """One network: with the default number of threads, and with one."""
    runs = [run_in_time(shape, threads) for threads in (None, 1)]
    seconds = [f"{run['seconds']:.2f}" if run else f"more than {LIMIT:.0f}" for run in runs]
    done = next((run for run in runs if run), None)
    if done is None:
        return shape, "–", *seconds, "–", "–"
    row = (shape, done["neurons"], *seconds, f"{done['megabytes']:.0f}", f"{done['error']:.3f}")
    print(*row, file=sys.stderr)
    return row


def main() -> None:
    """All networks; one, as JSON, if it is named on the command line."""
    if len(sys.argv) == 2:
        print(json.dumps(run_one(sys.argv[1])))
        return
    note = load_note()
    idle = ("the libraries", "–", "–", "–", f"{peak_megabytes():.0f}", "–")
    sections = [table.Section("Before any work", HEADER, [idle])]
    sections += [
        table.Section(heading, HEADER, [shape_row(shape) for shape in shapes])
        for heading, shapes in SHAPES.items()
    ]
    table.write_sections(__file__, "The time of minimal", sections, note)


if __name__ == "__main__":
    main()
