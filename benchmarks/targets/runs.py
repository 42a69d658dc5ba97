"""The command a user would type, and what comes out of it on rows that it never saw."""

from __future__ import annotations

import json
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from benchmarks.common.folders import BENCHMARKS
from benchmarks.common.found_cells import Result
from benchmarks.common.measured_commands import measured_command
from benchmarks.common.scores import score
from benchmarks.targets.subjects import Subject
from onnxfde.graph.cost import multiply_adds, one_sample
from onnxfde.graph.model import Graph
from onnxfde.graph.size import count_parameters
from onnxfde.numbers import Array

LIMIT = 1800.0
"""Seconds after which a command is stopped; chosen for a busy machine."""
PART = 250
"""Rows of one run in onnxruntime, where the network leaves that open; chosen."""


def optimized(
    subject: Subject, words: list[str], target: Path, rows: slice = slice(None)
) -> Result:
    """Run `onnxfde optimize` with one thread; what its report says, and what it took."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        inputs = onnx.load(subject.model, load_external_data=False).graph.input
        arrays: dict[str, Any] = {inputs[0].name: subject.x[rows], "y": subject.y[rows]}
        np.savez(folder / "rows.npz", **arrays)
        options = ["--data", "rows.npz", *subject.words, *words]
        shown = ["onnxfde", "optimize", subject.model.name, "small.onnx", *options]
        command = [sys.executable, "-m", "onnxfde", "optimize", str(subject.model), str(target),
                   *options, "--json", "report.json", "--quiet"]  # fmt: skip
        took = measured_command(command, folder, BENCHMARKS.parent, 1, LIMIT)
        found = {"command": " ".join(shown), "cpu": took.cpu}
        if took.code != 0:
            return {**found, "failed": took.last_line or "stopped"}
        report = json.loads((folder / "report.json").read_text())
    counts = {layer["name"]: layer["neurons_after"] for layer in report["layers"]}
    goal = report["goal"] or {}
    reached = {name: goal.get(name) for name in ("reached", "chosen_by", "tries")}
    return {**found, **reached, "counts": counts}


def sizes(path: Path) -> Result:
    """Parameters, multiply-adds and bytes."""
    model = onnx.load(path)
    macs = multiply_adds(model, one_sample(Graph(model)))
    return {"params": count_parameters(model), "macs": macs, "bytes": path.stat().st_size}


def judged(subject: Subject, model: Path | onnx.ModelProto) -> Result:
    """The change of the outputs, and the accuracy or squared error, on the test rows."""
    before, after = original_outputs(subject), outputs(model, subject.x_test)
    vary = np.linalg.norm(before - before.mean(axis=0))
    return {
        "error": float(np.linalg.norm(after - before) / vary),
        "score": score(after, subject.y_test),
    }


@cache
def original_outputs(subject: Subject) -> Array:
    """What the original computes on the test rows."""
    return outputs(subject.model, subject.x_test)


def outputs(model: Path | onnx.ModelProto, x: Array) -> Array:
    """What a model computes with one thread, in float64."""
    from onnxruntime import InferenceSession, SessionOptions

    options = SessionOptions()
    options.intra_op_num_threads = 1
    source = str(model) if isinstance(model, Path) else model.SerializeToString()
    session = InferenceSession(source, options, providers=["CPUExecutionProvider"])
    (first,) = session.get_inputs()
    part = first.shape[0] if isinstance(first.shape[0], int) else PART
    runs = [session.run(None, {first.name: x[at : at + part]})[0] for at in range(0, len(x), part)]
    return np.concatenate(runs).astype(np.float64)
