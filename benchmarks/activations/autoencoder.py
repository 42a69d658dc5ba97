"""MLPerf Tiny's anomaly detector, 640-128×4-8-128×4-640 with ReLU, in three spellings.

The same network with BatchNormalization folded, as a node, and as tf2onnx leaves it. There are no
recordings here, so this is about fidelity only: inputs are assumed to lie between −80 and 40 dB,
or are made spectra, and the three spellings should end with the same number of neurons.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.activations.cells import Cell
from benchmarks.activations.methods import LIMIT
from benchmarks.common import table
from benchmarks.common.folders import BENCHMARKS, shared_file
from benchmarks.common.found_cells import Found, Result
from benchmarks.common.measured_commands import measured_command
from onnxfde.numbers import Array

VARIANTS = ("ad_autoencoder", "ad_autoencoder_bn", "ad_autoencoder_tf2onnx")
EPSILONS = ("0", "0.01", "0.1")
FRAMES, BANDS = 5, 128
"""An input is so many frames of log-mel bands."""
DECIBELS = (-80.0, 40.0)
ROWS = 4000
"""Made spectra to fit to; chosen."""
HEADER = "variant | inputs | ε | neurons before | neurons | by layer | relative L2 | CPU s"


def made_spectra(rows: int, seed: int) -> Array:
    """Random smooth spectra in dB that change little from frame to frame."""
    rng = np.random.default_rng(seed)
    steps = rng.normal(size=(rows, BANDS))
    shape = np.cumsum(steps - steps.mean(axis=1, keepdims=True), axis=1)
    level = rng.normal(-25, 12, (rows, 1, 1))
    noise = rng.normal(0, 3, (rows, FRAMES, BANDS))
    frames = level + shape[:, None, :] + noise
    return np.asarray(np.clip(frames, *DECIBELS).reshape(rows, -1), np.float32)


def detector_cells() -> Iterator[Cell]:
    """Each variant at each ε, with a range and with made spectra."""
    for inputs in ("range", "made spectra"):
        for eps in EPSILONS:
            yield from (Cell(variant, inputs, f"ε {eps}") for variant in VARIANTS)


def measured_detector(cell: Cell) -> Result:
    """Run the command a user would type."""
    model = shared_file(f"models/{cell.net}.onnx")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        words = ["optimize", str(model), "small.onnx", "--eps", cell.size.split()[1]]
        if cell.method == "range":
            words.append("--input-range={:g}:{:g}".format(*DECIBELS))
        else:
            np.save(folder / "rows.npy", made_spectra(ROWS, seed=0))
            words += ["--data", "rows.npy"]
        command = [sys.executable, "-m", "onnxfde", *words, "--json", "report.json", "--quiet"]
        took = measured_command(command, folder, BENCHMARKS.parent, 1, LIMIT)
        words[1] = model.name
        shown = {"command": " ".join(["onnxfde", *words]), "cpu": took.cpu}
        if took.code != 0:
            return {**shown, "failed": took.last_line or "stopped"}
        return {**shown, **counted(json.loads((folder / "report.json").read_text()))}


def counted(report: Result) -> Result:
    """The neurons of every layer before and after, and the measured change."""
    layers = report["layers"]
    return {
        "before": [layer["neurons_before"] for layer in layers],
        "neurons": [layer["neurons_after"] for layer in layers],
        "relative": (report["verification"] or {}).get("relative_l2"),
    }


def detector_row(cell: Cell, result: Result) -> tuple[object, ...]:
    """One line of the table."""
    eps = cell.size.split()[1]
    if "failed" in result:
        return cell.net, cell.method, eps, "–", "–", result["failed"], "–", f"{result['cpu']:.1f}"
    relative = "–" if result["relative"] is None else f"{result['relative']:.4f}"
    return (
        cell.net, cell.method, eps, sum(result["before"]), sum(result["neurons"]),
        " ".join(map(str, result["neurons"])), relative, f"{result['cpu']:.1f}",
    )  # fmt: skip


def sections(found: Found) -> Iterator[table.Section]:
    """The table, if anything was run."""
    rows = [detector_row(cell, r) for cell in detector_cells() if (r := found.get(cell))]
    if rows:
        yield table.Section("MLPerf Tiny's anomaly detector", HEADER, rows)
