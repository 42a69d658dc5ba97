"""The process that an engine runs in: prepares every model, then runs them in turns.

`python -m onnxfde.machines.engines.engine_process NAME REQUEST` prints the same answer as
`targets/runner.py`, with figures beside the times. No run is for warming up: they take seconds.
"""

from __future__ import annotations

import argparse
import base64
import importlib
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from onnxfde.errors import OnnxfdeError
from onnxfde.machines.targets.base import Figure, packed
from onnxfde.machines.targets.runner import (
    MOST_OUTPUT_VALUES,
    Answer,
    Request,
    TrialProcess,
    machine_facts,
    print_answer,
    stop_when_orphaned,
)
from onnxfde.numbers import Array

FEWEST_RUNS = 2
"""Runs of each model, however long they take; chosen: the least that shows whether times vary."""


class Workload(Protocol):
    """A model and its inputs, ready to run."""

    @property
    def load_seconds(self) -> float:
        """The time to make it ready, that does not depend on the inputs."""

    def run(self) -> None:
        """Do what is timed."""

    def output(self) -> Array:
        """What the last run computed."""

    def figures(self, seconds: float) -> list[Figure]:
        """What else is known after a run of so many seconds."""


class Engine(Protocol):
    """Something that makes models and inputs ready to run."""

    @property
    def title(self) -> str:
        """Its name and version."""

    def loaded(self, file: Path, x: Array) -> Workload:
        """A model ready to run; raises OnnxfdeError with the reason if it cannot be."""


ENGINES: dict[str, tuple[str, Callable[[Any, Path], Engine]]] = {
    "tenseal": ("ckks_engine", lambda module, _: module.CkksEngine("batch")),
    "tenseal:batch": ("ckks_engine", lambda module, _: module.CkksEngine("batch")),
    "tenseal:vector": ("ckks_engine", lambda module, _: module.CkksEngine("vector")),
    "ezkl": ("ezkl_engine", lambda module, folder: module.EzklEngine(folder)),
}
"""The module of each engine, and how it is made for a folder of temporary files."""


def named_engine(name: str, folder: Path) -> Engine:
    """An engine by its name."""
    module, make = ENGINES[name]
    return make(importlib.import_module(f"onnxfde.machines.engines.{module}"), folder)


def measured_models(engine: Engine, request: Request) -> list[Answer]:
    """All models, in turns at each batch size; what cannot be run says why."""
    answers: list[Answer] = [
        {"outputs": {}, "failed": {}, "memory": None, "loads": [], "times": {}, "least": {},
         "figures": {}}
        for _ in request.models
    ]  # fmt: skip
    for batch in dict.fromkeys(b for i in range(len(answers)) for b in request.inputs(i)):
        ready: dict[int, Workload] = {}
        failed: dict[int, str] = {}
        for i, answer in enumerate(answers):
            if batch in request.inputs(i):
                with noting(i, failed):
                    ready[i] = loaded_model(engine, request, i, batch)
                    answer["loads"].append(ready[i].load_seconds)
        times = timed_turns(ready, request.content["seconds"], failed)
        for i, workload in ready.items():
            if i not in failed:
                with noting(i, failed):
                    add_measured(answers[i], batch, workload, times[i])
        for i, reason in failed.items():
            answers[i]["failed"][batch] = reason
    return answers


@contextmanager
def noting(index: int, failed: dict[int, str]) -> Iterator[None]:
    """Note why a model failed; those beside it go on."""
    try:
        yield
    except OnnxfdeError as reason:
        failed[index] = str(reason)


def loaded_model(engine: Engine, request: Request, index: int, batch: str) -> Workload:
    """One model with its inputs."""
    with np.load(request.inputs(index)[batch]["file"]) as arrays:
        return engine.loaded(Path(request.models[index]["file"]), arrays[arrays.files[0]])


def timed_turns(
    ready: dict[int, Workload], seconds: float, failed: dict[int, str]
) -> dict[int, list[float]]:
    """The times of each model; its turn comes after those of all others."""
    times: dict[int, list[float]] = {i: [] for i in ready}
    end, turn = time.perf_counter() + seconds, 0
    while order := [i for i in ready if i not in failed]:
        if turn >= FEWEST_RUNS and time.perf_counter() >= end:
            break
        for i in order[turn % len(order) :] + order[: turn % len(order)]:
            with noting(i, failed):
                start = time.perf_counter()
                ready[i].run()
                times[i].append(time.perf_counter() - start)
        turn += 1
    return times


def add_measured(answer: Answer, batch: str, workload: Workload, times: list[float]) -> None:
    """Put what was measured into the answer."""
    found = workload.figures(statistics.median(times))
    values = workload.output().ravel()[:MOST_OUTPUT_VALUES].astype(np.float32)
    answer["outputs"][batch] = base64.b64encode(packed([values])).decode()
    answer["times"][batch], answer["least"][batch] = [times], min(times)
    answer["figures"][batch] = [[f.name, f.value, f.unit] for f in found]


def run_engine() -> None:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description="Run models in an engine; prints JSON.")
    parser.add_argument("engine", choices=ENGINES)
    parser.add_argument("request")
    options = parser.parse_args()
    stop_when_orphaned(TrialProcess())
    request = Request(options.request)
    engine = named_engine(options.engine, Path(options.request).parent)
    models = measured_models(engine, request)
    print_answer({"models": models, "engine": engine.title, **machine_facts()})


if __name__ == "__main__":
    run_engine()
