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
"""Seconds between two looks at a command, at its time and its memory; chosen."""
MOST_MEMORY = 0.6
"""The share of the machine's memory at which a command is killed, before the machine suffers;
chosen."""


@dataclass(frozen=True)
class MeasuredCommand:
    """What a command took; `code` is None if it took too much time or memory and was killed."""

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

    `threads` limits the linear algebra; None leaves its default. Python may keep compiled modules,
    as it does when a package is installed.
    """
    limits = {} if threads is None else dict.fromkeys(THREAD_VARIABLES, str(threads))
    paths = {} if package is None else {"PYTHONPATH": str(package)}
    environment = {**os.environ, **paths, **limits}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    with tempfile.TemporaryFile() as errors:
        start = time.perf_counter()
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=errors,
        )
        ended, killed = 0, False
        while not ended:
            ended, status, used = os.wait4(process.pid, os.WNOHANG)
            late = time.perf_counter() - start > limit
            if not ended and not killed and (late or resident_share(process.pid) > MOST_MEMORY):
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


def resident_share(process: int) -> float:
    """The share of the machine's memory that a process has now; 0 if it has just ended."""
    try:
        pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    except (OSError, IndexError):
        return 0.0
    return pages / os.sysconf("SC_PHYS_PAGES")
