"""Images made of discs: the same for the same seed, as varied as photographs, in any input."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from onnxfde.errors import DataError
from onnxfde.graph.input_specs import InputSpec
from onnxfde.graph.model import Graph
from onnxfde.running import input_source
from onnxfde.running.dead_leaves import OPEN_SIDE, dead_leaves_samples, disc_radii
from onnxfde.running.input_source import InputSource
from onnxfde.running.preprocessing import Preprocessing
from tests.conv_models import residual

FLOAT = np.dtype(np.float32)
SPEC = InputSpec("x", FLOAT, ("N", 3, 32, 32))
ROWS = 60


def values(
    spec: InputSpec = SPEC, text: str = "", limits: tuple[float, float] = (-2, 6), seed: int = 0
) -> Any:
    wanted = {spec.name: Preprocessing.parse(text)} if text else {}
    samples = dead_leaves_samples((spec,), limits, wanted, ROWS, seed)
    return np.concatenate([feeds[spec.name] for feeds in samples.feeds()])


def test_a_seed_gives_the_same_images_and_another_seed_others() -> None:
    np.testing.assert_array_equal(values(), values())
    assert (values() != values(seed=1)).mean() > 0.9


def test_values_fill_the_range_that_is_given() -> None:
    found = values()
    assert (found.shape, found.dtype) == ((ROWS, 3, 32, 32), np.float32)
    assert (found.min(), found.max()) == pytest.approx((-2, 6), rel=0, abs=1e-5)


@pytest.mark.parametrize(
    ("text", "low", "high"),
    [
        ("scale=1/255", 0, 1),
        ("scale=1", 0, 255),
        ("mean=0.5,std=0.25", -2, 2),
        ("scale=1/255,mean=0.5,std=0.25,layout=nhwc", -2, 2),
        ("layout=nhwc", -2, 6),
    ],
)
def test_preprocessing_takes_pixels_or_without_a_scale_fractions(
    text: str, low: float, high: float
) -> None:
    found = values(text=text)
    assert (found.min(), found.max()) == pytest.approx((low, high), rel=0, abs=1e-4)


def test_neighbours_are_alike_and_channels_go_together() -> None:
    found = values(limits=(0, 1))
    for axis in (2, 3):
        near, far = (
            np.corrcoef(
                found.take(range(32 - gap), axis).ravel(), found.take(range(gap, 32), axis).ravel()
            )[0, 1]
            for gap in (1, 16)
        )
        assert near > 0.85
        assert 0.1 < far < 0.7
    colours = np.corrcoef(np.moveaxis(found, 1, 0).reshape(3, -1))
    assert colours.min() > 0.6
    assert found.mean() == pytest.approx(0.47, rel=0, abs=0.07)
    assert found.std() == pytest.approx(0.22, rel=0, abs=0.05)


def test_small_discs_are_more_frequent_by_the_power_law() -> None:
    radii = disc_radii(20_000, 400, np.random.default_rng(0))
    least = radii.min()
    share = (radii > 2 * least).mean() / (radii > 4 * least).mean()
    assert share == pytest.approx(4, rel=0.2)


@pytest.mark.parametrize(
    ("dims", "shape"),
    [
        (("N", 1, 8, 12), (ROWS, 1, 8, 12)),
        (("N", 8, 12, 1), (ROWS, 8, 12, 1)),
        (("N", 8, 12, 3), (ROWS, 8, 12, 3)),
        ((7, 3, 2, 1), (63, 3, 2, 1)),
        (("N", 3, "h", None), (ROWS, 3, OPEN_SIDE, OPEN_SIDE)),
    ],
)
def test_images_have_the_shape_of_the_input(dims: Any, shape: tuple[int, ...]) -> None:
    assert values(InputSpec("x", FLOAT, dims)).shape == shape


def test_a_grey_image_is_no_channel_of_a_coloured_one() -> None:
    grey = values(InputSpec("x", FLOAT, ("N", 1, 32, 32)), limits=(0, 1))
    assert grey.std() > 0.1


def test_pixels_stay_pixels_where_the_input_takes_them() -> None:
    found = values(InputSpec("x", np.dtype(np.uint8), SPEC.dims))
    assert (found.dtype, found.min(), found.max()) == (np.uint8, 0, 255)


def test_inputs_that_are_no_images_are_refused() -> None:
    with pytest.raises(DataError, match="input 'x' is N×640: dead-leaves images need N×C×H×W"):
        values(InputSpec("x", FLOAT, ("N", 640)))
    with pytest.raises(DataError, match=r"input 'x' \(int8\) holds no pixels"):
        values(InputSpec("x", np.dtype(np.int8), SPEC.dims))


def test_a_network_that_takes_long_gets_fewer_images(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = Graph(residual())
    many = InputSource().made_images(graph, 120, seed=0).rows
    monkeypatch.setattr(input_source, "MADE_WORK", 1.0)
    few = InputSource().made_images(graph, 120, seed=0).rows
    assert (many, few) == (120, input_source.FEWEST_MADE)
