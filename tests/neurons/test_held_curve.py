"""Errors of a selection on new rows: what a fit knows by heart does not count."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from onnxfde.neurons.block_elimination import Moments, eliminate_units
from onnxfde.neurons.held_curve import expected_errors, held_square, selected_units
from onnxfde.numbers import FloatArray

UNITS, BLOCK, OUTPUTS = 12, 3, 2


def rows(count: int, seed: int) -> tuple[FloatArray, FloatArray]:
    """Features of which some follow from others, and what a reader makes of them."""
    made = np.random.default_rng(99)
    mix = made.normal(size=(20, UNITS * BLOCK))
    weights = made.normal(size=(UNITS * BLOCK, OUTPUTS))
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(count, 20)) @ mix + rng.normal(size=(count, UNITS * BLOCK))
    return features, features @ weights


def moments(count: int, held: int) -> Moments:
    features, targets = rows(count, seed=1)
    wide = np.column_stack([features, np.ones(count)])
    columns = np.arange(UNITS * BLOCK).reshape(UNITS, BLOCK)
    norm = float(rows(10_000, seed=2)[1].var(axis=0).sum())
    power = float(np.mean(np.sum(targets**2, axis=1)))
    apart = rows(held, seed=3) if held else None
    return Moments(wide.T @ wide / count, wide.T @ targets / count, power, norm, columns, apart)


@pytest.mark.parametrize("count", [40, 60, 400])
def test_errors_on_new_rows_are_those_to_expect(count: int) -> None:
    known = moments(count, held=400)
    found = eliminate_units([known])
    expected = expected_errors(found, [known])
    new = Moments(known.gram, known.products, 0.0, known.norm, known.columns, rows(5_000, seed=4))
    for units in (3, 6, 9, 11):
        wanted = np.sqrt(held_square([new], found.order[:units]))
        assert expected[units] == pytest.approx(wanted, rel=0.25)


def test_with_few_rows_a_fit_to_them_says_nothing() -> None:
    known = moments(30, held=400)
    found = eliminate_units([known])
    assert found.errors[10] < 0.02
    assert expected_errors(found, [known])[10] > 0.2


def test_all_units_have_no_error_and_errors_fall() -> None:
    known = moments(50, held=100)
    expected = expected_errors(eliminate_units([known]), [known])
    assert len(expected) == UNITS + 1
    assert expected[-1] < 1e-3
    assert np.all(np.diff(expected) <= 0)


def test_without_rows_held_out_errors_are_those_of_the_fit() -> None:
    known = moments(60, held=0)
    found = eliminate_units([known])
    np.testing.assert_array_equal(expected_errors(found, [known]), found.errors)


def close_to_the_original(count: int) -> Moments:
    """Few rows, and a reader whose own weights are those that made the targets, with noise."""
    known = moments(count, held=200)
    weights = np.random.default_rng(99)
    weights.normal(size=(20, UNITS * BLOCK))
    return replace(known, prior=weights.normal(size=(UNITS * BLOCK, OUTPUTS)).T)


@pytest.mark.parametrize(("count", "gain"), [(15, 0.7), (25, 0.85), (2000, 1.02)])
def test_where_rows_are_few_a_fit_stays_close_to_the_weights_there_were(
    count: int, gain: float
) -> None:
    known = close_to_the_original(count)
    fitted, found = selected_units([known], 9)
    free = [replace(known, strength=1e-6)]
    unseen = rows(5_000, seed=4)
    errors = [
        np.sqrt(held_square([replace(one, held=unseen)], order[:9]))
        for (one,), order in ((fitted, found.order), (free, eliminate_units(free).order))
    ]
    assert errors[0] <= gain * errors[1]


def test_all_units_keep_their_weights_whatever_the_rows_say_of_nothing() -> None:
    known = replace(close_to_the_original(5), strength=0.1)
    weights, _ = known.refit(np.arange(UNITS))
    assert known.prior is not None
    np.testing.assert_allclose(weights, known.prior[:, known.columns.ravel()], rtol=0, atol=1e-8)


def test_rows_held_out_are_rows_like_others_afterwards() -> None:
    known = replace(moments(60, held=40), rows=60)
    both = [np.concatenate(pair) for pair in zip(rows(60, seed=1), rows(40, seed=3), strict=True)]
    wide = np.column_stack([both[0], np.ones(100)])
    found = known.with_held
    np.testing.assert_allclose(found.gram, wide.T @ wide / 100, rtol=0, atol=1e-9)
    np.testing.assert_allclose(found.products, wide.T @ both[1] / 100, rtol=0, atol=1e-9)
    assert found.power == pytest.approx(float(np.sum(both[1] ** 2)) / 100, rel=1e-12)
    assert (found.rows, found.held) == (100, None)
