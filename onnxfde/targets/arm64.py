"""ARM without a board: onnxruntime's aarch64 build under qemu, counted in instructions.

Time under an emulator says nothing about a processor; how many instructions a run takes does, and
it repeats. The outputs are those of the real ARM kernels.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onnxfde.errors import UsageError
from onnxfde.targets.base import (
    RUNNER,
    Job,
    Measured,
    Row,
    Run,
    Say,
    found_in,
    refuse_incomplete,
    unpacked,
)
from onnxfde.targets.process import attended
from onnxfde.targets.runner import COUNTED
from onnxfde.targets.sysroot import CPUS, MARKER, Sysroot, find, read_counts

DEFAULT_CPU = "cortex-a76"


@dataclass(frozen=True)
class Arm64:
    """An emulated ARM processor; one thread, whatever was asked for."""

    name: str
    cpu: str
    is_here: bool = False

    def measure(self, job: Job, say: Say) -> Measured:
        """Count each model in a process of its own: a crash is a finding."""
        sysroot, answers, rows = find(), [], []
        with tempfile.TemporaryDirectory(prefix="onnxfde-") as folder:
            request = job.write(Path(folder), marker=MARKER, threads=1)
            for i, case in enumerate(job.cases):
                say(f"{self.name}: counting {case.file.name}")
                answer, row = self.counted(sysroot, request, i, job.timeout)
                answers.append(answer)
                rows.append(row)
        version = next((a["onnxruntime"] for a in answers if "onnxruntime" in a), "")
        return Measured(tuple(rows), f"aarch64, {self.cpu} under qemu", version)

    def counted(
        self, sysroot: Sysroot, request: Path, index: int, timeout: float
    ) -> tuple[dict[str, Any], Row]:
        """What the runner said of one model, and its row."""
        log = request.with_name(f"counts-{index}")
        arguments = [str(RUNNER), "--count", str(index), str(request)]
        command, env = sysroot.command(self.cpu, arguments, log)
        done = attended(command, env=env, timeout=timeout)
        answer = found_in(done.out)
        if answer is None:
            return {}, Row(error=done.reason)
        refuse_incomplete(answer, self.name)
        return answer, counted_row(answer, read_counts(log))


def counted_row(answer: dict[str, Any], counts: list[tuple[int, int]]) -> Row:
    """A row of counts: for each batch an empty region, then COUNTED measured ones."""
    if "error" in answer:
        return Row(error=answer["error"])
    runs = {int(b): Run(error=message) for b, message in answer["failed"].items()}
    marks = iter(counts)
    for batch, repeats in answer["repeats"].items():
        regions = [(next(marks), next(marks)) for _ in range(1 + COUNTED)]
        spent = [(b[0] - a[0], b[1] - a[1]) for a, b in regions]
        (idle, idle_simd), *work = spent
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
