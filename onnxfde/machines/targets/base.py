"""What a target is: something that runs a job, the same models on the same inputs, and measures.

Adding one is a file with `parse`, and a line in `TARGETS`.
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
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from onnxfde.errors import TargetError, UsageError
from onnxfde.machines.targets import runner

Array = npt.NDArray[Any]
Say = Callable[[str], None]
Rounds = Sequence[Sequence[float]]

TARGETS = {"cpu": "cpu", "arm64": "arm64", "cortex-": "arm64", "ssh:": "ssh"}
"""How the spelling of a target begins, and its module."""
SPELLINGS = "cpu, arm64, arm64:cortex-a53, arm64:cortex-a72, arm64:cortex-a76, ssh://user@host"
RUNNER = Path(runner.__file__)


@dataclass(frozen=True, eq=False)
class Case:
    """A model file, the weights it keeps outside, and inputs for each batch size."""

    file: Path
    outside: tuple[Path, ...]
    inputs: Mapping[int, Mapping[str, Array]]

    @property
    def name(self) -> str:
        """A name for a copy; the weights outside keep theirs."""
        return f"model{self.file.suffix}"


@dataclass(frozen=True, eq=False)
class Job:
    """Models to measure side by side."""

    cases: tuple[Case, ...]
    threads: int
    seconds: float
    timeout: float
    """Seconds after which a target gives up."""

    def files(self, folder: str = "", **more: Any) -> Iterator[tuple[str, bytes]]:
        """The request and its inputs as files; with `folder`, models are looked up below it."""
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
        """Write the request beside its inputs and say where it is."""
        for name, content in self.files(**more):
            (folder / name).write_bytes(content)
        return folder / "request.json"


@dataclass(frozen=True, eq=False)
class Run:
    """What one batch size costs: the time of every turn, round by round, or instructions."""

    seconds: Rounds = ()
    least: float | None = None
    instructions: tuple[float, ...] = ()
    simd: tuple[float, ...] = ()
    outputs: Sequence[Array] = ()
    error: str | None = None


@dataclass(frozen=True, eq=False)
class Row:
    """What was measured of one model."""

    runs: Mapping[int, Run] = field(default_factory=dict)
    load_seconds: tuple[float, ...] = ()
    peak_memory: int | None = None
    error: str | None = None


@dataclass(frozen=True, eq=False)
class Measured:
    """The rows of a job, in its order, and what they were measured on."""

    rows: tuple[Row, ...]
    machine: str
    onnxruntime: str
    counted: bool = False
    """Whether instructions were counted instead of time taken."""


class Target(Protocol):
    """Where a job is run."""

    @property
    def name(self) -> str:
        """As the user spells it."""

    @property
    def is_here(self) -> bool:
        """Whether it runs on this machine's processor, so that outputs need no comparison."""

    def measure(self, job: Job, say: Say) -> Measured:
        """Run a job; raises TargetError when the target cannot be used at all."""


def parse_target(text: str) -> Target:
    """A target from its spelling."""
    for start, module in TARGETS.items():
        if text.startswith(start):
            found: Target = importlib.import_module(f"onnxfde.machines.targets.{module}").parse(
                text
            )
            return found
    raise UsageError(f"--target {text}: unknown target; there are {SPELLINGS}")


def packed(arrays: Iterable[Array]) -> bytes:
    """Arrays as the bytes of a .npz."""
    stream = io.BytesIO()
    np.savez(stream, *arrays)
    return stream.getvalue()


def unpacked(text: str) -> list[Array]:
    """Outputs as the runner sends them."""
    with np.load(io.BytesIO(base64.b64decode(text))) as arrays:
        return [arrays[name] for name in arrays.files]


def answers_in(text: str) -> list[dict[str, Any]]:
    """The runner's answers, whatever else was printed."""
    answers = []
    for line in text.splitlines():
        if line.startswith(runner.RESULT):
            with contextlib.suppress(json.JSONDecodeError):
                answers.append(json.loads(line.removeprefix(runner.RESULT)))
    return answers


def refuse_incomplete(answer: Mapping[str, Any], where: str) -> None:
    """Explain an environment that cannot run models."""
    if "missing" in answer:
        names = " and ".join(answer["missing"])
        install = f"{answer['python']} -m pip install numpy onnxruntime"
        raise TargetError(f"{where}: {names} not installed there; run there: {install}")
    if "broken" in answer:
        raise TargetError(f"{where}: onnxruntime does not start there ({answer['broken']})")


def row_of(found: Mapping[str, Any]) -> Row:
    """A row of times from the runner's findings."""
    if "error" in found:
        return Row(error=found["error"])
    runs = {int(b): Run(error=message) for b, message in found["failed"].items()}
    for batch, text in found["outputs"].items():
        times, least = found["times"][batch], found["least"][batch]
        runs[int(batch)] = Run(times, least, outputs=unpacked(text))
    return Row(dict(sorted(runs.items())), tuple(found["loads"]), found["memory"])


def measured(answer: Mapping[str, Any], where: str) -> Measured:
    """All rows of times from the runner's answer."""
    refuse_incomplete(answer, where)
    machine = f"{answer['machine']}, {answer['cpu']}, {answer['cores']} cores"
    return Measured(tuple(map(row_of, answer["models"])), machine, answer["onnxruntime"])
