"""Counts of units under a limit, and within an error."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnxfde.neurons.spending import CostOf, Ladder, PairedCost, Spending, counts_within
from onnxfde.numbers import FloatArray, Indices


def curve(rng: np.random.Generator, units: int) -> FloatArray:
    """Errors that fall with the units, in flat and in steep parts, to 0."""
    falls = rng.random(units) * rng.choice([0.0, 0.01, 1.0], units)
    return np.concatenate([np.cumsum(falls[::-1])[::-1], [0.0]])


@st.composite
def networks(
    draw: st.DrawFn, most: int = 6, paired: bool = True
) -> tuple[list[FloatArray], CostOf]:
    """Curves of a few axes, and a cost with products of neighbours."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    units = draw(st.lists(st.integers(1, most), min_size=1, max_size=3))
    single = rng.integers(1, 9, len(units))
    between = rng.integers(0, 9, max(len(units) - 1, 0)) if paired else np.zeros(len(units) - 1)

    def cost(counts: Indices) -> float:
        return float(7 + single @ counts + between @ (counts[1:] * counts[:-1]))

    return [curve(rng, n) for n in units], cost


def total_square(curves: list[FloatArray], counts: Indices) -> float:
    return float(sum(c[k] ** 2 for c, k in zip(curves, counts, strict=True)))


def fractions() -> st.SearchStrategy[float]:
    return st.floats(0.05, 1.0)


@given(networks(), fractions(), st.sampled_from([1, 2, 4]))
def test_counts_are_within_the_limit_and_no_unit_more_would_fit(
    network: tuple[list[FloatArray], CostOf], share: float, align: int
) -> None:
    curves, cost = network
    full = np.array([len(c) - 1 for c in curves])
    limit, least = share * cost(full), np.ones(len(full), dtype=np.intp)
    found = Spending.of(curves, cost, [align] * len(curves)).under(limit)
    if cost(least) > limit:
        assert (found == least).all()
        return
    assert cost(found) <= limit
    assert ((found >= 1) & (found <= full)).all()
    aligned = all(k % align == 0 or k == n for k, n in zip(found, full, strict=True))
    step = align if aligned else 1
    for axis in np.flatnonzero(found < full):
        higher = found.copy()
        higher[axis] = min((found[axis] // step + 1) * step, full[axis])
        assert cost(higher) > limit


@given(networks(paired=False), fractions())
def test_the_error_is_within_one_step_of_the_least(
    network: tuple[list[FloatArray], CostOf], share: float
) -> None:
    curves, cost = network
    full = np.array([len(c) - 1 for c in curves])
    limit = share * cost(full)
    choices = [np.array(k) for k in product(*(range(1, n + 1) for n in full))]
    possible = [total_square(curves, k) for k in choices if cost(k) <= limit]
    if not possible:
        return
    found = total_square(curves, Spending.of(curves, cost).under(limit))
    steps = [np.diff(ladder.squares[ladder.hull]) for ladder in ladders(curves)]
    assert found <= min(possible) + max((s.max() for s in steps if len(s)), default=0.0) + 1e-9


def ladders(curves: list[FloatArray]) -> list[Ladder]:
    return [Ladder.of(c, 1) for c in curves]


@given(networks(), fractions())
def test_one_axis_alone_keeps_as_many_as_fit(
    network: tuple[list[FloatArray], CostOf], share: float
) -> None:
    (errors, *_), _ = network
    units = len(errors) - 1
    found = Spending.of([errors], lambda k: float(k[0])).under(share * units)
    assert found[0] == max(int(share * units), 1)


@given(networks(), st.integers(0, 2**32 - 1))
def test_a_cost_with_products_is_found_from_its_values(
    network: tuple[list[FloatArray], CostOf], seed: int
) -> None:
    curves, cost = network
    full = np.array([len(c) - 1 for c in curves])
    found = PairedCost.of(cost, full)
    some = np.random.default_rng(seed).integers(1, full + 1)
    assert found.total(some) == pytest.approx(cost(some), abs=1e-9)
    for axis, slope in enumerate(found.slopes(some)):
        more = some.copy()
        more[axis] += 1
        assert slope == pytest.approx(cost(more) - cost(some), abs=1e-9)


def test_a_steep_step_in_front_of_a_flat_part_is_taken() -> None:
    """Giving up seven units costs 1 in the first axis and 7 in the other."""
    flat = np.array([9.0, *np.sqrt([1.0] * 7), 0.0])
    slope = np.sqrt([8.0, 7.0, 6.0, 5.0, 4.0, 3.0, 2.0, 1.0, 0.0]) * 0.9
    found = Spending.of([flat, slope], lambda k: float(k.sum())).under(9.0)
    assert list(found) == [1, 8]


def test_a_limit_is_worth_more_than_multiples() -> None:
    few, many = (Spending.of([np.linspace(1, 0, n)], lambda k: float(k[0]), [8]) for n in (7, 33))
    assert list(few.under(3.0)) == [3]
    assert list(many.under(23.0)) == [16]


def test_a_cost_that_is_not_linear_is_kept_under_the_limit_too() -> None:
    curves = [np.linspace(1.0, 0.0, 33), np.linspace(1.0, 0.0, 33)]

    def cost(counts: Indices) -> float:
        return float(counts.sum() + 5 * (counts < 32).sum())

    assert cost(Spending.of(curves, cost).under(60.0)) <= 60.0


@given(st.integers(0, 2**32 - 1), st.integers(1, 20), st.floats(0, 3), st.sampled_from([1, 4, 8]))
def test_the_fewest_units_within_an_error_are_rounded_up(
    seed: int, units: int, eps: float, align: int
) -> None:
    errors = curve(np.random.default_rng(seed), units)
    found = counts_within(errors, eps, align)
    assert 1 <= found <= units
    assert errors[found] <= eps
    assert found == units or found % align == 0
    fewer = found - align
    assert fewer < 1 or errors[fewer] > eps
