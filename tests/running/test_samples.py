"""Data files, ranges and batches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnxfde.errors import DataError, OptionError
from onnxfde.graph.input_specs import InputSpec, input_specs
from onnxfde.graph.model import Graph
from onnxfde.running.random_inputs import (
    check_range,
    latin_hypercube,
    parse_range,
    random_samples,
)
from onnxfde.running.samples import BATCH, load_samples, make_samples
from tests.models import build

FLOAT = np.dtype(np.float32)
DYNAMIC = (InputSpec("x", FLOAT, ("N", 3)),)
FIXED = (InputSpec("x", FLOAT, (4, 3)),)


def test_a_dynamic_batch_is_run_in_batches_to_the_last_row() -> None:
    rows = np.zeros((2 * BATCH + 5, 3))
    feeds = list(make_samples({"x": rows}, DYNAMIC, "data").feeds())
    assert [len(f["x"]) for f in feeds] == [BATCH, BATCH, 5]


def test_a_fixed_batch_is_run_repeatedly_and_what_does_not_fill_it_is_left() -> None:
    feeds = list(make_samples({"x": np.zeros((10, 3))}, FIXED, "data").feeds())
    assert [f["x"].shape for f in feeds] == [(4, 3), (4, 3)]


def test_an_extra_axis_is_fed_row_by_row() -> None:
    spec = (InputSpec("x", FLOAT, (3,)),)
    feeds = list(make_samples({"x": np.zeros((5, 3))}, spec, "data").feeds())
    assert [f["x"].shape for f in feeds] == [(3,)] * 5


@pytest.mark.parametrize(
    ("arrays", "reason"),
    [
        (
            {"z": np.zeros((5, 3)), "w": np.zeros((5, 3))},
            "has no array 'x' for the model's input (it has w, z); "
            "say which it is, e.g. --input x=w",
        ),
        ({"y": np.zeros(5)}, "has no array 'x' for the model's input (it has y)"),
        ({"x": np.zeros((5, 4))}, "'x' is 5×4, the model's input is N×3"),
        ({"x": np.zeros(5)}, "'x' is 5, the model's input is N×3"),
        ({"x": np.array([["a"] * 3])}, "not numbers"),
        ({"x": np.full((2, 3), np.nan)}, "NaN or infinite"),
        ({"x": np.zeros((5, 3)), "y": np.zeros(4)}, "'y' has 4 rows, the inputs have 5"),
        ({"x": np.zeros((0, 3))}, "has 0 rows"),
        ({"x": np.zeros((5, 3)), "y": np.array("a")}, "'y' must be an array of numbers"),
        ({"x": np.full((5, 3), 1e300)}, "too large for float32"),
    ],
)
def test_data_that_does_not_fit_is_named(arrays: dict[str, Any], reason: str) -> None:
    with pytest.raises(DataError) as error:
        make_samples(arrays, DYNAMIC, "data.npz")
    assert reason in str(error.value)


def test_too_few_rows_for_a_fixed_batch() -> None:
    with pytest.raises(DataError, match="has 3 rows; the model takes at least 4"):
        make_samples({"x": np.zeros((3, 3))}, FIXED, "data")


def test_inputs_of_different_lengths_are_refused() -> None:
    specs = (*DYNAMIC, InputSpec("z", FLOAT, ("N",)))
    with pytest.raises(DataError, match="different numbers of rows"):
        make_samples({"x": np.zeros((3, 3)), "z": np.zeros(4)}, specs, "data")


def test_files_of_arrays_are_read(tmp_path: Path) -> None:
    np.savez(tmp_path / "d.npz", x=np.ones((4, 3)), y=np.arange(4))
    np.save(tmp_path / "d.npy", np.ones((4, 3)))
    samples = load_samples(tmp_path / "d.npz", DYNAMIC)
    assert samples.arrays["x"].dtype == np.float32
    assert samples.labels is not None
    assert samples.labels.tolist() == [0, 1, 2, 3]
    assert load_samples(tmp_path / "d.npy", DYNAMIC).rows == 4


def test_bad_files_are_named(tmp_path: Path) -> None:
    two = (*DYNAMIC, InputSpec("z", FLOAT, ("N",)))
    np.save(tmp_path / "one.npy", np.ones((4, 3)))
    np.savez(tmp_path / "objects.npz", x=np.array([{}, []], dtype=object))
    (tmp_path / "empty.npz").write_bytes(b"")
    (tmp_path / "text.npz").write_text("not an archive")
    (tmp_path / "broken.npz").write_bytes(b"PK\x03\x04 broken")
    for name, specs, reason in (
        ("gone.npz", DYNAMIC, "no such file"),
        ("one.npy", two, "use .npz"),
        ("objects.npz", DYNAMIC, "plain numbers"),
        ("empty.npz", DYNAMIC, "cannot be read"),
        ("text.npz", DYNAMIC, "give one of these, a .csv file, or a folder"),
        ("broken.npz", DYNAMIC, "cannot be read"),
        (".", DYNAMIC, "broken.npz cannot be read"),
    ):
        with pytest.raises(DataError, match=reason):
            load_samples(tmp_path / name, specs)


@pytest.mark.parametrize("text", ["1", "a:b", "2:1", "0:inf", "nan:1", "1:2:3"])
def test_bad_ranges_are_refused(text: str) -> None:
    with pytest.raises(OptionError, match="--input-range"):
        parse_range(text)


def test_ranges_are_read() -> None:
    assert parse_range("-2:0.5") == (-2.0, 0.5)
    assert check_range((0, 1)) == (0, 1)


@given(st.integers(1, 60), st.integers(1, 4), st.integers(0, 9))
def test_each_column_of_a_latin_hypercube_has_one_row_in_each_stratum(
    rows: int, columns: int, seed: int
) -> None:
    unit = latin_hypercube(rows, columns, (0.0, 1.0), seed)
    for column in unit.T:
        assert sorted((column * rows).astype(int)) == list(range(rows))


def test_random_samples_have_the_shape_and_type_of_the_inputs() -> None:
    specs = (
        InputSpec("x", FLOAT, ("N", 3, "time")),
        InputSpec("ids", np.dtype(np.int64), ("N", 2)),
        InputSpec("mask", np.dtype(np.bool_), ("N",)),
    )
    samples = random_samples(specs, (2.0, 3.0), 10)
    assert {k: a.shape for k, a in samples.arrays.items()} == {
        "x": (10, 3, 8),
        "ids": (10, 2),
        "mask": (10,),
    }
    assert samples.arrays["x"].min() >= 2
    assert samples.arrays["x"].max() <= 3
    assert set(np.unique(samples.arrays["ids"])) == {2, 3}
    assert set(np.unique(random_samples(specs, (-1.0, 1.0), 50).arrays["ids"])) == {0, 1}


def test_huge_inputs_get_fewer_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onnxfde.running.random_inputs.MOST_VALUES", 2**10)
    assert random_samples((InputSpec("x", FLOAT, ("N", 2**8)),), (0, 1), 4096).rows == 4
    assert random_samples((InputSpec("x", FLOAT, ("N", 2**12)),), (0, 1), 4096).rows == 1


def test_a_part_of_the_samples_is_spread_over_all() -> None:
    rows = np.arange(3000, dtype=float).reshape(1000, 3)
    some = make_samples({"x": rows}, DYNAMIC, "d").some(10)
    assert some.rows == 10
    assert some.arrays["x"][-1, 0] == 2997
    fixed = make_samples({"x": rows}, FIXED, "d").some(8)
    assert fixed.arrays["x"][:, 0].tolist()[:4] == [0, 3, 6, 9]
    assert make_samples({"x": rows}, DYNAMIC, "d").some(5000).rows == 1000


def test_inputs_that_are_no_tensors_are_named() -> None:
    model = build("y = SequenceAt(x, i)", inputs="seq(float[3]) x, int64 i", outputs="float[3] y")
    with pytest.raises(DataError, match="input 'x' is not a tensor"):
        input_specs(Graph(model))
