"""How long work tells what it is doing: where the time goes, and how far it is."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

Tell = Callable[[int, int], None]
"""Hears how much of some work is done: steps done, and steps in all."""


def silent(done: int, total: int) -> None:
    """Hear nothing."""


@dataclass
class Work:
    """How a pass tells what it is doing: where the time goes, and how far it is."""

    seconds: dict[str, float] = field(default_factory=dict)
    say: Callable[[str], None] = lambda text: None
    tick: Callable[[], None] = lambda: None
    tell: Tell = silent

    @contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        """Add the time spent inside to a stage."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[stage] = self.seconds.get(stage, 0.0) + time.perf_counter() - start
