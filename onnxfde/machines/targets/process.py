"""Child processes that end when whoever started them does."""

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


@dataclass(frozen=True)
class Finished:
    """How a process ended."""

    code: int
    out: str
    err: str
    expired: float | None = None
    """The seconds it was given, if they were too few."""

    @property
    def reason(self) -> str:
        """Why it failed, as far as it said so."""
        if self.expired is not None:
            return too_late(self.expired)
        how = f"signal {-self.code}" if self.code < 0 else f"exit code {self.code}"
        return next(filter(str.strip, reversed(self.err.splitlines())), how).strip()


def too_late(timeout: float) -> str:
    """What to say of a process that was given up."""
    return f"it took longer than {timeout:g} s; raise --timeout or lower --seconds"


def attended(
    command: Sequence[str],
    payload: IO[bytes] | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float | None = None,
    cwd: Path | None = None,
) -> Finished:
    """Run a command whose standard input stays open for as long as somebody waits for it.

    Raises OSError if it cannot be started.
    """
    with (
        tempfile.TemporaryFile() as errors,
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, env=env, cwd=cwd
        ) as process,
        deadline(process, timeout) as expired,
    ):
        try:
            out = talk(process, payload)
            code = process.wait()
        finally:
            end(process)
        errors.seek(0)
        text = errors.read().decode(errors="replace")
    late = timeout if expired.is_set() else None
    return Finished(code, out.decode(errors="replace"), text, late)


def talk(process: subprocess.Popen[bytes], payload: IO[bytes] | None) -> bytes:
    """Hand over the payload and listen to the end."""
    assert process.stdin is not None
    assert process.stdout is not None
    with contextlib.suppress(BrokenPipeError):
        if payload is not None:
            shutil.copyfileobj(payload, process.stdin)
            process.stdin.flush()
    return process.stdout.read()


def end(process: subprocess.Popen[bytes]) -> None:
    """Stop a process that still runs: gently, then not."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()


@contextlib.contextmanager
def deadline(process: subprocess.Popen[bytes], timeout: float | None) -> Iterator[threading.Event]:
    """Stop a process that takes too long, and say so."""
    expired = threading.Event()

    def expire() -> None:
        expired.set()
        end(process)

    timer = threading.Timer(min(timeout or 0.0, threading.TIMEOUT_MAX), expire)
    if timeout is not None:
        timer.start()
    try:
        yield expired
    finally:
        timer.cancel()
