"""How long-running work reports what it is doing, how far it is, and how long stages take."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace


@dataclass
class Outcome:
    """What became of a layer, in a few words."""

    text: str = ""


@dataclass(frozen=True)
class Progress:
    """Receives reports of long-running work; by default it ignores them and only keeps times."""

    say: Callable[[str], None] = lambda text: None
    """What is being done now."""
    at: Callable[[int, int], None] = lambda done, total: None
    """How many steps of that are done, and how many there are in total."""
    found: Callable[[str], None] = lambda text: None
    """What was tried so far and the best that was found."""
    layer: Callable[[str], None] = lambda text: None
    """Which layer of how many is being worked on; an empty text after the last."""
    note: Callable[[str], None] = lambda text: None
    """What became of a layer, as one line."""
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

    @contextmanager
    def on_layer(self, title: str) -> Iterator[Outcome]:
        """Work on a layer; at the end, its outcome and how long it took are noted."""
        start, outcome = time.perf_counter(), Outcome()
        self.layer(title)
        yield outcome
        self.note(f"{title}: {outcome.text} ({time.perf_counter() - start:.1f} s)")
        self.layer("")

    def restarted(self) -> Progress:
        """The same receiver for new work, with all times at zero."""
        return replace(self, seconds={})

    def without_notes(self) -> Progress:
        """The same receiver, which hears no more outcomes."""
        return replace(self, note=lambda text: None)
