"""ResNet8 as it is deployed, smaller, in 8 bits, as .ort: accuracy and bytes."""

from __future__ import annotations

import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.channels.methods import outputs_in_parts
from benchmarks.channels.subjects import RESNET8, Subject
from benchmarks.common.folders import BENCHMARKS
from benchmarks.common.found_cells import Result
from benchmarks.common.measured_commands import measured_command
from benchmarks.common.scores import score

IMAGES = 500
LIMIT = 1800.0
"""Seconds after which a command is stopped; chosen."""
SHAPES = {
    "8 bits": ("--eps 0 --int8 static", "small.onnx"),
    ".ort": ("--eps 0", "small.ort"),
    "75% MACs": ("--max-macs 75%", "small.onnx"),
    "75% MACs, 8 bits": ("--max-macs 75% --int8 static", "small.onnx"),
    "75% MACs, .ort": ("--max-macs 75%", "small.ort"),
    "50% MACs": ("--max-macs 50%", "small.onnx"),
    "50% MACs, 8 bits": ("--max-macs 50% --int8 static", "small.onnx"),
}
"""Options and the file that is written, by name."""


@dataclass(frozen=True)
class DeployedCell:
    """A network in one shape."""

    shape: str
    net: str = RESNET8[0]

    @property
    def key(self) -> str:
        """Its name in the file of results."""
        return f"{self.net} | deployed | {self.shape}"


DEPLOYED_CELLS = tuple(map(DeployedCell, SHAPES))


def measured_deployed(subject: Subject, cell: DeployedCell) -> Result:
    """Run the command a user would type, and judge the file that it writes."""
    options, name = SHAPES[cell.shape]
    x, y = subject.test()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        np.save(folder / "images.npy", subject.drawn(IMAGES, 0))
        words = ["optimize", str(subject.model), name, *options.split(), "--data", "images.npy",
                 *subject.words]  # fmt: skip
        command = [sys.executable, "-m", "onnxfde", *words, "--quiet"]
        took = measured_command(command, folder, BENCHMARKS.parent, 1, LIMIT)
        words[1] = subject.model.name
        found: Result = {"command": " ".join(["onnxfde", *words]), "cpu": took.cpu}
        if took.code != 0:
            return {**found, "failed": took.last_line or "stopped"}
        written = folder / name
        return {
            **found, "bytes": written.stat().st_size,
            "all_bytes": subject.model.stat().st_size,
            "score": score(outputs_in_parts(written, x), y),
            "base": score(outputs_in_parts(subject.model, x), y),
        }  # fmt: skip
