"""Engines on this machine: a network on encrypted inputs (TenSEAL), or in a proof (ezkl)."""

from __future__ import annotations

import importlib.util
import os
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import onnxfde
from onnxfde.errors import TargetError, UsageError
from onnxfde.machines.targets.base import Job, MeasuredJob, Say, answers_in, timed_job
from onnxfde.machines.targets.process import attended

SPELLINGS_OF = {
    "tenseal": ("tenseal", "tenseal:batch", "tenseal:vector"),
    "ezkl": ("ezkl",),
}
"""How each package may be asked for."""
EXTRAS = {"tenseal": "he", "ezkl": "zk"}
"""The extra of onnxfde that installs each package."""
EXPECTED_DIFFERENCE = {"tenseal": 0.01, "ezkl": 0.05}
"""Differences from onnxruntime, relative to the largest output, that deserve no warning. Encrypted
values have noise and circuits round: by at most 3.5e-4 and 7.7e-3 in
benchmarks/encrypted/results.md."""
PROCESS = "onnxfde.machines.engines.engine_process"


@dataclass(frozen=True)
class EngineTarget:
    """A package that runs networks in a way of its own."""

    name: str
    package: str
    is_here: bool = False

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `tenseal`, `tenseal:vector` or `ezkl`."""
        package = text.partition(":")[0]
        spellings = SPELLINGS_OF.get(package, ())
        if text not in spellings:
            every = (s for found in SPELLINGS_OF.values() for s in found)
            raise UsageError(f"--target {text}: the engines are {', '.join(spellings or every)}")
        return cls(text, package)

    def measure(self, job: Job, say: Say) -> MeasuredJob:
        """Run the job in a child process."""
        if importlib.util.find_spec(self.package) is None:
            extra = EXTRAS[self.package]
            raise TargetError(
                f"{self.name}: the package {self.package} is not installed; run: "
                f"pip install {self.package} (or install onnxfde with the extra [{extra}])"
            )
        say(f"{self.name}: {len(job.cases)} models in turns, which takes a while")
        with tempfile.TemporaryDirectory(prefix="onnxfde-") as folder:
            request = job.write(Path(folder))
            done = attended(
                [sys.executable, "-m", PROCESS, self.name, str(request)],
                env=child_environment(),
                timeout=job.timeout,
            )
        answers = answers_in(done.out)
        if not answers:
            raise TargetError(f"{self.name}: {done.reason}")
        return timed_job(answers[0], self.name, EXPECTED_DIFFERENCE[self.package])


def child_environment() -> dict[str, str]:
    """The environment of a process that imports the same onnxfde as this one."""
    here = str(Path(onnxfde.__file__).parents[1])
    paths = [here, *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
