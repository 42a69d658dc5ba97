"""An action in a forked child: what it wrote, how it ended, what it cost.

A fork of a process that has imported everything starts in milliseconds, so thousands of commands
can each have a process for themselves.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

PATIENCE = 4.0
"""Wall time allowed for each second of CPU time, on a machine shared with other work; chosen."""
POLL = 0.003
"""Seconds between two looks at the child; chosen."""


@dataclass(frozen=True)
class Ended:
    """How a child ended."""

    code: int
    """The exit code; −N after signal N."""
    output: str
    errors: str
    seconds: float
    """CPU time, user and system."""
    megabytes: float
    """The largest resident memory."""
    timed_out: bool


def run_forked(action: Callable[[], object], folder: Path, seconds: float) -> Ended:
    """Run an action in a child whose working folder, temporary folder and limits are its own.

    The child may use so many seconds of CPU time; after that it is killed with all its children.
    """
    streams = folder / "stdout", folder / "stderr"
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if not pid:
        _become(action, folder, streams, seconds)
    status, usage, late = _awaited(pid, seconds)
    code = os.waitstatus_to_exitcode(status)
    output, errors = (path.read_text(errors="replace") for path in streams)
    for path in streams:
        path.unlink()
    return Ended(
        code,
        output,
        errors,
        usage.ru_utime + usage.ru_stime,
        usage.ru_maxrss / 1024,
        late or code == -signal.SIGXCPU,
    )


def _awaited(pid: int, seconds: float) -> tuple[int, resource.struct_rusage, bool]:
    """The child's status and costs, and whether it had to be killed."""
    deadline, late = time.monotonic() + PATIENCE * seconds, False
    while True:
        found, status, usage = os.wait4(pid, os.WNOHANG)
        if found:
            return status, usage, late
        if not late and time.monotonic() > deadline:
            os.killpg(pid, signal.SIGKILL)
            late = True
        time.sleep(POLL)


def _become(
    action: Callable[[], object], folder: Path, streams: tuple[Path, Path], seconds: float
) -> None:
    """The child's life, which ends here with the exit code that Python would give."""
    code = 1
    try:
        os.setsid()
        limit = int(seconds)
        resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 5))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        os.chdir(folder)
        _redirect(streams)
        action()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    finally:
        if sys.exc_info()[0] is not None:
            traceback.print_exc()  # as the interpreter would
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _redirect(streams: tuple[Path, Path]) -> None:
    """Standard input from nowhere, standard output and error to files."""
    nowhere = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nowhere, 0)
    for number, path in enumerate(streams, 1):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), number)
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
