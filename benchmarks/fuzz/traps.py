"""Hand-made traps."""

from __future__ import annotations

from benchmarks.fuzz.cases import Case

TRAPS: dict[str, list[Case]] = {}


def trap_case(name: str, number: int) -> Case:
    """A trap with one of its command lines."""
    return TRAPS[name][number]
