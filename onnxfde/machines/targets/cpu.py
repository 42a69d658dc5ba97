"""This machine: latency, load time and memory as a deployed model would see them."""

from __future__ import annotations

import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from onnxfde.errors import TargetError, UsageError
from onnxfde.machines.targets.base import RUNNER, Job, MeasuredJob, Say, answers_in, timed_job
from onnxfde.machines.targets.process import attended


@dataclass(frozen=True)
class Cpu:
    """The processor of this machine."""

    name: str = "cpu"
    is_here: bool = True

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `cpu`, the only spelling."""
        if text != "cpu":
            raise UsageError(f"--target {text}: 'cpu' is this machine and takes nothing after it")
        return cls()

    def measure(self, job: Job, say: Say) -> MeasuredJob:
        """Run the job in child processes."""
        say(f"{self.name}: {len(job.cases)} models in turns")
        with tempfile.TemporaryDirectory(prefix="onnxfde-") as folder:
            request = job.write(Path(folder))
            done = attended(
                [sys.executable, str(RUNNER), "--watch", str(request)], timeout=job.timeout
            )
        answers = answers_in(done.out)
        if not answers:
            raise TargetError(f"{self.name}: {done.reason}")
        return timed_job(answers[0], self.name)
