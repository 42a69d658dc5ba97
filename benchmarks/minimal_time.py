"""How long `--quotient minimal` takes, and how much memory.

`python -m benchmarks.minimal_time`: networks d-n-m with x² and random float32 weights (normal, over
√ of the fan-in: nothing in them is redundant), a quarter of the neurons kept, nothing known of the
inputs, no verification. Each time is measured in a process of its own, with as many threads as the
linear algebra takes by itself and with one; peak memory includes the interpreter and the libraries,
which the first line shows alone. The last column is the error that is left in the layer's output.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from typing import Any

import onnxfde
from benchmarks import table
from benchmarks.cli_time import network

KEEP = 0.25
LIMIT = 1800.0
THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
TOGETHER = ("16-128-16", "32-256-32", "64-512-64", "128-1024-128", "256-2048-256")
BY_NEURONS = tuple(f"64-{n}-64" for n in (128, 256, 512, 1024, 2048))
BY_INPUTS = tuple(f"{d}-512-64" for d in (16, 32, 64, 128, 256))
BY_OUTPUTS = tuple(f"64-512-{m}" for m in (1, 16, 64, 256))


def run_one(shape: str) -> dict[str, Any]:
    """Shrink one network."""
    model = network(*map(int, shape.split("-")))
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


def peak_megabytes() -> float:
    """The most memory this process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def found(shape: str, threads: int | None) -> dict[str, Any] | None:
    """The figures of one shape from a process of its own, if it ends in time."""
    command = [sys.executable, "-m", "benchmarks.minimal_time", shape]
    limits = {} if threads is None else dict.fromkeys(THREADS, str(threads))
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=True,
            timeout=LIMIT,
            env={**os.environ, **limits},
        )
    except subprocess.TimeoutExpired:
        return None
    figures: dict[str, Any] = json.loads(done.stdout)
    return figures


def measured(shape: str) -> tuple[object, ...]:
    """One row."""
    runs = [found(shape, threads) for threads in (None, 1)]
    seconds = [f"{run['seconds']:.2f}" if run else f"more than {LIMIT:.0f}" for run in runs]
    done = next((run for run in runs if run), None)
    if done is None:
        return shape, "–", *seconds, "–", "–"
    row = (shape, done["neurons"], *seconds, f"{done['megabytes']:.0f}", f"{done['error']:.3f}")
    print(*row, file=sys.stderr)
    return row


def main() -> None:
    """All shapes."""
    if len(sys.argv) == 2:
        print(json.dumps(run_one(sys.argv[1])))
        return
    load = os.getloadavg()[0]
    nothing: tuple[object, ...] = ("the libraries", "–", "–", "–", f"{peak_megabytes():.0f}", "–")
    header = "d-n-m | neurons | seconds | seconds, 1 thread | peak MB | error"
    groups = {
        "All together": TOGETHER,
        "More neurons": BY_NEURONS,
        "More inputs": BY_INPUTS,
        "More outputs": BY_OUTPUTS,
    }
    sections = [
        table.Section(heading, header, [measured(shape) for shape in shapes])
        for heading, shapes in groups.items()
    ]
    sections.insert(0, table.Section("Before any work", header, [nothing]))
    note = f"Load when it began: {load:.1f} on {os.cpu_count()} cores."
    table.write_sections(__file__, "The time of minimal", sections, note)


if __name__ == "__main__":
    main()
