"""How long work tells what it is doing, how far it is, and where the time goes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace


@dataclass(frozen=True)
class Progress:
    """Hears of long work. By default nobody listens, and only the time is kept."""

    say: Callable[[str], None] = lambda text: None
    """What is being done now."""
    at: Callable[[int, int], None] = lambda done, total: None
    """How many steps of that are done, and how many there are."""
    seconds: dict[str, float] = field(default_factory=dict)
    """Time spent so far, by stage."""

    @contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        """Add the time spent inside to a stage."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[stage] = self.seconds.get(stage, 0.0) + time.perf_counter() - start

    def restarted(self) -> Progress:
        """The same listener, for a new piece of work that has taken no time yet."""
        return replace(self, seconds={})
