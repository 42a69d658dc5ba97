"""What a target is: a machine that runs the models of a job on the same inputs and measures them.

To add one, write a module with a class that satisfies `BenchTarget` and list it in `TARGETS`.
"""

from __future__ import annotations

import base64
import contextlib
import importlib
import io
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, Self

import numpy as np

from onnxfde.errors import TargetError, UsageError
from onnxfde.machines.ratios import Rounds
from onnxfde.machines.targets import runner
from onnxfde.numbers import Array

Say = Callable[[str], None]
"""Shows one line of progress to the user."""

TARGETS = {
    "cpu": ("cpu", "Cpu"),
    "arm64": ("arm64", "Arm64"),
    "cortex-": ("arm64", "Arm64"),
    "ssh:": ("ssh", "Ssh"),
    "tenseal": ("engine", "EngineTarget"),
    "ezkl": ("engine", "EngineTarget"),
}
"""How the spelling of a target begins, then its module and its class."""
SPELLINGS = (
    "cpu, arm64, arm64:cortex-a53, arm64:cortex-a72, arm64:cortex-a76, ssh://user@host, tenseal, "
    "tenseal:vector, ezkl"
)
NOTABLE_DIFFERENCE = 1e-5
"""Differences of outputs that deserve a warning: five times the largest on ARM, 2.1e-6 for int8 in
benchmarks/latency/RESULTS.md."""
RUNNER = Path(runner.__file__)


@dataclass(frozen=True, eq=False)
class Case:
    """A model file, its external weight files, and inputs for each batch size."""

    file: Path
    outside: tuple[Path, ...]
    inputs: Mapping[int, Mapping[str, Array]]

    @property
    def name(self) -> str:
        """The file name of a copy; external weight files keep their names."""
        return f"model{self.file.suffix}"


@dataclass(frozen=True, eq=False)
class Job:
    """Models to measure side by side, and how."""

    cases: tuple[Case, ...]
    threads: int
    seconds: float
    timeout: float
    """Seconds after which a target is given up."""

    def files(self, folder: str = "", **more: Any) -> Iterator[tuple[str, bytes]]:
        """The request and its inputs as files; with `folder`, paths of models start with it."""
        models = []
        for i, case in enumerate(self.cases):
            inputs = {batch: f"inputs-{i}-{batch}.npz" for batch in case.inputs}
            place = f"{folder}/{i}/{case.name}" if folder else str(case.file.absolute())
            names = list(next(iter(case.inputs.values()), {}))
            models.append({"file": place, "names": names, "inputs": inputs})
            for batch, name in inputs.items():
                yield name, packed(case.inputs[batch].values())
        settings = {"threads": self.threads, "seconds": self.seconds, **more}
        request = {"models": models, **settings}
        yield "request.json", json.dumps(request).encode()

    def write(self, folder: Path, **more: Any) -> Path:
        """Write the request and its inputs to a folder and return the path of the request."""
        for name, content in self.files(**more):
            (folder / name).write_bytes(content)
        return folder / "request.json"


@dataclass(frozen=True)
class Figure:
    """Something that a target counts or measures beside the time, with its unit (s, B or none)."""

    name: str
    value: float
    unit: str = ""


@dataclass(frozen=True, eq=False)
class MeasuredBatch:
    """The cost of one model at one batch size: the time of each run by round, or instructions."""

    seconds: Rounds = ()
    least: float | None = None
    instructions: tuple[float, ...] = ()
    simd: tuple[float, ...] = ()
    outputs: Sequence[Array] = ()
    figures: tuple[Figure, ...] = ()
    error: str | None = None


@dataclass(frozen=True, eq=False)
class MeasuredModel:
    """The cost of one model at each batch size."""

    runs: Mapping[int, MeasuredBatch] = field(default_factory=dict)
    load_seconds: tuple[float, ...] = ()
    peak_memory: int | None = None
    call: float | None = None
    """Instructions of a run of a model that does nothing, if they were counted."""
    error: str | None = None


