"""A chain of square layers, and which parts of it are run.

x → first h1 → s1 = h1² → second h2 → s2 = h2² → … → last y; every neuron is there twice.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from onnxfde.graph.input_specs import input_specs
from onnxfde.graph.model import Graph
from onnxfde.graph.protos import ModelProto, ValueInfoProto
from onnxfde.graph.tensors import copy_of
from onnxfde.running import runtime
from onnxfde.running.input_source import InputSource
from onnxfde.running.runtime import load
from onnxfde.running.samples import make_samples
from tests.models import Array, build

WIDTH = 6
"""Neurons of each layer, three of them twice."""
INPUTS = 4
ROWS = np.random.default_rng(1).uniform(-1, 1, (1500, INPUTS)).astype(np.float32)
"""More than one batch."""


def square_chain(layers: int = 5, batch: str = "N", unknown: bool = False) -> ModelProto:
    """The chain; with an operator that no runtime knows before the last layer if wanted."""
    rng = np.random.default_rng(0)
    body, weights, source = "", dict[str, Any](), "x"
    for i in range(1, layers + 1):
        if i == layers and unknown:
            body += f"g = Gemm <transB = 1> ({source}, G) t = not.known.Own(g) "
            weights["G"], source = np.eye(WIDTH, dtype=np.float32), "t"
        body += f"[l{i}] h{i} = Gemm <transB = 1> ({source}, W{i}, b{i}) s{i} = Mul(h{i}, h{i}) "
        rows = rng.normal(size=(WIDTH // 2, INPUTS + 1 if i == 1 else WIDTH + 1)) / WIDTH
        twice = np.vstack([rows, -2 * rows]).astype(np.float32)
        weights |= {f"W{i}": twice[:, :-1], f"b{i}": twice[:, -1] + np.float32(0)}
        source = f"s{i}"
    model = build(
        f"{body} [last] y = Gemm <transB = 1> ({source}, V)",
        inputs=f"float[{batch},{INPUTS}] x",
        outputs=f"float[{batch},2] y",
        V=rng.normal(size=(2, WIDTH)).astype(np.float32),
        **weights,
    )
    model.opset_import.add(domain="not.known", version=1)
    return model


def source_of(model: ModelProto, rows: Array = ROWS) -> InputSource:
    """Rows of data as the inputs of a model."""
    return InputSource(data=make_samples({"x": rows}, input_specs(Graph(model)), "test"))


def full_run(model: ModelProto, value: str, rows: Array = ROWS) -> Array:
    """A value inside a model when all of it is run at once."""
    whole = copy_of(model)
    whole.graph.output.append(ValueInfoProto(name=value))
    return np.asarray(load(whole, None).run({"x": rows})[-1])


@dataclass(frozen=True)
class PartRun:
    """A part of a network that was loaded, and how often it was run."""

    reads: list[str]
    computes: list[str]
    wanted: list[str]
    batches: list[int] = field(default_factory=list)
    """Rows of each run."""


def watch_parts(monkeypatch: pytest.MonkeyPatch) -> list[PartRun]:
    """A list that gets every part of a network that is loaded from now on."""
    seen: list[PartRun] = []

    def counting(model: ModelProto, folder: Path | None) -> runtime.Runner:
        graph = model.graph
        part = PartRun(
            [value.name for value in graph.input],
            [node.output[0] for node in graph.node],
            [value.name for value in graph.output],
        )
        seen.append(part)
        runner = load(model, folder)

        def run(feeds: dict[str, Array]) -> list[Array]:
            part.batches.append(len(next(iter(feeds.values()))))
            return runner.run(feeds)

        return runtime.Runner(run, runner.engine)

    monkeypatch.setattr(runtime, "load", counting)
    return seen
