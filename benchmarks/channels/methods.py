"""The methods to compare, and one cell of the tables: a network made smaller by one of them."""

from __future__ import annotations

import re
import sys
import tempfile
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import onnx

from benchmarks.channels import peers, torch_copy
from benchmarks.channels.cells import DEFAULT, PEERS, Cell
from benchmarks.channels.subjects import Subject
from benchmarks.common.folders import BENCHMARKS
from benchmarks.common.found_cells import Result
from benchmarks.common.measured_commands import measured_command
from benchmarks.common.scores import score
from onnxfde.graph.cost import multiply_adds, one_sample
from onnxfde.graph.model import Graph
from onnxfde.graph.size import count_parameters
from onnxfde.numbers import Array

LIMIT = 1800.0
"""Seconds after which a command is stopped and its cell says so; chosen for a busy machine."""
PART = 250
"""Images of one run in onnxruntime; chosen."""


def size_words(size: str) -> list[str]:
    """A size as options of the command line."""
    share, _, what = size.partition(" ")
    return {"MACs": ["--max-macs", share], "of each": ["--keep", share], "0": ["--eps", "0"]}[what]


def method_words(method: str) -> list[str]:
    """A method of onnxfde as options of the command line."""
    align = re.search(r"align (\d)", method)
    if method.startswith("no loss"):
        words = ["--input-range", "0:1"] if "0:1" in method else []
        return [*words, "--align", align[1]] if align else words
    if method == DEFAULT:
        return []
    return ["--quotient", method.partition(",")[0], "--align", align[1] if align else "1"]


def images_of(method: str) -> int:
    """How many images a method is fitted to; 0: none."""
    count = re.search(r"([\d,]+) images", method)
    return int(count[1].replace(",", "")) if count else 0


def shrunk_by_onnxfde(subject: Subject, cell: Cell, target: Path) -> Result:
    """Run the command a user would type."""
    with tempfile.TemporaryDirectory() as name:
        folder, count = Path(name), images_of(cell.method)
        words = ["optimize", str(subject.model), str(target), *size_words(cell.size)]
        if count:
            np.save(folder / "images.npy", subject.drawn(count, cell.draw))
            words += ["--data", "images.npy", *subject.words, "--seed", str(cell.draw)]
        words += method_words(cell.method)
        command = [sys.executable, "-m", "onnxfde", *words, "--quiet"]
        took = measured_command(command, folder, BENCHMARKS.parent, 1, LIMIT)
    words[1:3] = [subject.model.name, "small.onnx"]
    found = {"command": " ".join(["onnxfde", *words]), "cpu": took.cpu, "megabytes": took.megabytes}
    return found if took.code == 0 else {**found, "failed": took.last_line or "stopped"}


Prune = Callable[[Path, Array, str], onnx.ModelProto]
"""A file, inputs to fit to and a size ↦ a smaller model."""
PRUNE: dict[str, Prune] = {
    "structured magnitude": peers.magnitude_pruned,
    "Torch-Pruning": torch_copy.torch_pruned,
    "Torch-Pruning, stream too": torch_copy.torch_pruned_everywhere,
    "onnxsim": peers.onnxsim_pruned,
    "onnxsim Wanda, 500 images": peers.onnxsim_wanda_pruned,
    "interpolative + refit, 500 images": peers.interpolated,
}


def shrunk_by_peer(subject: Subject, cell: Cell, target: Path) -> Result:
    """Apply another method in this process."""
    x = subject.feed(subject.drawn(images_of(cell.method) or 1, cell.draw))
    start = time.process_time()
    try:
        model = PRUNE[cell.method](subject.model, x, cell.size)
    except peers.NotPossibleError as reason:
        return {"failed": str(reason), "cpu": time.process_time() - start}
    seconds = time.process_time() - start
    onnx.save(model, target)
    return {"cpu": seconds}


def measured(subject: Subject, cell: Cell, folder: Path) -> Result:
    """Run one cell; its model is kept in the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    target = model_path(folder, cell)
    shrink = shrunk_by_peer if cell.method in PEERS else shrunk_by_onnxfde
    took = shrink(subject, cell, target)
    return took if "failed" in took else {**took, **judged(subject, target), **original(subject)}


def model_path(folder: Path, cell: Cell) -> Path:
    """Where the model of a cell is kept."""
    return folder / f"{re.sub(r'[^0-9A-Za-z]+', '-', cell.key)}.onnx"


def judged(subject: Subject, path: Path) -> Result:
    """Size and quality of a model."""
    (x, y), reference = subject.test(), original_outputs(subject)
    outputs = outputs_in_parts(path, x)
    vary = np.linalg.norm(reference - reference.mean(axis=0))
    change = outputs - reference
    return {
        **sizes(path),
        "error": float(np.linalg.norm(change) / vary),
        "max_change": float(np.abs(change).max()),
        **({"score": score(outputs, y)} if y.size else {}),
    }


def sizes(path: Path) -> Result:
    """Parameters, bytes and multiply-adds of one sample."""
    model = onnx.load(path)
    macs = multiply_adds(model, one_sample(Graph(model)))
    return {"parameters": count_parameters(model), "macs": macs, "bytes": path.stat().st_size}


@cache
def original(subject: Subject) -> Result:
    """Size and quality of a network as it was."""
    found, (_, y) = {f"all_{name}": n for name, n in sizes(subject.model).items()}, subject.test()
    return {**found, **({"base": score(original_outputs(subject), y)} if y.size else {})}


@cache
def original_outputs(subject: Subject) -> Array:
    """What the original network computes on the images to measure on."""
    return outputs_in_parts(subject.model, subject.test()[0])


def outputs_in_parts(path: Path, x: Array) -> Array:
    """What a model computes with one thread, a part of the images at a time."""
    from onnxruntime import InferenceSession, SessionOptions

    options = SessionOptions()
    options.intra_op_num_threads = 1
    session = InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    runs = [session.run(None, {name: x[at : at + PART]})[0] for at in range(0, len(x), PART)]
    return np.concatenate(runs)
