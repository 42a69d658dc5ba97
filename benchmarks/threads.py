"""What does a second thread gain on idle cores, and cost on busy ones?

`python -m benchmarks.threads` times typical work on layers of several sizes with one thread and
with as many as there are cores, first on the machine as it is (which should be idle), then with a
busy loop on every core: one product W Wᵀ, a merge tree, an evaluation of the objective that L-BFGS
takes for each step, and a run of 1,024 samples in onnxruntime. `onnxfde/threads.py` decides by the
number of weights; the last column says what it takes for linear algebra.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from os import cpu_count

import numpy as np
import onnxruntime
from threadpoolctl import threadpool_limits

from benchmarks.common import table
from benchmarks.common.processes import load_note
from benchmarks.common.random_network import random_network
from onnxfde.neurons.merge_order import merge_tree
from onnxfde.neurons.objective import Neurons, Objective
from onnxfde.threads import SMALL_PROBLEM

SHAPES = ("64-256-10", "128-512-128", "256-1024-256", "512-1024-512", "512-2048-512")
"""Layers on both sides of `SMALL_PROBLEM`."""
SAMPLES = 1024
"""Rows of a run in onnxruntime: those of a comparison."""
KEPT = 4
"""The objective is evaluated with a quarter of the neurons; chosen."""
RIDGE = 1e-6
"""The ridge of that objective; it does not change the time."""
LEAST_SECONDS = 0.25
"""How long work is repeated at least; chosen so that everything takes less than 3 minutes."""
SPIN = "while True: pass"
HEADER = "work | d-n-m | weights | idle: 1 thread | idle: all | busy: 1 thread | busy: all | takes"
Work = Callable[[], object]


def kernels(shape: str) -> dict[str, Callable[[int], Work]]:
    """Typical work on a layer: each takes the number of threads and gives what to time."""
    inputs, neurons, outputs = map(int, shape.split("-"))
    rng = np.random.default_rng(0)
    rows, outgoing = rng.normal(size=(neurons, inputs + 1)), rng.normal(size=(outputs, neurons))
    objective = Objective(((Neurons(rows, outgoing), 1.0),), RIDGE)
    x = rng.normal(size=(SAMPLES, inputs)).astype(np.float32)

    def session(threads: int) -> Work:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        raw = random_network(inputs, neurons, outputs).SerializeToString()
        ready = onnxruntime.InferenceSession(raw, options, ["CPUExecutionProvider"])
        return lambda: ready.run(None, {"x": x})

    return {
        "product W Wᵀ": lambda _: lambda: rows @ rows.T,
        "merge tree": lambda _: lambda: merge_tree(rows, outgoing),
        "one evaluation for L-BFGS": lambda _: lambda: objective.fit(rows[: neurons // KEPT]),
        "run in onnxruntime": session,
    }


def milliseconds(work: Work) -> float:
    """The median wall time of some runs, after one that warms up."""
    work()
    spent = list[float]()
    while not spent or sum(spent) < LEAST_SECONDS:
        start = time.perf_counter()
        work()
        spent.append(time.perf_counter() - start)
    return 1000 * statistics.median(spent)


def figures(shape: str, cores: int) -> Iterator[tuple[str, list[float]]]:
    """The name of each work and its time with one thread and with all."""
    for name, make in kernels(shape).items():
        found = []
        for threads in (1, cores):
            with threadpool_limits(threads, user_api="blas"):
                found.append(milliseconds(make(threads)))
        yield name, found


@contextmanager
def busy_cores(cores: int) -> Iterator[None]:
    """A busy loop on every core."""
    loops = [subprocess.Popen([sys.executable, "-c", SPIN]) for _ in range(cores)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def weights(shape: str) -> int:
    """How many weights and biases a layer d-n-m has."""
    inputs, neurons, outputs = map(int, shape.split("-"))
    return (inputs + 1 + outputs) * neurons + outputs


def rows_of(shapes: tuple[str, ...], cores: int) -> list[tuple[object, ...]]:
    """One row per work and layer, small layers first."""
    idle = {(shape, name): found for shape in shapes for name, found in figures(shape, cores)}
    with busy_cores(cores):
        busy = {(shape, name): found for shape in shapes for name, found in figures(shape, cores)}
    rows = list[tuple[object, ...]]()
    for (shape, name), found in sorted(idle.items(), key=lambda item: item[0][1]):
        times = [
            f"{ms:.3g} ms" if ms < 1000 else f"{ms:.0f} ms" for ms in (*found, *busy[shape, name])
        ]
        taken = "1 thread" if weights(shape) < SMALL_PROBLEM else "all"
        taken = "all (its own choice)" if "onnxruntime" in name else taken
        rows.append((name, shape, f"{weights(shape):,}", *times, taken))
    return rows


def main() -> None:
    """Measure and write the page."""
    note, cores = load_note(), cpu_count() or 1
    section = table.Section("", HEADER, rows_of(SHAPES, cores))
    title = f"One thread and all {cores}, on idle and on busy cores"
    table.write_sections(__file__, title, [section], note)


if __name__ == "__main__":
    main()
