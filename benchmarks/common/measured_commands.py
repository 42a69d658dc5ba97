"""A command in a process of its own: how long it takes, and how much memory."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.common.processes import THREAD_VARIABLES

POLL = 0.02
"""Seconds between two looks at a command with a time limit; chosen."""


@dataclass(frozen=True)
class MeasuredCommand:
    """What a command took; `code` is None if it exceeded its time limit and was killed."""

    code: int | None
    wall: float
    cpu: float
    """User and system time."""
    megabytes: float
    """Peak resident memory. At least that of the process that started it, as Linux counts."""
    last_line: str
    """The last line it wrote to stderr."""


def measured_command(
    command: list[str], folder: Path, package: Path | None, threads: int | None, limit: float
) -> MeasuredCommand:
    """Run a command in a folder, with the onnxfde of the checkout `package`.

    `threads` limits the linear algebra; None leaves its default.
    """
    limits = {} if threads is None else dict.fromkeys(THREAD_VARIABLES, str(threads))
    paths = {} if package is None else {"PYTHONPATH": str(package)}
    with tempfile.TemporaryFile() as errors:
        start = time.perf_counter()
        process = subprocess.Popen(
            command,
            cwd=folder,
            env={**os.environ, **paths, **limits},
            stdout=subprocess.DEVNULL,
            stderr=errors,
        )
        ended, killed = 0, False
        while not ended:
            ended, status, used = os.wait4(process.pid, os.WNOHANG)
            if not ended and not killed and time.perf_counter() - start > limit:
                process.kill()
                killed = True
            time.sleep(0 if ended else POLL)
        wall = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        errors.seek(0)
        lines = errors.read().decode(errors="replace").strip().splitlines()
    return MeasuredCommand(
        code=None if killed else process.returncode,
        wall=wall,
        cpu=used.ru_utime + used.ru_stime,
        megabytes=used.ru_maxrss / 1024,
        last_line=lines[-1] if lines else "",
    )
