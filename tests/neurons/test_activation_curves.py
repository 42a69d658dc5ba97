"""The range and the slopes of every activation over intervals, and how its rounding grows."""

from __future__ import annotations

import numpy as np
import pytest

from onnxfde.neurons.activation import Activation
from onnxfde.neurons.activations import ACTIVATIONS
from onnxfde.neurons.intervals import Interval
from onnxfde.neurons.layer import Layer
from onnxfde.neurons.polynomial_activations import SQUARE
from onnxfde.neurons.polynomial_curves import roots_between
from onnxfde.numbers import FloatArray
from tests.neurons.activation_rows import ALL_ROWS, ROWS, unit_parameters

COUNT, POINTS = 160, 101
SHARE = np.linspace(0, 1, POINTS)[:, None]
EVERY_ROW = pytest.mark.parametrize("row", ALL_ROWS.values(), ids=ALL_ROWS.keys())


def intervals(seed: int = 0) -> Interval:
    """Intervals of many sizes around 0, some of a single point, and at the limits of Clip."""
    rng = np.random.default_rng(seed)
    ends = rng.normal(size=(2, COUNT)) * 10.0 ** rng.uniform(-3, 1, COUNT)
    ends[1, : COUNT // 4] = ends[0, : COUNT // 4] + rng.choice([0.0, 1e-9, 0.1], COUNT // 4)
    ends[0, -12:], ends[1, -12:] = np.tile([-3.0, 0.0, 0.5, 3.0], 3), np.repeat([3.0, 6.0, 8.0], 4)
    return Interval(ends.min(axis=0), ends.max(axis=0))


def within(x: Interval, share: FloatArray) -> FloatArray:
    """Points inside intervals."""
    return np.clip(x.low + share * (x.high - x.low), x.low, x.high)


def test_every_name_of_the_table_has_a_row() -> None:
    assert {row.name for row in ROWS.values()} == ACTIVATIONS.keys()


@EVERY_ROW
def test_ranges_hold_every_value_and_are_reached(row: Activation) -> None:
    x, given = intervals(), unit_parameters(row, COUNT)
    inside = within(x, SHARE)
    values, found = row.value(inside, *given), row.curve_of(*given).range(x)
    assert np.all(found.low <= values)
    assert np.all(values <= found.high)
    step = (x.high - x.low) / (POINTS - 1)
    steepest = np.abs(row.slope(inside, *given)).max(axis=0)
    jump = max([abs(height) for _, height in row.curve_of(*given).jumps], default=0.0)
    near = 2 * step * (steepest + 1) + jump + 1e-12 * (1 + np.abs(values).max(axis=0))
    assert np.all(found.low >= values.min(axis=0) - near)
    assert np.all(found.high <= values.max(axis=0) + near)


@EVERY_ROW
def test_slopes_between_any_two_points_are_in_the_range_of_the_slope(row: Activation) -> None:
    x, given = intervals(1), unit_parameters(row, COUNT)
    curve = row.curve_of(*given)
    inside = within(x, SHARE)
    found, slopes = curve.slope(x), row.slope(inside[1:-1], *given)
    smooth = np.ones(slopes.shape, dtype=bool)
    for kink in row.kinks:
        smooth &= np.abs(inside[1:-1] - kink) > 0
    held = (found.low <= slopes) & (slopes <= found.high)
    assert held[smooth & (x.high > x.low)].all()


@EVERY_ROW
def test_the_slope_over_a_narrow_interval_is_the_slope_there(row: Activation) -> None:
    places, given = np.linspace(-7.03, 7.01, COUNT), unit_parameters(row, COUNT)
    found = row.curve_of(*given).slope(Interval(places, places + 1e-9))
    expected = row.slope(places, *given)
    for end in (found.low, found.high):
        np.testing.assert_allclose(end, expected, rtol=1e-6, atol=1e-7)


@EVERY_ROW
def test_no_change_is_larger_than_the_curve_says(row: Activation) -> None:
    """Also across kinks and jumps."""
    x, given = intervals(2), unit_parameters(row, COUNT)
    rng = np.random.default_rng(3)
    ends = np.sort(rng.normal(size=(2, COUNT)) * 10.0 ** rng.uniform(-6, 0, COUNT), axis=0)
    change = Interval(ends[0], ends[1])
    found = row.curve_of(*given).change(x, change)
    at, by = (within(a, rng.random((POINTS, COUNT))) for a in (x, change))
    moved = at + by
    differences = row.value(moved, *given) - row.value(at, *given)
    slack = 1e-13 * (1 + np.abs(row.value(moved, *given)) + np.abs(row.value(at, *given)))
    assert np.all(differences >= found.low - slack)
    assert np.all(differences <= found.high + slack)


@EVERY_ROW
def test_nothing_changes_where_the_argument_does_not(row: Activation) -> None:
    x, given = intervals(4), unit_parameters(row, COUNT)
    nothing = Interval.point(np.zeros(COUNT))
    found = row.curve_of(*given).change(x, nothing)
    np.testing.assert_array_equal((found.low, found.high), np.zeros((2, COUNT)))


@EVERY_ROW
def test_a_magnitude_covers_the_value_and_the_steepest_slope(row: Activation) -> None:
    size, given = 10.0 ** np.linspace(-4, 1.2, COUNT), unit_parameters(row, COUNT)
    around, curve = Interval(-size, size), row.curve_of(*given)
    found = row.magnitude(size, *given) * (1 + 1e-12) + 1e-12
    assert np.all(found >= curve.range(around).size)
    steepest = curve.slope(around).size * (0.5 if row.name == SQUARE.name else 1.0)
    assert np.all(found >= steepest * size)


def test_the_magnitude_of_a_layer_is_that_of_its_activation() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(50, 3))
    for row in ROWS.values():
        layer = Layer(
            rng.normal(size=(4, 4)), rng.normal(size=(2, 4)), rng.normal(size=2), row,
            unit_parameters(row, 4),
        )  # fmt: skip
        assert np.all(layer.magnitude(x) * (1 + 1e-12) >= np.abs(layer(x))), row.title


def test_a_polynomial_turns_where_its_derivative_changes_sign() -> None:
    """(x − 1)(x − 1 − 1e-9)(x + 2)², whose roots are nearly double and double."""
    close = 1 + 1e-9
    p = np.polynomial.Polynomial.fromroots([1, close, -2, -2])
    places = np.asarray(roots_between(tuple(p.coef.tolist())))
    for root in (1.0, close, -2.0):
        assert np.abs(places - root).min() <= 1e-7
    assert roots_between((3.0,)) == ()
    assert roots_between((-2.0, 0.0, 1.0)) == pytest.approx((-(2**0.5), 0.0, 2**0.5), abs=1e-15)
