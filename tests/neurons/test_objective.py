"""The objective has the derivatives it claims, and descents go down on it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onnxfde.neurons.descent import levenberg_marquardt, quasi_newton
from onnxfde.neurons.kernels import features
from onnxfde.neurons.objective import Forms, Neurons, Objective, Observed, Target, summed
from onnxfde.neurons.polynomial_activations import SQUARE
from onnxfde.neurons.unit_kernels import SQUARES
from onnxfde.numbers import FloatArray
from tests.strategies import CUBE

KINDS = ["forms", "neurons", "observed"]


def target(kind: str, rng: np.random.Generator, inputs: int = 4, outputs: int = 3) -> Target:
    rows, outgoing = rng.normal(size=(20, inputs + 1)), rng.normal(size=(outputs, 20))
    if kind == "forms":
        return Forms(summed(rows, outgoing))
    if kind == "neurons":
        return Neurons(rows, outgoing)
    z = np.column_stack([rng.normal(size=(60, inputs)), np.ones(60)])
    activation = CUBE if kind == "observed cubes" else SQUARE
    return Observed.of(z, activation.value(z @ rows.T) @ outgoing.T, activation)


def slopes(objective: Objective, rows: FloatArray, step: float = 1e-6) -> FloatArray:
    found = np.zeros_like(rows)
    for at in np.ndindex(rows.shape):
        moved = rows.copy()
        moved[at] += step
        up = objective.fit(moved).value
        moved[at] -= 2 * step
        found[at] = (up - objective.fit(moved).value) / (4 * step)
    return found


@pytest.mark.parametrize("ridge", [1e-12, 0.01])
@pytest.mark.parametrize(
    "kinds",
    [("forms",), ("neurons",), ("observed",), ("observed", "forms"), ("observed cubes",)],
)
def test_the_gradient_is_that_of_finite_differences(kinds: tuple[str, ...], ridge: float) -> None:
    rng = np.random.default_rng(0)
    objective = Objective(
        tuple((target(k, rng), 1.0 / (i + 2)) for i, k in enumerate(kinds)), ridge
    )
    rows = rng.normal(size=(4, 5))
    expected = slopes(objective, rows)
    np.testing.assert_allclose(objective.fit(rows).gradient, expected, rtol=0, atol=1e-8)


def test_forms_and_neurons_are_the_same_target() -> None:
    rows = np.random.default_rng(5).normal(size=(4, 5))
    fits = [
        Objective(((target(kind, np.random.default_rng(0)), 1.0),), 1e-6).fit(rows)
        for kind in ("forms", "neurons")
    ]
    assert fits[0].value == pytest.approx(fits[1].value, rel=1e-12)
    np.testing.assert_allclose(fits[0].outgoing, fits[1].outgoing, rtol=1e-9, atol=0)
    np.testing.assert_allclose(fits[0].gradient, fits[1].gradient, rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", ["observed", "observed cubes"])
def test_curvature_on_samples_is_that_of_the_hidden_values(kind: str) -> None:
    rng = np.random.default_rng(2)
    observed, rows, step = target(kind, rng), rng.normal(size=(3, 5)), 1e-6
    _, first, second = observed.at(rows).curvature()
    slope = np.zeros((60, 15))
    for i in range(15):
        moved = rows.copy()
        moved.flat[i] += step
        change = observed.at(moved).values - observed.at(rows).values  # type: ignore[attr-defined]
        slope[:, i] = change[:, i // 5] / step
    values = observed.at(rows).values  # type: ignore[attr-defined]
    np.testing.assert_allclose(first, values.T @ slope, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(second, slope.T @ slope, rtol=1e-4, atol=1e-4)


def test_curvature_is_that_of_the_features() -> None:
    rng = np.random.default_rng(1)
    rows, step = rng.normal(size=(3, 4)), 1e-6
    gram, first, second = Forms(np.ones((1, 4, 4))).at(rows).curvature()
    base = features(rows)
    slope = np.zeros((12, base.shape[1]))
    for i in range(12):
        moved = rows.copy()
        moved.flat[i] += step
        slope[i] = (features(moved)[i // 4] - base[i // 4]) / step
    np.testing.assert_allclose(gram, base @ base.T, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(first, base @ slope.T, rtol=0, atol=1e-4)
    np.testing.assert_allclose(second, slope @ slope.T, rtol=0, atol=1e-4)


@settings(max_examples=20)
@given(st.integers(0, 2**32 - 1), st.sampled_from(KINDS), st.integers(1, 6))
def test_both_descents_go_down(seed: int, kind: str, count: int) -> None:
    rng = np.random.default_rng(seed)
    objective = Objective(((target(kind, rng), 1.0),), 1e-12)
    start = objective.fit(SQUARES.unit(rng.normal(size=(count, 5))))
    for found in (
        levenberg_marquardt(objective, start.rows, 10),
        quasi_newton(objective, start, 10),
    ):
        assert found.value < start.value
        assert found.rows.shape == start.rows.shape


def test_a_layer_of_the_same_size_is_found_again_from_nearby() -> None:
    rng = np.random.default_rng(3)
    rows, outgoing = rng.normal(size=(3, 5)), rng.normal(size=(2, 3))
    objective = Objective(((Forms(summed(rows, outgoing)), 1.0),), 1e-14)
    near = rows + 0.1 * rng.normal(size=rows.shape)
    assert levenberg_marquardt(objective, near, 100).value < 1e-12
