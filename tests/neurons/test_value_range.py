"""Whether the values of a layer fit its type, and float64."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from onnxfde.neurons.balance import balanced
from onnxfde.neurons.kernels import Metric, mean_square
from onnxfde.neurons.layer import Layer
from onnxfde.neurons.quadratics import Quadratic, completed_layer
from onnxfde.neurons.value_range import kernel_fault, rounded_outputs, storage_fault
from onnxfde.numbers import LARGEST, FloatArray, cast
from tests.strategies import problem_of

X = np.random.default_rng(0).uniform(-1, 1, (50, 2))


def layer_of(incoming: float, outgoing: float, bias: float = 0.5) -> Layer:
    rows = np.array([[1.0, 2.0, bias], [-1.0, 0.5, bias]]) * incoming
    return Layer(rows, np.array([[1.0, -2.0]]) * outgoing, np.zeros(1))


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32", "float64"])
def test_the_largest_number_of_a_type_is_finite_and_the_next_one_is_not(name: str) -> None:
    dtype = np.dtype(getattr(ml_dtypes, name, None) or name)
    assert cast(np.array([LARGEST[name]]), dtype)[0] == LARGEST[name]
    with np.errstate(over="ignore"):
        assert np.isinf(cast(np.array([LARGEST[name] * 1.01]), dtype)[0])


@pytest.mark.parametrize(
    ("dtype", "incoming", "outgoing", "fault"),
    [
        ("float32", 1.0, 1.0, None),
        ("float32", 1e18, 1.0, None),
        ("float32", 1e19, 1.0, "its values overflow float32 on"),
        ("float32", 1.0, 2e38, "its values overflow float32 on"),
        ("float32", 1e-18, 1e30, None),
        ("float32", 1e-25, 1e30, "its values are so small that float32 loses them"),
        ("float16", 50.0, 1.0, None),
        ("float16", 300.0, 1e-3, "its values overflow float16 on"),
        ("float64", 1e150, 1.0, None),
        ("float64", 1e160, 1.0, "its values overflow float64 on"),
    ],
)
def test_what_a_type_cannot_hold(
    dtype: str, incoming: float, outgoing: float, fault: str | None
) -> None:
    found = storage_fault(layer_of(incoming, outgoing), X, np.dtype(dtype))
    assert found is None if fault is None else (found or "").startswith(fault)


def test_an_offset_beside_which_the_layer_is_rounding_is_no_fault() -> None:
    layer = Layer(np.array([[1e-4, 0.0, 0.0]]), np.ones((1, 1)), np.full(1, 1e6))
    assert storage_fault(layer, X, np.dtype(np.float32)) is None


def test_a_polynomial_is_judged_as_it_is_written() -> None:
    """(t + 2000)² overflows float16, and t·(t + 4000) does not."""
    p = Quadratic.around(2000.0)
    squares = completed_layer(layer_of(1.0, 0.1), p)
    assert "overflow" in (storage_fault(squares, X, np.dtype(np.float16)) or "")
    assert storage_fault(squares, X, np.dtype(np.float16), p) is None
    exact = rounded_outputs(squares, X, np.dtype(np.float64), p)
    np.testing.assert_allclose(exact, squares(X), rtol=0, atol=1e-9)


@pytest.mark.parametrize(
    ("incoming", "outgoing", "reach", "fault"),
    [
        (1.0, 1.0, 1.0, None),
        (1e38, 1e38, 1.0, None),
        (1.0, 1.0, 1e38, None),
        (1e-38, 1e-38, 1.0, None),
        (1e100, 1.0, 1.0, "too large"),
        (1.0, 1.0, 1e70, "too large"),
        (1e150, 1e-300, 1.0, "too large"),
        (1e-100, 1.0, 1.0, "too small"),
        (1.0, 1.0, 1e-70, "too small"),
    ],
)
def test_what_float64_cannot_compare(
    incoming: float, outgoing: float, reach: float, fault: str | None
) -> None:
    layer = layer_of(incoming, outgoing)
    with np.errstate(over="ignore", invalid="ignore"):
        found = problem_of(layer, Metric.box(2, -reach, reach)).fault
    assert found is None if fault is None else fault in (found or "")


def test_a_layer_without_live_neurons_has_no_fault() -> None:
    assert kernel_fault(layer_of(1.0, 1.0), np.zeros((0, 3)), np.zeros((1, 0))) is None


@pytest.mark.parametrize("exponent", [-900, -3, 5, 900])
def test_the_metric_follows_the_scale_of_the_samples_exactly(exponent: int) -> None:
    plain, moved = Metric.measured(X), Metric.measured(np.ldexp(X, exponent))
    pairs: list[tuple[FloatArray, Any]] = [
        (plain.mean, moved.mean),
        (plain.factor, moved.factor),
    ]
    for before, after in pairs:
        np.testing.assert_array_equal(np.ldexp(before, exponent), after)


def test_a_box_as_wide_as_float64_has_a_finite_metric() -> None:
    metric = Metric.box(2, -1.7e308, 1.7e308)
    assert np.isfinite(metric.factor).all()
    assert not metric.mean.any()


def test_hidden_values_stay_below_a_ceiling() -> None:
    layer, metric = layer_of(1e18, 1.0), Metric.plain(2)
    even = balanced(layer, layer, metric, ceiling=1e30)
    assert mean_square(metric.whiten(even.incoming)).max() <= 1e30
    np.testing.assert_allclose(even(X), layer(X), rtol=1e-12)
