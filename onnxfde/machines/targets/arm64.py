"""ARM without a board: onnxruntime's aarch64 build under qemu, counted in instructions.

Time under an emulator says nothing about a processor; how many instructions a run takes does, and
it repeats: the guest never sees the random name of a temporary folder, for one. The outputs are
those of the real ARM kernels.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onnxfde.errors import TargetError, UsageError
from onnxfde.machines.targets.base import (
    RUNNER,
    Job,
    Measured,
    Row,
    Run,
    Say,
    answers_in,
    refuse_incomplete,
    unpacked,
)
from onnxfde.machines.targets.process import attended, too_late
from onnxfde.machines.targets.runner import REGIONS
from onnxfde.machines.targets.sysroot import CPUS, MARKER, find, read_counts

DEFAULT_CPU = "cortex-a76"


@dataclass(frozen=True)
class Arm64:
    """An emulated ARM processor; one thread, whatever was asked for."""

    name: str
    cpu: str
    is_here: bool = False

    def measure(self, job: Job, say: Say) -> Measured:
        """Count each model in a process of its own: what ran before moves the counts by 1 %."""
        rows: list[Row] = []
        sysroot, version, end = find(), "", time.monotonic() + job.timeout
        with tempfile.TemporaryDirectory(prefix="onnxfde-") as folder:
            request = job.write(Path(folder), marker=MARKER, threads=1)
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
                    rows.append(counted_row(answers[0], iter(read_counts(log))))
                else:
                    late = done.expired is not None
                    rows.append(Row(error=too_late(job.timeout) if late else done.reason))
        if all(row.error for row in rows) and not version:
            again = "if it says so of every model, run: onnxfde target setup arm64 --force"
            raise TargetError(f"{self.name}: {rows[0].error}; {again}")
        machine = f"aarch64, {self.cpu} under qemu, 1 thread"
        return Measured(tuple(rows), machine, version, counted=True)


def counted_row(answer: dict[str, Any], marks: Iterator[tuple[int, int]]) -> Row:
    """A row of counts: two markers a region, all regions a batch."""
    if "error" in answer:
        return Row(error=answer["error"])
    runs = {int(b): Run(error=message) for b, message in answer["failed"].items()}
    for batch, repeats in answer["repeats"].items():
        regions = [(kind, next(marks), next(marks)) for kind in REGIONS]
        spent = [(kind, end[0] - start[0], end[1] - start[1]) for kind, start, end in regions]
        ((idle, idle_simd),) = [found for kind, *found in spent if kind == "nothing"]
        work = [found for kind, *found in spent if kind == "counted"]
        runs[int(batch)] = Run(
            instructions=tuple((total - idle) / repeats for total, _ in work),
            simd=tuple((simd - idle_simd) / repeats for _, simd in work),
            outputs=unpacked(answer["outputs"][batch]),
        )
    return Row(dict(sorted(runs.items())))


def parse(text: str) -> Arm64:
    """`arm64`, `arm64:` and a processor, or the processor alone."""
    cpu = DEFAULT_CPU if text == "arm64" else text.removeprefix("arm64:")
    if cpu not in CPUS:
        raise UsageError(f"--target {text}: the processors are {', '.join(CPUS)}")
    return Arm64(text, cpu)
