"""The commands that build a set-up: they run side by side, and a failure becomes one message."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from onnxfde.errors import TargetError
from onnxfde.machines.targets.sysroot import SYSROOT_NAME

USE_A_BOARD = "measure on a board with --target ssh://user@host"
"""What to do where there can be no set-up."""


@dataclass(frozen=True)
class Command:
    """A command, its name in messages, and its environment if not that of this process."""

    label: str
    arguments: Sequence[str]
    environment: Mapping[str, str] | None = None


def run_commands(temporary: Path, *commands: Command) -> list[str]:
    """Run commands side by side and return what they print; none of them outlives this call."""
    started: list[subprocess.Popen[str]] = []
    try:
        started.extend(start_command(command, temporary) for command in commands)
        outcomes = [process.communicate() for process in started]
    finally:
        for process in started:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.communicate()
    for command, process, (_, err) in zip(commands, started, outcomes, strict=True):
        if process.returncode:
            reason = complaint(err) or f"exit code {process.returncode}"
            raise TargetError(
                f"{SYSROOT_NAME} cannot be set up: {command.label} failed ({reason}); "
                f"try again, or {USE_A_BOARD}"
            )
    return [out for out, _ in outcomes]


def start_command(command: Command, temporary: Path) -> subprocess.Popen[str]:
    """Start a command in a new process group; of open files it inherits only the lock."""
    ours = {**os.environ, "LC_ALL": "C", "PIP_USER": "0", "TMPDIR": str(temporary)}
    return subprocess.Popen(
        command.arguments,
        env=ours if command.environment is None else command.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        close_fds=False,
        process_group=0,
    )


def complaint(text: str) -> str:
    """The most telling line of an error output: what could not be fetched, else the last error."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    unreachable = [line for line in lines if "Failed to fetch" in line][:1]
    errors = [line for line in lines if line.startswith(("E: ", "ERROR: "))]
    return (unreachable or errors[-1:] or lines[-1:] or [""])[0]
