"""How many threads linear algebra may take.

Products of small matrices gain nothing from a second thread, and lose much where other work keeps
the cores busy: their threads wait for each other. Only libraries that are loaded already are told.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

SMALL_PROBLEM = 1_000_000
"""Numbers in a problem, below which one thread is enough."""


@contextmanager
def few_threads(size: int) -> Iterator[None]:
    """One thread for a small problem, as many as there are for others."""
    if size >= SMALL_PROBLEM:
        yield
        return
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1, user_api="blas"):
        yield
