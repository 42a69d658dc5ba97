"""Looking at processes while they run."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from pathlib import Path


def runners(folder: Path, *words: str) -> list[int]:
    """Processes of runners with files in this folder, and these words among their arguments."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            text = entry.read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if all(word in text for word in (str(folder), "runner.py", *words)):
                found.append(int(entry.parent.name))
    return found


def wait_until(condition: Callable[[], bool], seconds: float = 30.0) -> bool:
    """Whether a condition holds, at the latest after a while."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True
