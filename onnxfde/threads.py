"""How many threads linear algebra may use.

Products of small matrices gain nothing from a second thread, and lose much if other work keeps the
cores busy, because the threads wait for each other. Only BLAS libraries already loaded are limited.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

SMALL_PROBLEM = 1_000_000
"""Weights of a layer below which one thread is used. Chosen; not tuned."""


@contextmanager
def few_threads(size: int) -> Iterator[None]:
    """Use one thread for a small problem, and all threads for others."""
    if size >= SMALL_PROBLEM:
        yield
        return
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1, user_api="blas"):
        yield
