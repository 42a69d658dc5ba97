"""Several processes that try inputs side by side, and send what they find through pipes."""

from __future__ import annotations

import json
import os
import select
import time
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import IO

from benchmarks.fuzz.finding import Outcome, tried

Seed = tuple[str, int]


def outcomes(seeds: Sequence[Seed], jobs: int, deadline: float) -> Iterator[Outcome]:
    """The outcome of every input, as they come; none is begun after the deadline."""
    streams = [started(seeds[first::jobs], deadline) for first in range(jobs)]
    while streams:
        ready, _, _ = select.select(streams, [], [])
        for stream in ready:
            line = stream.readline()
            if line:
                yield Outcome(**json.loads(line))
            else:
                streams.remove(stream)
                os.wait()


def started(seeds: Sequence[Seed], deadline: float) -> IO[bytes]:
    """Fork a worker; returns the pipe with its outcomes, one per line.

    The pipe is not buffered here, so that `select` sees every line.
    """
    read, write = os.pipe()
    if os.fork():
        os.close(write)
        return open(read, "rb", 0)
    os.close(read)
    try:
        with open(write, "w", 1) as stream:
            for seed in seeds:
                if time.monotonic() < deadline:
                    stream.write(json.dumps(asdict(tried(*seed))) + "\n")
    except BaseException:  # noqa: BLE001 - a fault of the fuzzer, which must not go on as a copy
        traceback.print_exc()
    finally:
        os._exit(0)
