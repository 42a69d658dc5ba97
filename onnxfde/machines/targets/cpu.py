"""This machine: latency, load time and memory, as a deployment would see them."""

from __future__ import annotations

import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from onnxfde.errors import TargetError, UsageError
from onnxfde.machines.targets.base import RUNNER, Job, Measured, Say, answers_in, measured
from onnxfde.machines.targets.process import attended


@dataclass(frozen=True)
class Cpu:
    """The processor this runs on."""

    name: str = "cpu"
    is_here: bool = True

    def measure(self, job: Job, say: Say) -> Measured:
        """Run the job in processes of its own."""
        say(f"{self.name}: {len(job.cases)} models in turns")
        with tempfile.TemporaryDirectory(prefix="onnxfde-") as folder:
            request = job.write(Path(folder))
            done = attended(
                [sys.executable, str(RUNNER), "--watch", str(request)], timeout=job.timeout
            )
        answers = answers_in(done.out)
        if not answers:
            raise TargetError(f"{self.name}: {done.reason}")
        return measured(answers[0], self.name)


def parse(text: str) -> Cpu:
    """`cpu`."""
    if text != "cpu":
        raise UsageError(f"--target {text}: 'cpu' is this machine and takes nothing after it")
    return Cpu()
