"""How much faster, and how sure: median(a) / median(b) of runs taken in turns.

Turn t of a and turn t of b met the same machine, and so did the turns next to it; the interval is
the middle 95 % of the ratio over resampled blocks of √n turns.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

RESAMPLES = 1000
MIDDLE = (2.5, 97.5)
WIDE = 1.2
"""An interval whose ends are this factor apart says little."""


@dataclass(frozen=True)
class Ratio:
    """A ratio with the interval it is likely in."""

    value: float
    low: float
    high: float

    @property
    def is_vague(self) -> bool:
        """Whether the spread leaves the ratio without meaning."""
        return self.high > WIDE * self.low


def ratio_of(first: Sequence[float], other: Sequence[float], seed: int = 0) -> Ratio:
    """How many times longer `first` takes than `other`.

    >>> ratio_of([2.0, 2.0, 2.0], [1.0, 1.0, 1.0])
    Ratio(value=2.0, low=2.0, high=2.0)
    """
    turns = min(len(first), len(other))
    pairs = np.stack([np.asarray(first[:turns]), np.asarray(other[:turns])])
    length = max(1, math.isqrt(turns))
    rng = np.random.default_rng(seed)
    starts = rng.integers(0, turns, (RESAMPLES, -(-turns // length)))
    index = (starts[:, :, None] + np.arange(length)).reshape(RESAMPLES, -1)[:, :turns] % turns
    above, below = np.median(pairs[:, index], axis=2)
    low, high = np.percentile(above / below, MIDDLE)
    value = np.median(pairs[0]) / np.median(pairs[1])
    return Ratio(float(value), float(low), float(high))
