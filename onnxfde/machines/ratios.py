"""How much faster: median(a) / median(b) of runs taken in turns, with a 95 % interval.

Turn t of a and turn t of b ran under the same conditions, and neighbouring turns under similar
ones; each round has new sessions. The interval is the middle 95 % of the ratio over resampled
rounds, in each of which blocks of √n neighbouring turns are resampled.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from onnxfde.numbers import FloatArray

Rounds = Sequence[Sequence[float]]
"""Times of one model: for each round, the time of each turn."""

RESAMPLES = 1000
"""Ratios that the interval is taken from; chosen, as is usual for percentile intervals."""
INTERVAL_PERCENTILES = (2.5, 97.5)
"""The ends of a 95 % interval."""
VAGUE_FACTOR = 1.15
"""A ratio is vague if the ends of its interval are further apart than this factor; chosen."""


@dataclass(frozen=True)
class Ratio:
    """A ratio with its 95 % interval."""

    value: float
    low: float
    high: float

    @property
    def is_vague(self) -> bool:
        """Whether the interval is too wide for the ratio to mean anything."""
        return self.high > VAGUE_FACTOR * self.low


def ratio_of(first: Rounds, other: Rounds, seed: int = 0) -> Ratio:
    """How many times longer `first` takes than `other`.

    >>> ratio_of([[2.0, 2.0], [2.0]], [[1.0, 1.0], [1.0]])
    Ratio(value=2.0, low=2.0, high=2.0)
    """
    rng = np.random.default_rng(seed)
    pairs = [paired_turns(a, b) for a, b in zip(first, other, strict=True)]
    samples = [resampled_round(pair, rng) for pair in pairs]
    chosen = rng.integers(0, len(pairs), (RESAMPLES, len(pairs)))
    ratios = [
        median_ratio(np.concatenate([samples[round_][:, k] for round_ in rounds], axis=1))
        for k, rounds in enumerate(chosen)
    ]
    low, high = np.percentile(ratios, INTERVAL_PERCENTILES)
    return Ratio(median_ratio(np.concatenate(pairs, axis=1)), float(low), float(high))


def paired_turns(first: Sequence[float], other: Sequence[float]) -> FloatArray:
    """The times of the turns of one round that both models have, one row per model."""
    turns = min(len(first), len(other))
    return np.array([first[:turns], other[:turns]])


def resampled_round(pair: FloatArray, rng: np.random.Generator) -> FloatArray:
    """RESAMPLES rounds, each made of random blocks of neighbouring turns."""
    turns = pair.shape[1]
    length = max(1, math.isqrt(turns))
    starts = rng.integers(0, turns, (RESAMPLES, -(-turns // length)))
    index = (starts[:, :, None] + np.arange(length)).reshape(RESAMPLES, -1)[:, :turns] % turns
    return pair[:, index]


def median_ratio(pair: FloatArray) -> float:
    """The median of the first row divided by that of the second."""
    above, below = np.median(pair, axis=1)
    return float(above / below)
