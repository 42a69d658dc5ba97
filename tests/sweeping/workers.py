"""Workers of a Dask cluster that nobody starts again."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from distributed import Client

SECONDS_TO_JOIN = 60


@contextmanager
def worker_of(address: str) -> Iterator[subprocess.Popen[bytes]]:
    """A worker process that has joined a cluster; it is killed at the end of the block."""
    command = [sys.executable, "-m", "distributed.cli.dask_worker", address, "--nthreads", "1"]
    with subprocess.Popen(
        [*command, "--no-nanny", "--no-dashboard"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        try:
            with Client(address, timeout=SECONDS_TO_JOIN, set_as_default=False) as client:
                client.wait_for_workers(1, timeout=SECONDS_TO_JOIN)
            yield process
        finally:
            process.kill()
