"""The choices that options offer; imports nothing, so that `--help` stays fast."""

from collections.abc import Callable
from typing import Literal

Semantics = Literal["budget", "paper", "erode"]
Threshold = Literal["paper", "erode"]
Quotient = Literal["minimal", "refit", "single", "exact"]
Relation = Literal["forward", "backward"]
Norm = Literal["sum", "max"]
Linkage = Literal["closure", "diameter"]
Int8 = Literal["dynamic", "static"]

Tell = Callable[[int, int], None]
"""Hears how much of some work is done: steps done, and steps in all."""

DEFAULT_EPS = 0.1
DEFAULT_RANGE = (-1.0, 1.0)
DEFAULT_SEED = 0


def silent(done: int, total: int) -> None:
    """Hear nothing."""
