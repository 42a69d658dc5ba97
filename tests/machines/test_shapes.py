"""Shapes of inputs: from the option, from the data, or from an axis of the same name."""

from __future__ import annotations

import numpy as np
import pytest

from onnxfde.errors import DataError
from onnxfde.graph.input_specs import InputSpec
from onnxfde.machines.shapes import batch_sizes, feed_for, fixed_specs
from onnxfde.running.samples import make_samples

F32 = np.dtype(np.float32)


def spec(name: str, *dims: int | str | None) -> InputSpec:
    return InputSpec(name, F32, dims)


def test_samples_of_many_rows_are_put_end_to_end() -> None:
    rows = np.arange(24.0).reshape(2, 4, 3)
    specs = (spec("a", "N", 3),)
    data = make_samples({"a": rows}, specs, "data")
    fed = feed_for(fixed_specs(specs, 6, {}, data), data, (-1, 1))
    assert np.array_equal(fed["a"], rows.reshape(8, 3)[:6])


def test_data_that_contradicts_a_shape_is_refused() -> None:
    specs = (spec("a", "N", "T"),)
    data = make_samples({"a": np.zeros((5, 9))}, specs, "data")
    with pytest.raises(DataError, match="the data for input 'a' is 2×9, --shape says 2×7"):
        feed_for(fixed_specs(specs, 2, {"a": (1, 7)}, data), data, (-1, 1))


def test_a_leading_axis_without_a_name_takes_the_length_it_is_given() -> None:
    specs = (spec("x", "N", 4), spec("t", None, 8))
    first, second = fixed_specs(specs, 2, {"t": (5, 8)}, None)
    assert (first.dims, second.dims) == ((2, 4), (5, 8))
    assert fixed_specs(specs, 2, {}, None)[1].dims == (2, 8)


def test_empty_axes_are_fed_as_they_are() -> None:
    specs = (spec("a", "N", 0),)
    data = make_samples({"a": np.zeros((3, 0))}, specs, "data")
    assert feed_for(fixed_specs(specs, 2, {}, data), data, (-1, 1))["a"].shape == (2, 0)


def test_one_axis_has_one_length() -> None:
    specs = (spec("a", "N", "T"), spec("b", "N", "T"))
    with pytest.raises(DataError, match="axis 'T' two lengths"):
        fixed_specs(specs, 1, {"a": (1, 5), "b": (1, 7)}, None)


def test_axes_of_one_name_have_one_length() -> None:
    specs = (spec("a", "N", "T", 3), spec("b", "N", "T"))
    first, second = fixed_specs(specs, 4, {"a": (1, 7, 3)}, None)
    assert (first.dims, second.dims) == ((4, 7, 3), (4, 7))


def test_data_gives_lengths_to_free_axes() -> None:
    specs = (spec("a", None, None, 3),)
    data = make_samples({"a": np.zeros((5, 9, 3))}, specs, "data")
    assert fixed_specs(specs, 2, {}, data)[0].dims == (2, 9, 3)


def test_the_batch_comes_from_the_option_else_from_the_shape_else_it_is_one() -> None:
    specs = (spec("a", "N", 3),)
    assert batch_sizes(specs, {}, ()) == (1,)
    assert batch_sizes(specs, {"a": (6, 3)}, ()) == (6,)
    assert batch_sizes(specs, {"a": (6, 3)}, (1, 2, 1)) == (1, 2)
    assert batch_sizes((spec("a", 5, 3),), {}, ()) == (5,)


def test_shapes_that_contradict_the_model_are_refused() -> None:
    with pytest.raises(DataError, match="does not fit"):
        fixed_specs((spec("a", "N", 3),), 1, {"a": (1, 3, 1)}, None)
