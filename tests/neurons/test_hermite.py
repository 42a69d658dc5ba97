"""Neurons of every activation as polynomials: against integration, and against differences."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnxfde.neurons.activation import Activation
from onnxfde.neurons.hermite import expand
from onnxfde.neurons.hermite_kernel import cosines, hermite_gram, hermite_pull
from onnxfde.neurons.kernels import kernel, mean_square
from onnxfde.neurons.piecewise_activations import RELU
from onnxfde.neurons.polynomial_activations import SQUARE
from onnxfde.neurons.smooth_activations import TANH
from onnxfde.numbers import FloatArray
from tests.neurons.activation_rows import ROWS, unit_parameters

JUMPS = ("ThresholdedRelu",)
"""Functions that are not continuous, whose tail is longest."""


def rows_of(row: Activation, count: int, seed: int, inputs: int = 3) -> FloatArray:
    plain = np.random.default_rng(seed).normal(size=(count, inputs + 1))
    return np.column_stack([plain, *unit_parameters(row, count)])


def hidden(row: Activation, rows: FloatArray, z: FloatArray) -> FloatArray:
    width = rows.shape[1] - row.parameters
    return row.value(z @ rows[:, : width - 1].T + rows[:, width - 1], *rows[:, width:].T)


def normal_grid(nodes: int = 400) -> tuple[FloatArray, FloatArray]:
    """Points of the plane with weights, for integrals against N(0, I)."""
    at, weight = np.polynomial.legendre.leggauss(nodes)
    weight = 8.5 * weight * np.exp(-((8.5 * at) ** 2) / 2) / np.sqrt(2 * np.pi)
    z = 8.5 * np.stack(np.meshgrid(at, at), axis=-1).reshape(-1, 2)
    return z, np.multiply.outer(weight, weight).ravel()


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS.keys())
def test_means_and_covariances_are_the_integrals(row: Activation) -> None:
    rows, (z, weight) = rows_of(row, 3, 1, inputs=2), normal_grid()
    values = hidden(row, rows, z)
    mean = weight @ values
    exact = (weight[:, None] * (values - mean)).T @ (values - mean)
    found = expand(rows, row)
    scale = np.sqrt(np.diag(exact))
    share = 0.1 if row.name in JUMPS else 0.01
    np.testing.assert_allclose(found.means, mean, rtol=0, atol=share / 10 * scale.max())
    gram = hermite_gram(found, found)
    np.testing.assert_allclose(
        gram / scale / scale[:, None], exact / scale / scale[:, None], rtol=0, atol=share
    )
    np.testing.assert_allclose(np.diag(gram), found.variances, rtol=1e-10, atol=0)


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS.keys())
def test_the_pull_is_the_derivative(row: Activation) -> None:
    a, rows = expand(rows_of(row, 5, 2), row), rows_of(row, 3, 3)
    rng = np.random.default_rng(4)
    weight, way = rng.normal(size=(5, 3)), rng.normal(size=(3, 4))
    way = np.pad(way, ((0, 0), (0, row.parameters)))
    b = expand(rows, row)
    pull = hermite_pull(weight.copy(), a, b, cosines(a, b))
    step = 1e-5
    ends = [np.sum(weight * hermite_gram(a, expand(rows + s * way, row))) for s in (step, -step)]
    scale = np.abs(pull).max()
    assert np.sum(pull * way) == pytest.approx((ends[0] - ends[1]) / (2 * step), abs=3e-6 * scale)
    widths = [expand(rows + s * way, row).variances for s in (step, -step)]
    slopes = np.sum(b.variance_slopes() * way, axis=1)
    np.testing.assert_allclose(
        slopes, (widths[0] - widths[1]) / (2 * step), rtol=0, atol=3e-6 * np.abs(slopes).max()
    )


@given(st.integers(0, 2**16), st.floats(0.0, 3.14))
def test_relu_without_bias_has_the_arc_cosine_kernel(seed: int, angle: float) -> None:
    """E[relu(u·z) relu(v·z)] = |u||v| (sin θ + (π − θ) cos θ) / 2π."""
    turn = np.array([[1.0, 0.0, 0.0], [np.cos(angle), np.sin(angle), 0.0]])
    scale = np.random.default_rng(seed).uniform(0.1, 10.0, 2)
    found = expand(turn * scale[:, None], RELU)
    exact = (np.sin(angle) + (np.pi - angle) * np.cos(angle) - 1) / (2 * np.pi) * scale.prod()
    assert hermite_gram(found, found)[0, 1] == pytest.approx(exact, abs=1e-4 * scale.prod())


def test_squares_have_their_closed_form() -> None:
    rows = rows_of(SQUARE, 6, 5)
    found = expand(rows, SQUARE)
    np.testing.assert_allclose(hermite_gram(found, found), kernel(rows, rows), rtol=0, atol=1e-10)
    np.testing.assert_allclose(found.means, mean_square(rows), rtol=1e-12, atol=0)


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS.keys())
def test_a_row_without_length_is_a_constant(row: Activation) -> None:
    rows = rows_of(row, 2, 6)
    rows[0, :3] = 0.0
    found = expand(rows, row)
    assert found.means[0] == pytest.approx(hidden(row, rows, np.zeros((1, 3)))[0, 0], abs=1e-12)
    gram = hermite_gram(found, found)
    np.testing.assert_allclose(gram[0], 0.0, rtol=0, atol=1e-7 * max(gram[1, 1], 1.0))
    pull = hermite_pull(np.ones((2, 2)), found, found, cosines(found, found))
    assert np.isfinite(pull).all()


@given(st.integers(0, 2**16), st.sampled_from([RELU, TANH]), st.floats(-8.0, -1.0))
def test_gram_matrices_are_positive_and_tell_near_parallel_neurons_apart(
    seed: int, row: Activation, exponent: float
) -> None:
    rows = rows_of(row, 6, seed)
    rows[3:] = rows[:3] + 10.0**exponent * rows[3:]
    found = expand(rows, row)
    gram = hermite_gram(found, found)
    assert np.linalg.eigvalsh(gram).min() >= -1e-12 * np.trace(gram)
    apart = np.diag(gram)[:3] + np.diag(gram)[3:] - 2 * np.diag(gram[:3, 3:])
    assert (apart >= -1e-12 * np.trace(gram)).all()
    if exponent > -4:
        assert (apart > 0).all()
