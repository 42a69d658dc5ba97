"""Memory and time for a network as large as ResNet50: random weights, 224×224, 100 images.

Its channels are those of ResNet50 with BatchNormalization folded: 16 blocks of 1×1, 3×3 and 1×1
convolutions, 25.5 million parameters, 4.1 billion multiply-adds.
"""

from __future__ import annotations

import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from benchmarks.channels.methods import sizes
from benchmarks.common.folders import BENCHMARKS
from benchmarks.common.found_cells import Result
from benchmarks.common.measured_commands import measured_command
from onnxfde.numbers import Array

STAGES = ((64, 3), (128, 4), (256, 6), (512, 3))
"""Inner channels and blocks of each stage."""
WIDEN = 4
"""How many times as many channels the stream has."""
IMAGES, SIDE, CLASSES = 100, 224, 1000
LIMIT = 3600.0
"""Seconds after which the command is stopped; chosen."""


@dataclass(frozen=True)
class LargeCell:
    """One command on the large network."""

    size: str
    net: str = "ResNet50-size"

    @property
    def key(self) -> str:
        """Its name in the file of results."""
        return f"{self.net} | large | {self.size}"


LARGE_CELLS = (LargeCell("--keep 50%"), LargeCell("--max-macs 50%"))


@dataclass(eq=False)
class Network:
    """A graph that is being made, with random weights."""

    rng: np.random.Generator
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    weights: list[onnx.TensorProto] = field(default_factory=list)

    def node(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """Add a node; returns the name of its output."""
        name = f"{kind.lower()}{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], name, **attributes))
        return name

    def constant(self, values: Array) -> str:
        """Add a weight; returns its name."""
        name = f"weight{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(values.astype(np.float32), name))
        return name

    def conv(self, x: str, inputs: int, outputs: int, side: int, stride: int = 1) -> str:
        """A convolution that keeps the spread of values before a ReLU."""
        spread = np.sqrt(2 / (inputs * side * side))
        weights = self.rng.normal(0, spread, (outputs, inputs, side, side))
        bias = self.constant(self.rng.normal(0, 0.1, outputs))
        pads = [side // 2] * 4
        return self.node("Conv", x, self.constant(weights), bias, strides=[stride] * 2, pads=pads)

    def block(self, x: str, inputs: int, inner: int, stride: int) -> str:
        """A bottleneck block."""
        outputs = WIDEN * inner
        y = self.node("Relu", self.conv(x, inputs, inner, 1))
        y = self.node("Relu", self.conv(y, inner, inner, 3, stride))
        y = self.conv(y, inner, outputs, 1)
        if inputs != outputs or stride > 1:
            x = self.conv(x, inputs, outputs, 1, stride)
        return self.node("Relu", self.node("Mul", self.node("Add", x, y), self.half))

    @property
    def half(self) -> str:
        """What keeps the stream from growing: 1/√2."""
        known = [w.name for w in self.weights if not w.dims]
        return known[0] if known else self.constant(np.array(np.sqrt(0.5)))


def large_network() -> onnx.ModelProto:
    """A network of the size of ResNet50."""
    made = Network(np.random.default_rng(0))
    x = made.node("Relu", made.conv("x", 3, 64, 7, 2))
    x, width = made.node("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4), 64
    for stage, (inner, blocks) in enumerate(STAGES):
        for number in range(blocks):
            x = made.block(x, width, inner, 2 if stage and not number else 1)
            width = WIDEN * inner
    flat = made.node("Flatten", made.node("GlobalAveragePool", x))
    last = made.constant(made.rng.normal(0, width**-0.5, (CLASSES, width)))
    made.nodes.append(
        helper.make_node("Gemm", [flat, last, made.constant(np.zeros(CLASSES))], ["y"], transB=1)
    )
    float32, batch = TensorProto.FLOAT, "N"
    graph = helper.make_graph(
        made.nodes,
        "large",
        [helper.make_tensor_value_info("x", float32, [batch, 3, SIDE, SIDE])],
        [helper.make_tensor_value_info("y", float32, [batch, CLASSES])],
        made.weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def measured_large(cell: LargeCell) -> Result:
    """Time and memory of one command, with two threads."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        onnx.save(large_network(), folder / "large.onnx")
        images = np.random.default_rng(1).normal(size=(IMAGES, 3, SIDE, SIDE))
        np.save(folder / "images.npy", images.astype(np.float32))
        words = ["optimize", "large.onnx", "small.onnx", *cell.size.split(), "--quotient", "refit",
                 "--data", "images.npy"]  # fmt: skip
        command = [sys.executable, "-m", "onnxfde", *words, "--quiet"]
        took = measured_command(command, folder, BENCHMARKS.parent, 2, LIMIT)
        found: Result = {
            "command": " ".join(["onnxfde", *words]), "wall": took.wall, "cpu": took.cpu,
            "megabytes": took.megabytes,
        }  # fmt: skip
        if took.code != 0:
            return {**found, "failed": took.last_line or "stopped"}
        before, after = sizes(folder / "large.onnx"), sizes(folder / "small.onnx")
        return {**found, **after, **{f"all_{name}": n for name, n in before.items()}}
