"""A limit on the memory that running a model may take, so that allocating fails, not the machine.

On Linux the soft limit on private memory (RLIMIT_DATA) is lowered to what is in use plus an
allowance, and restored afterwards. It holds for the whole process, and is set in its main thread
only, so that two threads never restore it in the wrong order. Other systems have no such limit, and
none is set where the system does not tell what is in use.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

ALLOWANCE = 5 * 2**27
"""Bytes that a run may allocate beside what its weights need. Chosen: with what Python and the
libraries take, and with the samples, a small model stays below 1 GB; not tuned."""
WEIGHT_COPIES = 8
"""How many times its own size loading a model may take. Chosen: its bytes, the parsed model, the
session's weights, packed and transposed copies; not tuned."""

USUAL_STACK = 2**23
"""Bytes of a thread's stack if there is no limit on stacks: at least what glibc takes then."""


def allowance(model_bytes: int) -> int:
    """Bytes that running a model of this size may allocate."""
    return ALLOWANCE + WEIGHT_COPIES * model_bytes


@contextmanager
def limited_memory(extra: int = ALLOWANCE) -> Iterator[None]:
    """Let allocations fail that take more than `extra` bytes in all, where the system can."""
    in_main_thread = threading.current_thread() is threading.main_thread()
    if sys.platform != "linux" or resource is None or not in_main_thread:
        yield
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    used = private_bytes()
    limit = used + extra
    if not used or (soft != resource.RLIM_INFINITY and soft <= limit):
        yield
        return
    resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def private_bytes() -> int:
    """Private memory of this process in bytes, as RLIMIT_DATA counts it; 0 if it is not known."""
    try:
        pages = Path("/proc/self/statm").read_text().split()[5]
    except OSError:
        return 0
    return int(pages) * resource.getpagesize()


def thread_stacks() -> int:
    """Bytes that the stacks of one thread per processor take, all of which the limit counts."""
    if resource is None:
        return 0
    soft, _ = resource.getrlimit(resource.RLIMIT_STACK)
    size = USUAL_STACK if soft == resource.RLIM_INFINITY else soft
    return (os.cpu_count() or 1) * size
