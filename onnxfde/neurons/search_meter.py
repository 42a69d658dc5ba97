"""How far a search over counts is, and whether it may go on.

    done = finished counts · steps of a count + steps at the present count,    total is fixed
"""

from __future__ import annotations

from dataclasses import dataclass, field

from onnxfde.deadline import Deadline
from onnxfde.progress import Progress


@dataclass(eq=False)
class SearchMeter:
    """Reports the steps of one count after the other, and ends them when the time is over."""

    progress: Progress = field(default_factory=Progress)
    deadline: Deadline = field(default_factory=Deadline)
    steps: int = 1
    """At most so many for each count."""
    counts: int = 1
    """At most so many are tried."""
    done: int = 0
    cut: bool = False
    """Whether the deadline has ended a search."""

    def plan(self, counts: int, steps: int) -> None:
        """Begin a search over this many counts, each of at most so many steps."""
        self.counts, self.steps, self.done = max(counts, 1), max(steps, 1), 0

    def start(self, tried: int) -> None:
        """Begin the next count."""
        self.done = tried * self.steps
        self.progress.at(self.done, self.counts * self.steps)

    def step(self, steps: int) -> bool:
        """Report some more steps; false if the search must end."""
        last = (self.done // self.steps + 1) * self.steps - 1
        self.done = min(self.done + steps, last)
        self.progress.at(self.done, self.counts * self.steps)
        return not self.over

    @property
    def over(self) -> bool:
        """Whether the time is over, which is remembered."""
        self.cut = self.cut or self.deadline.passed
        return self.cut
