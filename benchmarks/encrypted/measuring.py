"""What is measured of a network: all its variants in one engine, in turns."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from benchmarks.common.found_cells import Result
from benchmarks.common.scores import outputs_of, score
from benchmarks.encrypted.subjects import SUBJECTS, EncryptedSubject
from benchmarks.encrypted.variants import variants_of, widths
from onnxfde.errors import TargetError
from onnxfde.graph.encrypted_cost import encrypted_cost
from onnxfde.graph.model import Graph
from onnxfde.machines.engines.engine_process import Engine, Workload, timed_turns
from onnxfde.machines.results import relative_difference
from onnxfde.numbers import Array

SHORT_RUNS = {"vector": 20.0}
"""Seconds that variants take turns for, where a run takes less than a second; else twice each."""
QUICK = "abalone"
"""The network of `--quick`."""


@dataclass(frozen=True)
class EngineCell:
    """A network in an engine."""

    net: str
    engine: str

    @property
    def key(self) -> str:
        """Its name in the file of results."""
        return f"{self.net} | {self.engine}"


def all_cells(quick: bool) -> list[EngineCell]:
    """Every network in every engine, or one small network."""
    nets = (QUICK,) if quick else tuple(SUBJECTS)
    return [EngineCell(net, engine) for engine in ENGINES for net in nets]


def measured(cell: EngineCell, subject: EncryptedSubject, folder: Path) -> Result:
    """All variants of a network in one engine."""
    files = variants_of(subject, folder)
    found = {name: facts(path) for name, path in files.items()}
    with tempfile.TemporaryDirectory() as name:
        more = ENGINES[cell.engine](subject, files, Path(name))
    return {"models": {name: {**found[name], **more[name]} for name in files}}


def facts(path: Path) -> Result:
    """Size and estimated cost of a model."""
    model = onnx.load(path)
    cost = encrypted_cost(Graph(model))
    assert cost is not None
    return {
        "maps": widths(model),
        "depth": cost.depth,
        "batch": vars(cost.batch),
        "vector": vars(cost.vector),
        "constraints": cost.constraints,
    }


def encrypted(mode: str) -> Callable[..., dict[str, Result]]:
    """Measure in TenSEAL: the test rows in one batch, or one row by itself."""

    def run(subject: EncryptedSubject, files: dict[str, Path], folder: Path) -> dict[str, Result]:
        from onnxfde.machines.engines.ckks_engine import CkksEngine

        x = subject.x if mode == "batch" else subject.x[:1]
        return in_turns(CkksEngine(mode), files, subject, x, SHORT_RUNS.get(mode, 0.0))

    return run


def proven(subject: EncryptedSubject, files: dict[str, Path], folder: Path) -> dict[str, Result]:
    """Prove what the network makes of one row."""
    from onnxfde.machines.engines.ezkl_engine import EzklEngine

    return in_turns(EzklEngine(folder), files, subject, subject.x[:1])


ENGINES: dict[str, Callable[..., dict[str, Result]]] = {
    "vector": encrypted("vector"),
    "batch": encrypted("batch"),
    "proof": proven,
}
"""How each engine measures."""


def in_turns(
    engine: Engine,
    files: dict[str, Path],
    subject: EncryptedSubject,
    x: Array,
    seconds: float = 0.0,
) -> dict[str, Result]:
    """Run all variants in turns on the same rows."""
    ready = {i: engine.loaded(path, x) for i, path in enumerate(files.values())}
    failed: dict[int, str] = {}
    times = timed_turns(ready, seconds, failed)
    if failed:
        raise TargetError(f"{list(files)[min(failed)]}: {failed[min(failed)]}")
    return {
        name: judged(ready[i], times[i], onnx.load(path), subject, x)
        for i, (name, path) in enumerate(files.items())
    }


def judged(
    run: Workload, times: list[float], model: onnx.ModelProto, subject: EncryptedSubject, x: Array
) -> Result:
    """Times and figures, and how the results compare with onnxruntime's and with the truth."""
    seconds = statistics.median(times)
    (wanted,) = outputs_of(model, x)
    output: Any = run.output().reshape(wanted.shape)
    found = {
        "times": times,
        "figures": {f.name: f.value for f in run.figures(seconds)},
        "error": relative_difference([output], [wanted]),
        "samples": len(x),
    }
    if len(x) > 1:
        y = subject.y[: len(x)]
        found |= {"score": score(output, y), "plain_score": score(wanted, y)}
    if subject.classes:
        found["same"] = float(np.mean(output.argmax(axis=1) == wanted.argmax(axis=1)))
    return found
