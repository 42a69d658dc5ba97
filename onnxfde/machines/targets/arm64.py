"""ARM without a board: onnxruntime's aarch64 build under qemu, counted in instructions.

Time under an emulator says nothing about a real processor, but the number of instructions of a run
does. It is reproducible because the guest sees nothing random, such as the name of a temporary
folder. The outputs come from the real ARM kernels.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np

from onnxfde.errors import TargetError, UsageError
from onnxfde.graph.new_nodes import identity_model
from onnxfde.machines.targets.base import (
    RUNNER,
    Case,
    Job,
    MeasuredBatch,
    MeasuredJob,
    MeasuredModel,
    Say,
    answers_in,
    refuse_incomplete,
    unpacked,
)
from onnxfde.machines.targets.process import attended, too_late
from onnxfde.machines.targets.runner import REGIONS
from onnxfde.machines.targets.sysroot import CPUS, MARKER, find_sysroot, read_counts

DEFAULT_CPU = "cortex-a76"
"""The newest of `CPUS`, and the only one with dot products for int8."""


@dataclass(frozen=True)
class Arm64:
    """An emulated ARM processor; it always runs one thread."""

    name: str
    cpu: str
    is_here: bool = False

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `arm64`, `arm64:cortex-a53` or `cortex-a53`."""
        cpu = DEFAULT_CPU if text == "arm64" else text.removeprefix("arm64:")
        if cpu not in CPUS:
            raise UsageError(f"--target {text}: the processors are {', '.join(CPUS)}")
        return cls(text, cpu)

    def measure(self, job: Job, say: Say) -> MeasuredJob:
        """Count each model in a separate process, because earlier runs change counts by 1 %."""
        rows: list[MeasuredModel] = []
        sysroot, version, end = find_sysroot(), "", time.monotonic() + job.timeout
        with tempfile.TemporaryDirectory(prefix="onnxfde-") as folder:
            cases = (*job.cases, idle_case(Path(folder)))
            request = replace(job, cases=cases).write(
                Path(folder), marker=MARKER, threads=1, idle=len(job.cases)
            )
            for i, case in enumerate(job.cases):
                say(f"{self.name}: counting {case.file.name}")
                log = request.with_name(f"counts-{i}")
                arguments = [str(RUNNER), "--watch", "--count", str(i), request.name]
                command, env = sysroot.command(self.cpu, arguments, log)
                left = max(end - time.monotonic(), 0.0)
                done = attended(command, env=env, timeout=left, cwd=request.parent)
                answers = answers_in(done.out)
                if answers:
                    refuse_incomplete(answers[0], self.name)
                    version = answers[0].get("onnxruntime", version)
                    rows.append(counted_model(answers[0], iter(read_counts(log))))
                else:
                    late = done.expired is not None
                    rows.append(MeasuredModel(error=too_late(job.timeout) if late else done.reason))
        if all(row.error for row in rows) and not version:
            again = "if no model runs, try: onnxfde target setup arm64 --force"
            raise TargetError(f"{self.name}: {rows[0].error}; {again}")
        machine = f"aarch64, {self.cpu} under qemu, 1 thread"
        return MeasuredJob(tuple(rows), machine, version, counted=True)


def idle_case(folder: Path) -> Case:
    """A model that only copies a number: its instructions are those of a call."""
    file = folder / "idle.onnx"
    model = identity_model()
    file.write_bytes(model.SerializeToString())
    return Case(file, (), {1: {model.graph.input[0].name: np.zeros(1, np.float32)}})


def counted_model(answer: dict[str, Any], marks: Iterator[tuple[int, int]]) -> MeasuredModel:
    """The counts of one model: each batch has all REGIONS, each region a first and last marker."""
    if "error" in answer:
        return MeasuredModel(error=answer["error"])
    runs = {int(b): MeasuredBatch(error=message) for b, message in answer["failed"].items()}
    for batch, repeats in answer["repeats"].items():
        instructions, simd = counted_runs(marks, repeats)
        outputs = unpacked(answer["outputs"][batch])
        runs[int(batch)] = MeasuredBatch(instructions=instructions, simd=simd, outputs=outputs)
    calls, _ = counted_runs(marks, answer["idle_repeats"])
    return MeasuredModel(dict(sorted(runs.items())), call=float(np.median(calls)))


def counted_runs(
    marks: Iterator[tuple[int, int]], repeats: int
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Instructions and SIMD instructions of one run, from each of the counted REGIONS."""
    regions = [(kind, next(marks), next(marks)) for kind in REGIONS]
    spent = [(kind, end[0] - start[0], end[1] - start[1]) for kind, start, end in regions]
    ((idle, idle_simd),) = [found for kind, *found in spent if kind == "nothing"]
    work = [found for kind, *found in spent if kind == "counted"]
    return (
        tuple((total - idle) / repeats for total, _ in work),
        tuple((simd - idle_simd) / repeats for _, simd in work),
    )
