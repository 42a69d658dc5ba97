"""How many threads may run: the policy for linear algebra and for onnxruntime.

    linear algebra   1 thread for a small layer or a small model file, else what the library takes
    onnxruntime      as many as it likes, since it gives small operators one thread by itself, but
                     no more than OMP_NUM_THREADS or OPENBLAS_NUM_THREADS allow

Products of small matrices gain nothing from a second thread, and lose much if other work keeps the
cores busy, because the threads wait for each other (benchmarks/threads.md). Only sizes and these
variables decide, never the load: the same input takes the same way. Nothing here raises a limit.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

SMALL_PROBLEM = 1_000_000
"""Weights of a layer below which one thread is used. Chosen by benchmarks/threads.md: at this size
a second thread saves a tenth of the time of a merge tree on idle cores, and makes it take four
times as long on busy ones."""
SMALL_MODEL = 4 * SMALL_PROBLEM
"""Bytes below which a model file is small: its layers have fewer float32 weights than that."""
LIMITS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")
"""The variables by which users limit threads."""


def allowed_threads(environment: Mapping[str, str]) -> int | None:
    """How many threads a user allows; None if the user does not say.

    >>> allowed_threads({"OMP_NUM_THREADS": "4,2", "OPENBLAS_NUM_THREADS": "3"})
    3
    """
    texts = [environment.get(name, "").split(",")[0].strip() for name in LIMITS]
    return min((int(t) for t in texts if t.isdecimal() and int(t)), default=None)


ALLOWED = allowed_threads(os.environ)
"""What the user allows. Read before `spare_threads` sets a limit that is not the user's."""


@contextmanager
def few_threads(size: int) -> Iterator[None]:
    """Use one thread for linear algebra on a layer with few weights, and no fewer on others."""
    if size >= SMALL_PROBLEM:
        yield
        return
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1, user_api="blas"):
        yield


def spare_threads(*models: Path) -> None:
    """Limit linear algebra to one thread for small models; call it before numpy is imported."""
    size = 0
    with suppress(OSError):  # what is wrong with the file is said when it is read
        size = sum(model.stat().st_size for model in models)
    if size < SMALL_MODEL:
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
