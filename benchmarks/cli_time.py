"""CPU time of a whole command, beside onnxslim on the same file in the same run.

`python -m benchmarks.cli_time` (needs `pip install onnxslim`): a 64-520-64 network with x² (269
KB), optimized with verification by `onnxfde` and without a check by `onnxslim`, in turns; the
medians. The last rows are `import onnx`, `import onnxfde` and `onnxfde --help`, and `optimize`
inside a process.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import onnx

import onnxfde
from benchmarks import table

ROUNDS = 9
NODES = """h = Gemm <transB = 1> (x, W, b) s = Mul(h, h) y = Gemm <transB = 1> (s, V, c)"""


def network(d: int, n: int, m: int) -> onnx.ModelProto:
    """d-n-m with x² and random weights."""
    rng = np.random.default_rng(0)
    values = f"g (float[N,{d}] x) => (float[N,{m}] y)"
    head = '<ir_version: 9, opset_import: ["": 17]>'
    model = onnx.parser.parse_model(f"{head} {values} {{ {NODES} }}")
    for name, shape in {"W": (n, d), "b": (n,), "V": (m, n), "c": (m,)}.items():
        array = rng.normal(size=shape).astype(np.float32) / np.float32(np.sqrt(shape[-1]))
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    return model


def cpu_seconds(command: list[str]) -> float:
    """User and system time of a command."""
    before = os.times()
    subprocess.run(command, check=True, capture_output=True)
    after = os.times()
    return (
        after.children_user + after.children_system - before.children_user - before.children_system
    )


def milliseconds() -> float:
    """`optimize` without verification on 6-120-6, in process, the best of many."""
    model = network(6, 120, 6)
    times = []
    for _ in range(20):
        start = time.perf_counter()
        onnxfde.optimize(model, 0.1, quotient="refit", verify=False)
        times.append(time.perf_counter() - start)
    return 1000 * statistics.median(times)


def main() -> None:
    """Commands in turns."""
    scripts = Path(sys.executable).parent
    with tempfile.TemporaryDirectory() as folder:
        path, out = f"{folder}/in.onnx", f"{folder}/out.onnx"
        onnx.save(network(64, 520, 64), path)
        size = Path(path).stat().st_size
        commands = {
            "onnxslim IN OUT (no check)": [f"{scripts}/onnxslim", path, out],
            "onnxfde optimize IN OUT --quotient refit (verified)": [
                *(f"{scripts}/onnxfde", "optimize", path, out, "--quotient", "refit")
            ],
            'python -c "import onnx"': [sys.executable, "-c", "import onnx"],
            'python -c "import onnxfde"': [sys.executable, "-c", "import onnxfde"],
            "onnxfde --help": [f"{scripts}/onnxfde", "--help"],
        }
        times: dict[str, list[float]] = {name: [] for name in commands}
        for _ in range(ROUNDS):
            for name, command in commands.items():
                times[name].append(cpu_seconds(command))
    rows = [(name, f"{statistics.median(t):.2f} s") for name, t in times.items()]
    rows.append(
        (
            "optimize(6-120-6, quotient=refit) in process, not verified, wall time",
            f"{milliseconds():.1f} ms",
        )
    )
    title = f"CPU time of a whole command on a {size:,}-byte network"
    table.write(__file__, title, f"command | median of {ROUNDS}, in turns", rows)


if __name__ == "__main__":
    main()
