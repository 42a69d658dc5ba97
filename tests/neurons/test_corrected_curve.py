"""Curves that know what was found: they go through it, never rise, and stay where nothing is."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from onnxfde.neurons.corrected_curve import corrected_curve, equivalent_counts
from onnxfde.numbers import FloatArray
from tests.neurons.test_spending import curve

SEEDS = st.integers(0, 2**32 - 1)


def drawn(seed: int, units: int = 30) -> tuple[np.random.Generator, FloatArray]:
    rng = np.random.default_rng(seed)
    return rng, curve(rng, units)


@given(SEEDS)
def test_a_curve_of_which_nothing_was_found_stays(seed: int) -> None:
    _, errors = drawn(seed)
    np.testing.assert_allclose(corrected_curve(errors, errors, {}), errors, rtol=0, atol=1e-12)


@given(SEEDS)
def test_a_corrected_curve_never_rises_and_ends_where_it_did(seed: int) -> None:
    rng, errors = drawn(seed)
    found = {int(k): float(rng.random() * errors[0]) for k in rng.integers(1, 30, 5)}
    corrected = corrected_curve(errors, errors, found)
    assert np.all(np.diff(corrected) <= 1e-12)
    np.testing.assert_allclose(corrected[[0, -1]], errors[[0, -1]], rtol=0, atol=1e-12)


@given(SEEDS)
def test_the_errors_that_were_found_are_on_the_corrected_curve(seed: int) -> None:
    """If more units were found to have smaller errors, as they should."""
    rng, errors = drawn(seed)
    counts = np.unique(rng.integers(1, 30, 4))
    found = dict(
        zip(counts.tolist(), np.sort(rng.random(len(counts)))[::-1] * errors[0], strict=True)
    )
    corrected = corrected_curve(errors, errors, found)
    np.testing.assert_allclose(corrected[counts], list(found.values()), rtol=0, atol=1e-9)


def test_a_method_that_needs_half_the_units_is_seen_from_one_count() -> None:
    errors = np.linspace(1, 0, 41) ** 2
    assert equivalent_counts(errors, {10: float(errors[20])})[8] > 1.5 * 8


def test_an_error_of_rounding_does_not_make_few_units_enough() -> None:
    """With 30 of 35 units nothing is lost: 5 of them then do as 10 at most, and not as 35."""
    errors = np.linspace(1, 0, 36)
    assert 5 < equivalent_counts(errors, {30: 1e-8})[5] < 11


def test_errors_of_the_network_follow_those_of_the_layer() -> None:
    local = np.linspace(1, 0, 11)
    corrected = corrected_curve(0.5 * local, local, {4: 0.2})
    np.testing.assert_allclose(corrected[4], 0.1, rtol=0, atol=1e-12)
