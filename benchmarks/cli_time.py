"""How much CPU time does a whole command take, beside onnxslim on the same file?

`python -m benchmarks.cli_time` (needs `pip install onnxslim`) runs `onnxfde optimize` with
verification and `onnxslim` without a check on a 64-520-64 network with x² (269 KB), in turns, and
reports medians. Further rows: `import onnx`, `import onnxfde`, `onnxfde --help`, and `optimize`
called in this process.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

import onnx

import onnxfde
from benchmarks.common import table
from benchmarks.common.random_network import random_network

ROUNDS = 9
"""How often each command runs; chosen."""
REPEATS = 20
"""How often `optimize` runs in this process; chosen."""


def cpu_seconds(command: list[str]) -> float:
    """User and system time of a command."""
    before = os.times()
    subprocess.run(command, check=True, capture_output=True)
    after = os.times()
    return (
        after.children_user + after.children_system - before.children_user - before.children_system
    )


def optimize_milliseconds() -> float:
    """Wall time of `optimize` without verification on 6-120-6, in this process: the median."""
    model = random_network(6, 120, 6)
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        onnxfde.optimize(model, 0.1, quotient="refit", verify=False)
        times.append(time.perf_counter() - start)
    return 1000 * statistics.median(times)


def commands(path: str, out: str) -> dict[str, list[str]]:
    """What to run, by the name it has in the table."""
    scripts = Path(sys.executable).parent
    optimize = [f"{scripts}/onnxfde", "optimize", path, out, "--quotient", "refit"]
    return {
        "onnxslim IN OUT (no check)": [f"{scripts}/onnxslim", path, out],
        "onnxfde optimize IN OUT --quotient refit (verified)": optimize,
        'python -c "import onnx"': [sys.executable, "-c", "import onnx"],
        'python -c "import onnxfde"': [sys.executable, "-c", "import onnxfde"],
        "onnxfde --help": [f"{scripts}/onnxfde", "--help"],
    }


def main() -> None:
    """Run the commands in turns."""
    times: dict[str, list[float]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "in.onnx"
        onnx.save(random_network(64, 520, 64), path)
        size = path.stat().st_size
        for _ in range(ROUNDS):
            for name, command in commands(str(path), f"{folder}/out.onnx").items():
                times[name].append(cpu_seconds(command))
    rows = [(name, f"{statistics.median(t):.2f} s") for name, t in times.items()]
    inside = "optimize(6-120-6, quotient=refit) in process, not verified, wall time"
    rows.append((inside, f"{optimize_milliseconds():.1f} ms"))
    title = f"CPU time of a whole command on a {size:,}-byte network"
    table.write(__file__, title, f"command | median of {ROUNDS}, in turns", rows)


if __name__ == "__main__":
    main()
