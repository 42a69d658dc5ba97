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
    """At most so many are taken for each count."""
    counts: int = 1
    """At most so many are tried."""
    tried: int = 0
    best: int | None = None
    """The fewest neurons found so far."""
    cut: bool = False
    """Whether the deadline has ended the search."""
    hopeless: str | None = None
    """Why a longer search is not worth it."""
    done: int = 0

    def plan(self, counts: int, steps: int) -> None:
        """Begin a search over at most so many counts, each of at most so many steps."""
        self.counts, self.steps = max(counts, 1), max(steps, 1)
        self.tried, self.best, self.cut, self.hopeless, self.done = 0, None, False, None, 0

    def start(self) -> None:
        """Begin the next count."""
        self.counts = max(self.counts, self.tried + 1)
        self.done = self.tried * self.steps
        self.progress.at(self.done, self.counts * self.steps)

    def step(self, steps: int) -> bool:
        """Report some more steps; false if the search must end."""
        self.done = min(self.done + steps, (self.tried + 1) * self.steps)
        self.progress.at(self.done, self.counts * self.steps)
        return not self.over

    def finish(self, neurons: int, of: int) -> None:
        """Take note that a count was tried, and of the fewest `neurons` that it shows to do."""
        if self.cut:
            return
        self.tried += 1
        self.best = neurons if self.best is None else min(self.best, neurons)
        self.progress.at(self.tried * self.steps, self.counts * self.steps)
        counts = "1 count" if self.tried == 1 else f"{self.tried} counts"
        self.progress.found(f"{counts} tried, best {self.best:,} of {of:,} neurons")

    def give_up(self, reason: str) -> None:
        """Take note of why a longer search is not worth it."""
        self.hopeless = reason

    @property
    def over(self) -> bool:
        """Whether the time is over; if it is asked for and it is, the search counts as cut."""
        self.cut = self.cut or self.deadline.passed
        return self.cut

    @property
    def remark(self) -> str | None:
        """Why the search ended early, if it did."""
        if self.cut:
            return f"the time limit ended the search: {self.tried} of {self.counts} counts tried"
        return self.hopeless and f"a longer search is not worth it: {self.hopeless}"