@dataclass(frozen=True, eq=False)
class MeasuredJob:
    """The cost of each model of a job, in the order of the job, and the machine that ran them."""

    rows: tuple[MeasuredModel, ...]
    machine: str
    onnxruntime: str
    counted: bool = False
    """Whether instructions were counted instead of measuring time."""
    engine: str = ""
    """What ran the models, if it was not onnxruntime."""
    notable_difference: float = NOTABLE_DIFFERENCE
    """Differences from this machine's outputs that deserve a warning."""


class BenchTarget(Protocol):
    """A machine that can run a job."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read the user's spelling; raises UsageError if it makes no sense."""

    @property
    def name(self) -> str:
        """The user's spelling of the target."""

    @property
    def is_here(self) -> bool:
        """Whether it is this machine, whose outputs are the reference for the others."""

    def measure(self, job: Job, say: Say) -> MeasuredJob:
        """Run a job; raises TargetError if the target cannot be used at all."""


def parse_target(text: str) -> BenchTarget:
    """The target that a spelling such as `cpu` or `ssh://user@host` names."""
    for start, (module, name) in TARGETS.items():
        if text.startswith(start):
            target = getattr(importlib.import_module(f"onnxfde.machines.targets.{module}"), name)
            found: BenchTarget = target.parse(text)
            return found
    raise UsageError(f"--target {text}: unknown target; there are {SPELLINGS}")


def packed(arrays: Iterable[Array]) -> bytes:
    """Arrays as the bytes of a .npz."""
    stream = io.BytesIO()
    np.savez(stream, *arrays)
    return stream.getvalue()


def unpacked(text: str) -> list[Array]:
    """The output arrays that the runner sent as a .npz in base64."""
    with np.load(io.BytesIO(base64.b64decode(text))) as arrays:
        return [arrays[name] for name in arrays.files]


def answers_in(text: str) -> list[dict[str, Any]]:
    """The runner's answers among everything that was printed."""
    answers = []
    for line in text.splitlines():
        if line.startswith(runner.RESULT):
            with contextlib.suppress(json.JSONDecodeError):
                answers.append(json.loads(line.removeprefix(runner.RESULT)))
    return answers


def refuse_incomplete(answer: Mapping[str, Any], where: str) -> None:
    """Refuse an answer that only says why the runner cannot run models, and explain it."""
    if "missing" in answer:
        names = " and ".join(answer["missing"])
        install = f"{answer['python']} -m pip install numpy onnxruntime"
        raise TargetError(f"{where}: {names} not installed there; run there: {install}")
    if "broken" in answer:
        raise TargetError(f"{where}: onnxruntime does not start there ({answer['broken']})")


def timed_model(found: Mapping[str, Any]) -> MeasuredModel:
    """The times of one model from the runner's answer."""
    if "error" in found:
        return MeasuredModel(error=found["error"])
    runs = {int(b): MeasuredBatch(error=message) for b, message in found["failed"].items()}
    for batch, text in found["outputs"].items():
        times, least = found["times"][batch], found["least"][batch]
        figures = tuple(Figure(*figure) for figure in found.get("figures", {}).get(batch, ()))
        outputs = unpacked(text)
        runs[int(batch)] = MeasuredBatch(times, least, outputs=outputs, figures=figures)
    return MeasuredModel(dict(sorted(runs.items())), tuple(found["loads"]), found["memory"])


def timed_job(
    answer: Mapping[str, Any], where: str, notable_difference: float = NOTABLE_DIFFERENCE
) -> MeasuredJob:
    """The times of all models from the runner's answer."""
    refuse_incomplete(answer, where)
    machine = f"{answer['machine']}, {answer['cpu']}, {answer['cores']} cores"
    return MeasuredJob(
        tuple(map(timed_model, answer["models"])),
        machine,
        answer["onnxruntime"],
        engine=answer.get("engine", ""),
        notable_difference=notable_difference,
    )
