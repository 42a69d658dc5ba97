"""Ratios of runs that were taken in turns."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnxfde.ratios import ratio_of

times = st.lists(st.floats(1e-6, 10.0), min_size=1, max_size=60)


@given(times, st.floats(0.1, 10.0))
def test_a_constant_factor_is_found_exactly_whatever_the_noise(
    base: list[float], factor: float
) -> None:
    found = ratio_of([factor * t for t in base], base)
    for value in (found.value, found.low, found.high):
        assert value == pytest.approx(factor, rel=1e-12)


@given(times, times)
def test_a_ratio_lies_between_the_extremes(first: list[float], other: list[float]) -> None:
    found, turns = ratio_of(first, other), min(len(first), len(other))
    least = min(first[:turns]) / max(other[:turns])
    most = max(first[:turns]) / min(other[:turns])
    for value in (found.low, found.value, found.high):
        assert least * (1 - 1e-12) <= value <= most * (1 + 1e-12)


def test_the_interval_holds_the_truth_about_as_often_as_it_says() -> None:
    """Noise that stays for many turns, as on a busy machine; 95 % are meant, 85 % are asked for."""
    rng, hits, tries = np.random.default_rng(0), 0, 100
    for seed in range(tries):
        busy = np.repeat(rng.exponential(0.3, 40), 10)
        first = 2.0 * (1 + busy) * rng.lognormal(0, 0.05, 400)
        other = (1 + busy) * rng.lognormal(0, 0.05, 400)
        found = ratio_of(first.tolist(), other.tolist(), seed)
        hits += found.low <= 2.0 <= found.high
    assert hits >= 85


def test_wild_times_are_called_vague_and_steady_ones_are_not() -> None:
    rng = np.random.default_rng(0)
    steady = rng.normal(1.0, 0.01, 200)
    wild = rng.lognormal(0, 1.5, 20)
    assert ratio_of(wild.tolist(), wild[::-1].tolist()).is_vague
    found = ratio_of((3 * steady).tolist(), steady[::-1].tolist())
    assert not found.is_vague
    assert found.value == pytest.approx(3.0, rel=0.02)
