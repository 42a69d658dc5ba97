"""The methods to compare, and one cell of the tables: a network made smaller by one of them."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path

import numpy as np
import onnx

from benchmarks.activations import torch_pruned
from benchmarks.activations.subjects import Subject, judged
from benchmarks.common.folders import BENCHMARKS
from benchmarks.common.found_cells import Result
from benchmarks.common.measured_commands import measured_command
from benchmarks.common.scores import outputs_of
from onnxfde.graph.size import count_parameters
from onnxfde.numbers import Array

LIMIT = 900.0
"""Seconds after which a command is stopped and its cell says so; chosen."""
CALIBRATION = 1000
"""Inputs for the other tools that want some: as many as `onnxfde` gets in the middle column."""
PART = 2500
"""Rows of one run in onnxruntime, which keeps a transformer's values small; chosen."""


@dataclass(frozen=True)
class Merged:
    """onnxfde with a quotient and the first `rows` training inputs; 0: without data."""

    quotient: str
    rows: int
    more: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """As the tables call it."""
        known = f"{self.rows:,} inputs" if self.rows else "no data"
        return " ".join([f"{self.quotient}, {known}", *self.more])


Method = Callable[[Subject, str], Result]


def shrunk_by_onnxfde(subject: Subject, method: Merged, size: str) -> Result:
    """Run the command a user would type, and judge the file that it writes."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        words = ["optimize", str(subject.model), "small.onnx", *size_words(size)]
        if method.rows:
            np.save(folder / "rows.npy", subject.fit(method.rows))
            words += ["--data", "rows.npy"]
        words += ["--quotient", method.quotient, *method.more]
        command = [sys.executable, "-m", "onnxfde", *words, "--quiet"]
        took = measured_command(command, folder, BENCHMARKS.parent, 1, LIMIT)
        words[1] = subject.model.name
        shown = {"command": " ".join(["onnxfde", *words]), "cpu": took.cpu}
        if took.code != 0:
            return {**shown, "failed": took.last_line or "stopped"}
        return {**shown, **judged_model(subject, onnx.load(folder / "small.onnx"))}


def size_words(size: str) -> list[str]:
    """A size as options of the command line: a share of every layer, a count, or ε."""
    if size.startswith("ε"):
        return ["--eps", size.removeprefix("ε ")]
    return ["--keep", size] if size.endswith("%") else ["--neurons", size]


def shrunk_by_onnxsim(prune: str, subject: Subject, size: str) -> Result:
    """Prune the ONNX file with a function of onnxsim; all layers by the same share."""
    model = onnx.load(subject.model)
    options = {}
    if prune == "apply_structured_wanda_pruning":
        options["calibration_data"] = [{"x": subject.fit(CALIBRATION)}]
    neurons = hidden_widths(subject)[0]
    sparsity = 1 - torch_pruned.left(neurons, size) / neurons
    start = time.process_time()
    pruned = getattr(import_module("onnxsim"), prune)(model, sparsity=sparsity, **options)
    seconds = time.process_time() - start
    return {
        "command": f"onnxsim.{prune}(model, sparsity={sparsity:.3g})", "cpu": seconds,
        **judged_model(subject, pruned),
    }  # fmt: skip


def shrunk_in_torch(prune: Callable[..., None], subject: Subject, size: str) -> Result:
    """Make the torch network smaller, and judge it there."""
    net, start = subject.network(), time.process_time()
    prune(net, subject.pairs, size, subject.fit(CALIBRATION))
    seconds = time.process_time() - start
    outputs = torch_pruned.outputs_in_torch(net, subject.test()[0])
    return {
        "cpu": seconds, "parameters": sum(p.numel() for p in net.parameters()),
        "neurons": [net.get_submodule(name).out_features for name, _ in subject.pairs],
        **judged(subject, outputs, original_outputs(subject)),
    }  # fmt: skip


def judged_model(subject: Subject, model: onnx.ModelProto) -> Result:
    """Size and quality of an ONNX model."""
    outputs = outputs_in_parts(model, subject.test()[0])
    found = judged(subject, outputs, original_outputs(subject))
    axes = model.graph.input[0].type.tensor_type.shape.dim
    dynamic = [axis.dim_param for axis in axes if axis.dim_param]
    return {"parameters": count_parameters(model), "dynamic": dynamic, **found}


@cache
def original_outputs(subject: Subject) -> Array:
    """What the original network computes on the test rows."""
    return outputs_in_parts(onnx.load(subject.model), subject.test()[0])


def outputs_in_parts(model: onnx.ModelProto, x: Array) -> Array:
    """What a model computes, a part of the rows at a time."""
    parts = np.array_split(x, -(-len(x) // PART))
    return np.concatenate([outputs_of(model, part)[0] for part in parts])


def hidden_widths(subject: Subject) -> list[int]:
    """The number of neurons between each pair of maps."""
    net = subject.network()
    return [net.get_submodule(name).out_features for name, _ in subject.pairs]


def in_torch(prune: Callable[..., None]) -> Method:
    """A method that works on the torch network, before its export."""
    return lambda subject, size: shrunk_in_torch(prune, subject, size)


def in_onnxsim(prune: str) -> Method:
    """A function of onnxsim."""
    return lambda subject, size: shrunk_by_onnxsim(prune, subject, size)


def in_onnxfde(method: Merged) -> Method:
    """The command line of onnxfde."""
    return lambda subject, size: shrunk_by_onnxfde(subject, method, size)


TIME_LIMIT = ("--time-limit", "60")
MERGED = (
    *(Merged(quotient, rows) for rows in (0, 1000, 4000) for quotient in ("refit", "minimal")),
    Merged("minimal", 3000),
    Merged("minimal", 4000, TIME_LIMIT),
)
METHODS: dict[str, Method] = {
    "structured magnitude": in_torch(torch_pruned.magnitude_pruned),
    "Torch-Pruning": in_torch(torch_pruned.torch_pruning),
    "onnxsim": in_onnxsim("apply_structured_pruning"),
    "onnxsim Wanda, 1,000 inputs": in_onnxsim("apply_structured_wanda_pruning"),
    "interpolative, 1,000 inputs": in_torch(torch_pruned.interpolative),
    **{method.name: in_onnxfde(method) for method in MERGED},
}
"""All methods by name."""
