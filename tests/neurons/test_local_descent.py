"""A descent restores what a chain made before it lost units, judged by images it has not seen."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from onnxfde.deadline import Deadline
from onnxfde.neurons.conv_chain import ConvChain
from onnxfde.neurons.local_descent import Descended, Reconstruction, descend, descent_fault
from onnxfde.neurons.map_operations import (
    Activated,
    Convolution,
    Dense,
    Depthwise,
    GlobalAverage,
    ScaleShift,
)
from onnxfde.neurons.map_windows import MapWindow
from onnxfde.neurons.piecewise_activations import RELU
from onnxfde.neurons.smooth_activations import TANH
from onnxfde.numbers import Array

BORDER = MapWindow((3, 3), pads=((1, 1), (1, 1)))


def block(rng: np.random.Generator, units: int, stride: int = 1) -> ConvChain:
    """Convolution, ReLU, convolution."""
    first = rng.normal(size=(units, 4, 3, 3)) / 6
    second = rng.normal(size=(5, units, 3, 3)) / np.sqrt(9 * units)
    window = replace(BORDER, strides=(stride, stride))
    return ConvChain(
        (
            Convolution(first, rng.normal(size=units) / 4, window=window),
            Activated(RELU),
            Convolution(second, rng.normal(size=5) / 4, window=BORDER),
        )
    )


def shortened(chain: ConvChain, kept: int) -> ConvChain:
    """Without the last units."""
    first, inner, last = chain.operations
    assert isinstance(first, Convolution)
    assert isinstance(last, Convolution)
    assert first.bias is not None
    first = replace(first, weight=first.weight[:kept], bias=first.bias[:kept])
    return ConvChain((first, inner, replace(last, weight=last.weight[:, :kept])))


def problem(drawn: int = 0, stride: int = 1, size: int = 12, images: int = 60) -> Reconstruction:
    """Two of eight units are gone; `drawn` is the seed of the images."""
    chain = block(np.random.default_rng(0), 8, stride)
    rng = np.random.default_rng([1, drawn])
    x = rng.normal(size=(images, 4, size, size))
    y = chain(x)
    other = rng.normal(size=y.shape)
    return Reconstruction(shortened(chain, 6), x, y + other, other, Activated(RELU))


def error(found: Reconstruction, chain: ConvChain) -> float:
    """Relative, on all images."""
    made = chain(found.source) + (0 if found.other is None else found.other)
    made, wanted = (found.after.forward(a)[0] for a in (made, found.target))
    away = wanted - wanted.mean(axis=(0, 2, 3), keepdims=True)
    return float(np.linalg.norm(made - wanted) / np.linalg.norm(away))


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("size", [6, 13])
def test_a_descent_makes_the_error_smaller_on_images_it_never_saw(stride: int, size: int) -> None:
    at, fresh = (problem(drawn, stride, size, images=200) for drawn in (0, 1))
    found = descend(at, steps=150)
    assert error(fresh, found.chain) < 0.8 * error(fresh, at.chain)
    assert found.before == pytest.approx(error(fresh, at.chain), rel=0.15)
    assert found.after == pytest.approx(error(fresh, found.chain), rel=0.15)


def test_the_same_seed_gives_the_same_numbers() -> None:
    one, again, other = (descend(problem(), steps=20, seed=seed) for seed in (1, 1, 2))
    for key, array in one.chain.parameters.items():
        np.testing.assert_array_equal(array, again.chain.parameters[key])
    assert any(
        not np.array_equal(array, other.chain.parameters[key])
        for key, array in one.chain.parameters.items()
    )


def test_a_chain_that_is_right_stays_as_it_is() -> None:
    at = problem()
    exact = replace(at, chain=block(np.random.default_rng(0), 8))
    found = descend(exact, steps=20)
    assert found.chain is exact.chain
    assert found.after == found.before < 1e-6


def test_nothing_is_changed_by_images_that_hold_no_law() -> None:
    at = problem()
    noise = np.random.default_rng(5).normal(size=at.target.shape)
    start = ConvChain(tuple(_silent(operation) for operation in at.chain.operations))
    found = descend(replace(at, chain=start, target=noise, other=None, after=Activated(TANH)), 60)
    assert found.after == pytest.approx(found.before, rel=0.02)


def _silent(operation: object) -> Convolution | Activated:
    if isinstance(operation, Convolution) and len(operation.weight) == 5:
        return replace(operation, weight=0 * operation.weight, bias=np.zeros(5))
    assert isinstance(operation, Convolution | Activated)
    return operation


@pytest.mark.parametrize("factor", [1e-4, 1e4])
def test_factors_between_producer_and_reader_make_no_difference(factor: float) -> None:
    at = problem()
    first, inner, last = at.chain.operations
    assert isinstance(first, Convolution)
    assert isinstance(last, Convolution)
    assert first.bias is not None
    first = replace(first, weight=first.weight * factor, bias=first.bias * factor)
    last = replace(last, weight=last.weight / factor)
    scaled = replace(at, chain=ConvChain((first, inner, last)))
    assert descend(scaled, 60).after == pytest.approx(descend(at, 60).after, rel=1e-3)


@pytest.mark.parametrize("factor", [1e-5, 1e5])
def test_the_size_of_the_maps_makes_no_difference(factor: float) -> None:
    at = problem()
    assert at.other is not None
    first, inner, last = at.chain.operations
    scaled_chain = ConvChain((_scaled(first, factor), inner, _scaled(last, factor)))
    scaled = Reconstruction(
        scaled_chain, at.source * factor, at.target * factor, at.other * factor, at.after
    )
    assert descend(scaled, 60).after == pytest.approx(descend(at, 60).after, rel=1e-3)


def _scaled(operation: object, factor: float) -> Convolution:
    assert isinstance(operation, Convolution)
    assert operation.bias is not None
    return replace(operation, bias=operation.bias * factor)


def test_what_is_fixed_stays() -> None:
    at = replace(problem(), fixed=(0,))
    before, after = at.chain.parameters, descend(at, steps=60).chain.parameters
    np.testing.assert_array_equal(after[0, "weight"], before[0, "weight"].astype(np.float32))
    assert not np.allclose(after[2, "weight"], before[2, "weight"], rtol=0, atol=1e-4)


def test_depthwise_normalization_and_pooling_are_followed() -> None:
    rng = np.random.default_rng(1)
    chain = ConvChain(
        (
            Convolution(rng.normal(size=(6, 4, 1, 1)) / 2),
            ScaleShift(rng.normal(size=6), rng.normal(size=6)),
            Activated(RELU),
            Depthwise(rng.normal(size=(6, 3, 3)), rng.normal(size=6), window=BORDER),
            GlobalAverage(),
            Dense(rng.normal(size=(3, 6)), np.zeros(3)),
        )
    )
    x = rng.normal(size=(80, 4, 5, 7)) + rng.normal(size=(80, 4, 1, 1))
    moved = {key: a + 0.3 * rng.normal(size=a.shape) for key, a in chain.parameters.items()}
    found = descend(Reconstruction(chain.replaced(moved), x, chain(x)), steps=200)
    assert found.after < 0.3 * found.before
    changed = found.chain.parameters
    assert all(not np.allclose(changed[key], moved[key], rtol=0, atol=1e-4) for key in moved)


def test_a_deadline_ends_it_with_what_was_found() -> None:
    found = descend(problem(), steps=10_000, deadline=Deadline.after(0.0))
    assert isinstance(found, Descended)
    assert found.after <= found.before


@pytest.mark.parametrize(("images", "readers"), [(100, 2), (7, 1), (100, 0)])
def test_a_refusal_has_a_reason(images: int, readers: int) -> None:
    reason = descent_fault(images, readers)
    assert reason is not None
    assert str(readers if readers != 1 else images) in reason


def test_enough_images_and_one_reader_are_no_fault() -> None:
    assert descent_fault(8) is None


def test_values_that_are_not_finite_leave_the_start() -> None:
    at = problem()
    source: Array = at.source.copy()
    source[:, :, 0, 0] = 1e38
    found = descend(replace(at, source=source), steps=10)
    assert all(np.isfinite(a).all() for a in found.chain.parameters.values())
