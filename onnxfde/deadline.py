"""When a search must end, if a user gave it only so much time.

end of layer i = now + (end of all − now) · work_i / Σ_{j ≥ i} work_j
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Deadline:
    """A moment of a clock; None if there is no hurry.

    >>> clock = iter([0.0, 3.0, 11.0]).__next__
    >>> deadline = Deadline.after(10.0, clock)
    >>> deadline.passed, deadline.passed
    (False, True)
    """

    moment: float | None = None
    clock: Callable[[], float] = time.monotonic

    @classmethod
    def after(cls, seconds: float | None, clock: Callable[[], float] = time.monotonic) -> Deadline:
        """So many seconds from now; never if that is None."""
        return cls(None if seconds is None else clock() + seconds, clock)

    @property
    def passed(self) -> bool:
        """Whether it is too late."""
        return self.moment is not None and self.clock() >= self.moment

    def for_part(self, share: float) -> Deadline:
        """The deadline of work that may take this share of the time that is left."""
        if self.moment is None:
            return self
        now = self.clock()
        return replace(self, moment=now + max(self.moment - now, 0.0) * share)
