"""How far a number that was measured on rows can be trusted."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnxfde.estimates import (
    Estimate,
    RowChanges,
    paired_interval,
    relative_error,
    share_interval,
)
from tests.models import Array

DRAWS = 600


def covered(estimate: Callable[[np.random.Generator], Estimate], truth: float) -> float:
    """How often an interval holds the truth."""
    found = (estimate(np.random.default_rng(seed)).interval for seed in range(DRAWS))
    return float(np.mean([ends is not None and ends[0] <= truth <= ends[1] for ends in found]))


@pytest.mark.parametrize("rows", [30, 120, 1000])
def test_the_interval_of_a_relative_error_holds_it_19_times_in_20(rows: int) -> None:
    """Outputs of which some rows change far more than others; 0.93 is three standard errors off."""

    def estimate(rng: np.random.Generator) -> Estimate:
        y = rng.normal(size=(rows, 3))
        noise = rng.normal(size=y.shape) * rng.gamma(2.0, size=(rows, 1))
        return relative_error(y, y + 0.1 * noise)

    truth = 0.1 * math.sqrt(6.0)
    assert covered(estimate, truth) > (0.93 if rows > 30 else 0.90)


@pytest.mark.parametrize("rows", [60, 120])
def test_the_interval_holds_an_error_of_which_few_rows_make_most(rows: int) -> None:
    """Changes are squares of normal numbers, so that losses have heavy tails; 0.92 is three
    standard errors below 0.95."""

    def estimate(rng: np.random.Generator) -> Estimate:
        y = rng.normal(size=(rows, 1))
        return relative_error(y, y + 0.1 * rng.normal(size=y.shape) ** 2)

    assert covered(estimate, 0.1 * math.sqrt(3.0)) > 0.92


def test_an_interval_never_says_that_an_error_may_be_none() -> None:
    """One row has nearly all of it."""
    y = np.random.default_rng(0).normal(size=(60, 1))
    found = relative_error(y, y + np.where(np.arange(60) == 7, 1.0, 1e-3)[:, None])
    assert found.interval is not None
    low, high = found.interval
    assert 0 < low < found.value / 3 < 3 * found.value < high < 30 * found.value


def test_the_interval_of_numbers_of_both_signs_is_around_their_mean() -> None:
    found = Estimate.mean(np.random.default_rng(0).normal(size=50))
    assert found.interval is not None
    assert found.interval[0] < 0 < found.interval[1]
    assert sum(found.interval) == pytest.approx(2 * found.value, rel=1e-9)


def test_the_interval_of_a_skewed_mean_reaches_further_up() -> None:
    found = Estimate.mean(np.random.default_rng(0).exponential(size=60))
    assert found.interval is not None
    low, high = found.interval
    assert high - found.value > 1.2 * (found.value - low)


@pytest.mark.parametrize("share", [0.5, 0.9, 0.98])
def test_the_interval_of_an_accuracy_holds_it(share: float) -> None:
    def estimate(rng: np.random.Generator) -> Estimate:
        found = float(np.mean(rng.random(120) < share))
        return Estimate(found, 120, interval=share_interval(found, 120))

    assert covered(estimate, share) > 0.92


def test_no_changed_label_is_not_known_to_mean_none_ever() -> None:
    low, high = paired_interval(0, 0, 120)
    assert low == pytest.approx(-high, rel=1e-12)
    assert 0.01 < high < 0.025


@given(st.integers(0, 50), st.integers(0, 50), st.integers(0, 400))
def test_an_interval_of_lost_points_holds_what_was_seen(lost: int, won: int, more: int) -> None:
    rows = lost + won + more + 1
    low, high = paired_interval(lost, won, rows)
    assert -1 <= low <= high <= 1
    assert low <= (lost - won) / (rows + 2) <= high


def test_twice_as_sure_with_four_times_the_rows() -> None:
    def width(rows: int) -> float:
        ends = Estimate.mean(np.random.default_rng(1).normal(1.0, 2.0, rows)).interval
        assert ends is not None
        return ends[1] - ends[0]

    assert width(4 * 500) == pytest.approx(width(500) / 2, rel=0.1)
    few = Estimate.mean(np.random.default_rng(1).normal(1.0, 2.0, 50))
    assert few.rows_wanted == 200
    assert Estimate.mean(np.random.default_rng(1).normal(5.0, 0.1, 50)).rows_wanted is None


@given(st.integers(2, 40), st.integers(1, 4), st.floats(1e-3, 1e3), st.integers(0, 999))
def test_the_unit_of_outputs_makes_no_difference(
    rows: int, columns: int, scale: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    y, change = rng.normal(size=(rows, columns)), rng.normal(size=(rows, columns))
    one, other = relative_error(y, y + change), relative_error(scale * y, scale * (y + change))
    assert other.value == pytest.approx(one.value, rel=1e-9)
    expected = np.linalg.norm(change) / np.linalg.norm(y - y.mean(axis=0))
    assert one.value == pytest.approx(expected, rel=1e-9)


def test_rows_of_one_sample_count_once() -> None:
    """Ten equal rows a sample say no more than one of them."""
    rng = np.random.default_rng(0)
    y = rng.normal(size=(50, 3))
    new = y + 0.1 * rng.normal(size=y.shape)
    plain = relative_error(y, new)
    tenfold = relative_error(each_ten_times(y), each_ten_times(new), rows_each=10)
    assert tenfold.rows == plain.rows == 50
    assert tenfold.interval == pytest.approx(plain.interval, rel=1e-9)


def each_ten_times(rows: Array) -> Array:
    return np.repeat(rows, 10, axis=0)


def test_what_is_not_finite_in_the_original_is_left_out() -> None:
    y = np.arange(12.0).reshape(6, 2)
    y[0, 0] = np.nan
    found = RowChanges.between(y, y + 1)
    assert found.change.tolist() == [1, 2, 2, 2, 2, 2]
    assert found.value == pytest.approx(math.sqrt(11 / found.spread.sum()), rel=1e-12)
    assert relative_error(y, np.full_like(y, np.inf)).value == math.inf
