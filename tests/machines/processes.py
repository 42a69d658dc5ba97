"""Starting bench as a process, and looking at processes while they run."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path


@contextlib.contextmanager
def running_bench(
    model: Path, *options: str, **environment: str
) -> Iterator[subprocess.Popen[bytes]]:
    """The command `bench` in a process that is killed at the end of the block."""
    command = [sys.executable, "-m", "onnxfde", "bench", str(model), *options]
    env, null = {**os.environ, **environment}, subprocess.DEVNULL
    with subprocess.Popen(command, env=env, stdout=null, stderr=null) as process:
        try:
            yield process
        finally:
            process.kill()


def runners(folder: Path, *words: str) -> list[int]:
    """Process ids of runners with files in this folder and these words among their arguments."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            text = entry.read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if all(word in text for word in (str(folder), "runner.py", *words)):
                found.append(int(entry.parent.name))
    return found


def wait_until(condition: Callable[[], bool], seconds: float = 30.0) -> bool:
    """Wait until a condition holds, at most this long; return whether it does."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True
