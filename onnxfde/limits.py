"""Limits on a whole model as users write them, and how options and numbers are told apart."""

from __future__ import annotations

import math
from numbers import Integral, Real
from typing import Any, Literal, get_args

from onnxfde.errors import UsageError

Limit = int | float
"""At most so many (a whole number), or at most this share of what the original has (up to 1.0)."""
GoalKind = Literal["error", "drop", "params", "macs", "bytes", "latency"]
GOALS: tuple[GoalKind, ...] = get_args(GoalKind)
SIZE_GOALS = ("params", "macs", "bytes")
"""Goals that limit how large the model is."""
LOSS_GOALS = ("error", "drop")
"""Goals that limit how much worse it may be."""
SHARE_SLACK = 1e-9
"""Subtracted before a share of neurons is rounded up, so that 7 % of 100 (in floating point
7.000000000000001) are 7. Chosen: far above float64's rounding, far below one neuron."""


def check_limit(name: str, limit: Limit | None) -> None:
    """Refuse a limit that is neither a number of things nor a share."""
    if limit is None or (isinstance(limit, int) and limit >= 1):
        return
    if not 0 < limit <= 1:
        raise UsageError(
            f"{option(name)} {limit:g} is neither a whole number above 0 nor a share up to 100%"
        )


def latency_limit(text: str) -> tuple[float, bool]:
    """Milliseconds, or a share of the original's time, and whether it is a share.

    >>> latency_limit("60%"), latency_limit("2.5ms")
    ((0.6, True), (2.5, False))
    """
    share = text.endswith("%")
    try:
        number = float(text.removesuffix("%" if share else "ms"))
    except ValueError:
        number = math.nan
    if not (0 < number < math.inf) or (share and number >= 100):
        raise UsageError(f"--max-latency {text}: give milliseconds or a share below 100%")
    return (number / 100 if share else number), share


def limit_of(limit: Limit, whole: int) -> int:
    """How many a limit allows, of so many.

    >>> limit_of(0.5, 301), limit_of(200, 301)
    (150, 200)
    """
    return limit if isinstance(limit, int) else math.floor(limit * whole + SHARE_SLACK)


def option(name: str) -> str:
    """How an option is written on the command line."""
    return f"--{name.replace('_', '-')}"


def is_number(value: object, kind: type = Real) -> bool:
    """Whether a value is a number of a kind; true and false are not numbers."""
    return isinstance(value, kind) and not isinstance(value, bool)


def plain_number(value: Any) -> Any:
    """A number as an int or a float, whatever type it has; anything else as it is."""
    if is_number(value, Integral):
        return int(value)
    return float(value) if is_number(value) else value
