"""Child processes that do not outlive the process that started them."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

GRACE_SECONDS = 5.0
"""Time to clean up between SIGTERM and SIGKILL; chosen, not tuned."""


@dataclass(frozen=True)
class Finished:
    """How a process ended."""

    code: int
    out: str
    err: str
    expired: float | None = None
    """The timeout in seconds, if it ran out."""

    @property
    def reason(self) -> str:
        """Why it failed: the last line it wrote to stderr, else its signal or exit code."""
        if self.expired is not None:
            return too_late(self.expired)
        how = f"signal {-self.code}" if self.code < 0 else f"exit code {self.code}"
        return next(filter(str.strip, reversed(self.err.splitlines())), how).strip()


def too_late(timeout: float) -> str:
    """The message about a process that was stopped after `timeout` seconds."""
    return f"it took longer than {timeout:g} s; raise --timeout or lower --seconds"


def attended(
    command: Sequence[str],
    payload: IO[bytes] | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float | None = None,
    cwd: Path | None = None,
) -> Finished:
    """Run a command to its end and hold its standard input open until then.

    The runner stops when its standard input is closed, hence also when this process is killed.
    What it prints goes to files: a pipe would stay open as long as any process that it started.
    Raises OSError if the command cannot be started.
    """
    with (
        tempfile.TemporaryFile() as printed,
        tempfile.TemporaryFile() as errors,
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=printed, stderr=errors, env=env, cwd=cwd
        ) as process,
        ending(process),
        deadline(process, timeout) as expired,
    ):
        send_payload(process, payload)
        code = process.wait()
        out, err = text_in(printed), text_in(errors)
    late = timeout if expired.is_set() else None
    return Finished(code, out, err, late)


def send_payload(process: subprocess.Popen[bytes], payload: IO[bytes] | None) -> None:
    """Write the payload to a process, as far as it reads it."""
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError):
        if payload is not None:
            shutil.copyfileobj(payload, process.stdin)
            process.stdin.flush()


def text_in(file: IO[bytes]) -> str:
    """What a process wrote to a file."""
    file.seek(0)
    return file.read().decode(errors="replace")


@contextlib.contextmanager
def ending(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Whatever happens inside, the process has ended afterwards.

    Popen by itself leaves a process running that takes longer than 0.25 s to end after Ctrl-C.
    """
    try:
        yield
    finally:
        end_process(process)


def end_process(process: subprocess.Popen[bytes]) -> None:
    """Stop a process that still runs: SIGTERM first, SIGKILL after GRACE_SECONDS."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextlib.contextmanager
def deadline(process: subprocess.Popen[bytes], timeout: float | None) -> Iterator[threading.Event]:
    """Stop a process after `timeout` seconds; the event tells whether that happened."""
    expired = threading.Event()

    def expire() -> None:
        expired.set()
        end_process(process)

    timer = threading.Timer(min(timeout or 0.0, threading.TIMEOUT_MAX), expire)
    timer.daemon = True
    try:
        if timeout is not None:
            timer.start()
        yield expired
    finally:
        timer.cancel()
