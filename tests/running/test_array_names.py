"""Which array of the data an input takes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from onnxfde.data_use import DataUse
from onnxfde.errors import DataError, OptionError
from onnxfde.graph.input_specs import InputSpec
from onnxfde.running.samples import load_samples, make_samples

FLOAT = np.dtype(np.float32)
ONE = (InputSpec("x", FLOAT, ("N", 3)),)
TWO = (*ONE, InputSpec("z", FLOAT, ("N", 2)))
ROWS, OTHER, LABELS = np.ones((4, 3)), np.zeros((4, 2)), np.arange(4)


def test_a_model_with_one_input_takes_the_only_array_that_is_no_labels(tmp_path: Path) -> None:
    np.savez(tmp_path / "d.npz", images=ROWS, y=LABELS)
    found = load_samples(tmp_path / "d.npz", ONE)
    np.testing.assert_array_equal(found.arrays["x"], ROWS)
    np.testing.assert_array_equal(found.labels, LABELS)
    assert found.source == f"{tmp_path / 'd.npz'} ('images' as input 'x')"
    assert make_samples({"images": ROWS}, ONE, "d").source == "d ('images' as input 'x')"


def test_arrays_are_given_to_inputs_by_name() -> None:
    arrays = {"a": ROWS, "z": OTHER, "y": LABELS, "unused": ROWS}
    found = make_samples(arrays, TWO, "d", DataUse.given(inputs={"x": "a"}))
    np.testing.assert_array_equal(found.arrays["z"], OTHER)
    np.testing.assert_array_equal(found.labels, LABELS)
    assert found.source == "d ('a' as input 'x')"


def test_an_array_that_is_an_input_is_no_labels() -> None:
    found = make_samples({"y": ROWS, "x": 2 * ROWS}, ONE, "d", DataUse.given(inputs={"x": "y"}))
    np.testing.assert_array_equal(found.arrays["x"], ROWS)
    assert found.labels is None


@pytest.mark.parametrize(
    ("specs", "names", "inputs", "reason"),
    [
        (
            ONE,
            "ab",
            {},
            "has no array 'x' for the model's input (it has a, b); say which it is, e.g",
        ),
        (ONE, "ab", {"x": "c"}, "has no array 'c' for the model's input 'x' (it has a, b)"),
        (ONE, "x", {"x": "c"}, "has no array 'c'"),
        (ONE, "x", {"q": "x"}, "--input q=x: no input 'q'; the inputs are x"),
        (TWO, "a", {}, "has no array 'x'"),
        (TWO, "xa", {}, "has no array 'z' for the model's input (it has a, x); say which"),
    ],
)
def test_names_that_are_nowhere_are_refused(
    specs: tuple[InputSpec, ...], names: str, inputs: Mapping[str, str], reason: str
) -> None:
    arrays = dict.fromkeys(names, ROWS)
    with pytest.raises((DataError, OptionError)) as error:
        make_samples(arrays, specs, "d", DataUse.given(inputs=inputs))
    assert reason in str(error.value)


def test_an_array_without_a_name_cannot_be_named(tmp_path: Path) -> None:
    np.save(tmp_path / "d.npy", ROWS)
    with pytest.raises(
        OptionError, match=r"--input x=a: .* holds one array without a name; drop it"
    ):
        load_samples(tmp_path / "d.npy", ONE, DataUse.given(inputs={"x": "a"}))
