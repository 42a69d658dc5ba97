"""How much faster, and how sure: median(a) / median(b) of runs taken in turns, in several rounds.

Turn t of a and turn t of b met the same machine, and so did the turns next to it; each round has
sessions of its own. The interval is the middle 95 % of the ratio over resampled rounds, and in
these over resampled blocks of √n turns.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Rounds = Sequence[Sequence[float]]
FloatArray = npt.NDArray[np.float64]

RESAMPLES = 1000
MIDDLE = (2.5, 97.5)
WIDE = 1.15
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


def ratio_of(first: Rounds, other: Rounds, seed: int = 0) -> Ratio:
    """How many times longer `first` takes than `other`.

    >>> ratio_of([[2.0, 2.0], [2.0]], [[1.0, 1.0], [1.0]])
    Ratio(value=2.0, low=2.0, high=2.0)
    """
    rng = np.random.default_rng(seed)
    pairs = [paired(a, b) for a, b in zip(first, other, strict=True)]
    samples = [resampled(pair, rng) for pair in pairs]
    chosen = rng.integers(0, len(pairs), (RESAMPLES, len(pairs)))
    ratios = [
        ratio(np.concatenate([samples[round_][:, k] for round_ in rounds], axis=1))
        for k, rounds in enumerate(chosen)
    ]
    low, high = np.percentile(ratios, MIDDLE)
    return Ratio(ratio(np.concatenate(pairs, axis=1)), float(low), float(high))


def paired(first: Sequence[float], other: Sequence[float]) -> FloatArray:
    """The turns of one round that both have."""
    turns = min(len(first), len(other))
    return np.array([first[:turns], other[:turns]])


def resampled(pair: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Blocks of neighbouring turns, drawn anew RESAMPLES times."""
    turns = pair.shape[1]
    length = max(1, math.isqrt(turns))
    starts = rng.integers(0, turns, (RESAMPLES, -(-turns // length)))
    index = (starts[:, :, None] + np.arange(length)).reshape(RESAMPLES, -1)[:, :turns] % turns
    return pair[:, index]


def ratio(pair: FloatArray) -> float:
    """The ratio of medians."""
    above, below = np.median(pair, axis=1)
    return float(above / below)
