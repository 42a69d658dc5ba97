"""Whether a descent has come as low as it should, or will not in the steps that are left.

    there      f_t ≤ goal
    hopeless   f_t − (f_{t/2} − f_t) · log₂(T/t) > goal      of T steps

Each doubling of the steps lowers f by less than the one before: on random 64-256-10 and trained
digits by 0.45 to 0.7 times as much. So a fall as large as the last one, for each doubling that is
left, is more than can be hoped for. The same holds for the squared error if that is more than f,
because it is the largest under several assumptions about the inputs. It is measured at t = 4, 8, …,
and falls steadily only after the first 64 steps or so.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

FIRST_LOOK = 4
"""No descent is hopeless before so many steps: its first ones set the scale. Chosen; not tuned."""
ERROR_LOOK = 128
"""The same where errors are more than f. Measured: on MNIST with only a range of inputs known, the
error falls faster and faster in the first 64 steps."""
NEAR = 1.05
"""How far above the goal an error may be, by the last measurement, to be measured again. Chosen;
not tuned."""
LEVEL = 0.01
"""f must fall by this share before it is looked at again. Chosen; not tuned."""


@dataclass(eq=False)
class Chase:
    """Follows one descent of at most `steps` steps down to a goal.

    When it looks does not depend on the goal, except that it must be near: a higher goal looks
    wherever a lower one does, and is hopeless nowhere else.
    """

    goal: float
    steps: int
    level: float = LEVEL
    values: list[float] = field(default_factory=list)
    errors: list[float] = field(default_factory=list)
    """Squared errors as far as they were measured."""
    excess: float = 1.0
    """By how much the last of them was more than f."""

    def follow(self, value: float) -> bool:
        """Take note of f; true if the error may be at the goal, and f fell by a level."""
        before = self.values[-1] if self.values else math.inf
        self.values.append(value)
        near = value <= self.goal and value * self.excess <= NEAR * self.goal
        return near and self._level(value) != self._level(before)

    @property
    def due(self) -> bool:
        """Whether it is time to measure the error again: after 4, 8, 16, … steps."""
        done = len(self.values)
        return done >= FIRST_LOOK and done & (done - 1) == 0

    def measured(self, error: float) -> None:
        """Take note of the error."""
        self.errors.append(error**2)
        self.excess = error**2 / self.values[-1] if self.values[-1] else 1.0

    def _level(self, value: float) -> float:
        if not 0 < value < math.inf:
            return value
        return math.floor(math.log(value) / math.log1p(-self.level))

    @property
    def hopeless(self) -> bool:
        """Whether f, or the error, will not reach the goal."""
        done = len(self.values)
        if done <= FIRST_LOOK:
            return False
        if self._too_high(self.values[(done - 1) // 2], self.values[-1], done - 1):
            return True
        measured = FIRST_LOOK * 2 ** (len(self.errors) - 1)
        return measured >= ERROR_LOOK and self._too_high(self.errors[-2], self.errors[-1], measured)

    def _too_high(self, before: float, now: float, done: int) -> bool:
        """Whether what fell from `before` to `now` by the last doubling will stay too high."""
        return now - (before - now) * math.log2(max(self.steps / done, 1.0)) > self.goal
