"""Measuring in a fresh process, so that neither memory nor warm caches carry over."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from typing import Any

THREAD_VARIABLES = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
"""What numpy's and scipy's linear algebra libraries read when they are loaded."""


def run_apart(
    module: str, *words: str, threads: int | None = None, timeout: float | None = None
) -> dict[str, Any]:
    """Run `python -m module words…` and parse the JSON object that it prints.

    `threads` limits the linear algebra; None leaves its default. A run that takes longer than
    `timeout` seconds raises `subprocess.TimeoutExpired`.
    """
    limits = {} if threads is None else dict.fromkeys(THREAD_VARIABLES, str(threads))
    done = subprocess.run(
        [sys.executable, "-m", module, *words],
        capture_output=True,
        text=True,
        check=True,
        timeout=timeout,
        env={**os.environ, **limits},
    )
    figures: dict[str, Any] = json.loads(done.stdout)
    return figures


def peak_megabytes() -> float:
    """The largest resident memory this process has had so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def load_note() -> str:
    """How busy the machine is now, for the page of a benchmark that measures time."""
    return f"Load when it began: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores."
