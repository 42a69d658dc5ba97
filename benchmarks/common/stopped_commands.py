"""The command line in a forked process that is stopped at a chosen moment.

Moments are counted in Python's audit events (before a file is opened for writing, renamed, removed,
a folder made or a lock taken), in system calls (strace, before the call), or in seconds.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from onnxfde.__main__ import start

LOADED_FIRST = (
    "onnxfde.pipeline", "onnxfde.command.progress_bar", "onnxfde.command.report_table",
    "scipy.linalg", "threadpoolctl", "pydantic",
)  # fmt: skip
"""Modules that a command loads as it needs them; in forks they are there already."""
for module in LOADED_FIRST:
    with contextlib.suppress(ImportError):
        importlib.import_module(module)

EVENTS = (
    "open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.link", "os.chmod", "fcntl.flock",
)  # fmt: skip
"""Audit events of calls that change a file, a folder or a lock."""
CALLS = (
    "write", "fsync", "copy_file_range", "rename", "link", "linkat", "unlink", "unlinkat", "chmod",
    "mkdir", "rmdir", "flock",
)  # fmt: skip
"""System calls before which a process can be killed by strace."""
PATIENCE = 60.0
"""Seconds after which a command is taken for hanging; chosen."""
HUNG = -1
"""The exit code of a command that was taken for hanging."""

Kind = Literal["never", "event", "call", "time", "limit"]


@dataclass(frozen=True)
class Stop:
    """When a command is stopped, and how."""

    kind: Kind = "never"
    at: float = 0
    """The number of the event or call, seconds, or bytes that a file may have."""
    signal: int = signal.SIGKILL
    call: str = ""


@dataclass(frozen=True)
class Ended:
    """How a command ended: its exit code (negative: a signal), stderr and events."""

    code: int
    stderr: str
    seconds: float


class Counter:
    """An audit hook that stops its process before the n-th event that concerns a folder."""

    def __init__(self, folder: Path, stop: Stop) -> None:
        """Count nothing yet."""
        self.folder, self.stop, self.count = os.path.realpath(folder), stop, 0

    def __call__(self, event: str, args: tuple[Any, ...]) -> None:
        """Count an event."""
        if event not in EVENTS or not self.concerns(event, args):
            return
        self.count += 1
        if self.stop.kind == "event" and self.count == self.stop.at:
            os.kill(os.getpid(), self.stop.signal)

    def concerns(self, event: str, args: tuple[Any, ...]) -> bool:
        """Whether an event changes something in the folder."""
        if event == "fcntl.flock":
            return True
        if event == "open" and not (args[2] or 0) & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            return False
        paths = [os.fsdecode(a) for a in args if isinstance(a, str | bytes | Path)]
        relative = event != "open" and isinstance(args[-1], int) and args[-1] >= 0
        return relative or any(path.startswith(self.folder) for path in paths)


def forked(words: list[str], folder: Path, stop: Stop, gate: int, stderr: int) -> int:
    """Start a command in a fork that waits for a byte; returns its process id.

    Signals wait until it is ready: Python reports those that come during a fork.
    """
    signals = (signal.SIGINT, signal.SIGTERM)
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    process = os.fork()
    if process:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)
        return process
    code = 1
    try:
        for number in signals:
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.dup2(os.open(os.devnull, os.O_RDWR), 1)
        os.dup2(stderr, 2)
        sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
        if stop.kind == "limit":
            resource.setrlimit(resource.RLIMIT_FSIZE, (int(stop.at), int(stop.at)))
        os.read(gate, 1)
        hook = Counter(folder, stop)
        sys.addaudithook(hook)
        sys.argv = ["onnxfde", *words]
        signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)
        code = run_main()
        if stop.kind == "never":
            print(f"events {hook.count}", file=sys.stderr)
        sys.stderr.flush()
    finally:
        os._exit(code)


def run_main() -> int:
    """The exit code of the command line."""
    try:
        start()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # noqa: BLE001 - what a user would see is what is counted
        traceback.print_exc()
        return 1
    return 0


@dataclass(eq=False)
class Started:
    """A command that runs."""

    process: int
    stop: Stop
    gate: int
    stderr: int
    begun: float = 0.0
    tracer: subprocess.Popen[str] | None = None

    @classmethod
    def of(cls, words: list[str], folder: Path, stop: Stop) -> Started:
        """Fork a command; it waits to be released."""
        wait, gate = os.pipe()
        stderr, end = os.pipe()
        process = forked(words, folder, stop, wait, end)
        os.close(wait)
        os.close(end)
        started = cls(process, stop, gate, stderr)
        if stop.kind == "call":
            number = signal.Signals(stop.signal).name
            inject = f"inject={stop.call}:signal={number}:when={int(stop.at)}"
            started.tracer = traced(process, stop.call, inject, os.devnull)
        return started

    def release(self) -> None:
        """Let the command begin."""
        self.begun = time.monotonic()
        os.write(self.gate, b"x")

    def ended(self) -> Ended:
        """Wait for the end, or bring it about."""
        if self.stop.kind == "time":
            time.sleep(self.stop.at)
            os.kill(self.process, self.stop.signal)
        code = HUNG
        while time.monotonic() - self.begun < PATIENCE:
            found, status = os.waitpid(self.process, os.WNOHANG)
            if found:
                code = os.waitstatus_to_exitcode(status)
                break
            time.sleep(0.002)
        else:
            os.kill(self.process, signal.SIGKILL)
            os.waitpid(self.process, 0)
        seconds = time.monotonic() - self.begun
        with os.fdopen(self.stderr, "r", errors="replace") as stream:
            text = stream.read()
        os.close(self.gate)
        if self.tracer is not None:
            self.tracer.communicate(timeout=PATIENCE)
        return Ended(code, text, seconds)


def traced(process: int, calls: str, inject: str, log: str) -> subprocess.Popen[str]:
    """strace, attached to a process."""
    words = ["strace", "-f", "-p", str(process), "-o", log, "-e", f"trace={calls}"]
    found = subprocess.Popen(
        [*words, *(["-e", inject] if inject else [])], stderr=subprocess.PIPE, text=True
    )
    assert found.stderr is not None
    if "attached" not in found.stderr.readline():
        raise ChildProcessError("strace cannot attach to a process")
    return found


def run(words: list[str], folder: Path, stop: Stop | None = None) -> Ended:
    """Run one command to its end."""
    started = Started.of(words, folder, stop or Stop())
    started.release()
    return started.ended()


def calls_of(words: list[str], folder: Path) -> dict[str, int]:
    """How often a command makes each of the system calls."""
    with tempfile.TemporaryDirectory() as scratch:
        log = Path(scratch) / "calls"
        started = Started.of(words, folder, Stop())
        started.tracer = traced(started.process, ",".join(CALLS), "", str(log))
        started.release()
        started.ended()
        names = [
            line.split()[1].split("(")[0] for line in log.read_text().splitlines() if "(" in line
        ]
    return {call: names.count(call) for call in CALLS if call in names}


def has_strace() -> bool:
    """Whether strace is here and may be used."""
    if shutil.which("strace") is None:
        return False
    done = subprocess.run(["strace", "-o", os.devnull, "true"], capture_output=True)
    return done.returncode == 0
