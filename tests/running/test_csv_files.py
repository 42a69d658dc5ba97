"""Tables as data: which columns become inputs and labels, and what is said of bad ones."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from onnxfde.data_use import DataUse
from onnxfde.errors import DataError
from onnxfde.graph.input_specs import InputSpec
from onnxfde.running.samples import Samples, load_samples

FLOAT = np.dtype(np.float32)
PAIR = (InputSpec("x", FLOAT, ("N", 2)),)
COLUMNS = (InputSpec("age", FLOAT, ("N", 1)), InputSpec("size", FLOAT, ("N", 1)))
TEXT = "age,size,class\n1,2.5,0\n3,-4e-1,1\n\n5,6,0\n"
LABELLED = DataUse.given(labels="class")


def load(
    folder: Path, text: str, specs: tuple[InputSpec, ...] = PAIR, use: DataUse = LABELLED
) -> Samples:
    (folder / "d.csv").write_text(text)
    return load_samples(folder / "d.csv", specs, use)


@pytest.mark.parametrize(
    "text",
    [
        TEXT,
        TEXT.replace(",", ";"),
        TEXT.replace(",", "\t"),
        "\ufeff" + TEXT,
        TEXT.replace("\n", "\r\n"),
    ],
)
def test_columns_beside_the_labels_are_the_input(tmp_path: Path, text: str) -> None:
    found = load(tmp_path, text)
    wanted = np.array([[1, 2.5], [3, -0.4], [5, 6]], np.float32)
    np.testing.assert_array_equal(next(found.feeds())["x"], wanted)
    assert found.labels is not None
    assert found.labels.tolist() == [0, 1, 0]


def test_a_column_called_y_holds_labels(tmp_path: Path) -> None:
    found = load(tmp_path, TEXT.replace("class", "y"), use=DataUse())
    assert found.labels is not None
    assert found.labels.tolist() == [0, 1, 0]


def test_an_input_called_y_takes_its_column(tmp_path: Path) -> None:
    specs = InputSpec("age", FLOAT, ("N", 1)), InputSpec("y", FLOAT, ("N", 1))
    found = load(tmp_path, TEXT.replace("size", "y"), specs)
    assert next(found.feeds())["y"].tolist() == [[2.5], [np.float32(-0.4)], [6.0]]


def test_without_labels_all_columns_are_inputs(tmp_path: Path) -> None:
    found = load(tmp_path, "a,b\n1,2\n", use=DataUse())
    assert (found.rows, found.labels) == (1, None)


def test_several_inputs_take_columns_by_name(tmp_path: Path) -> None:
    found = next(load(tmp_path, TEXT, COLUMNS).feeds())
    assert found["size"].tolist() == [[2.5], [np.float32(-0.4)], [6.0]]
    assert found["age"].shape == (3, 1)
    other = DataUse.given(labels="class", inputs={"age": "years"})
    found = next(load(tmp_path, TEXT.replace("age", "years"), COLUMNS, other).feeds())
    assert found["age"].ravel().tolist() == [1, 3, 5]


def test_columns_fill_the_shape_of_the_input(tmp_path: Path) -> None:
    spec = (InputSpec("x", FLOAT, ("N", 1, 2, 2)),)
    found = next(load(tmp_path, "a,b,c,d\n1,2,3,4\n", spec, DataUse()).feeds())
    assert found["x"].tolist() == [[[[1, 2], [3, 4]]]]


WIDE = ",".join(f"p{number}" for number in range(20)) + "\n" + ",".join("1" * 20) + "\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("age,size,class\n1,,0\n", "line 2: column 'size' has no value: fill in"),
        ("age,size,class\n1,2,0\n1,?,0\n", "line 3: column 'size' has no value"),
        ("age,size,class\n1,large,0\n", "line 2: column 'size' holds 'large', not a number"),
        ("age,size,class\n1,2\n", "line 2: 2 values, the header has 3 columns"),
        ("1,2,0\n3,4,1\n", "has no header"),
        ("age,age,class\n1,2,0\n", "two columns called 'age'"),
        ("age,size,class\n", "a header and no rows"),
        ("", "is empty"),
        ("age,size,colour\n1,2,0\n", "no column 'class' for --labels .it has age, size, colour"),
        (WIDE, "it has p0, p1, p2, p3, … 12 more …, p16, p17, p18, p19.$"),
        ("age,size,more,class\n1,2,3,0\n", "3 columns beside the labels 'class', the model's"),
        ("age,size,class\n1,nan,0\n", "line 2: column 'size' has no value"),
    ],
)  # fmt: skip
def test_bad_tables_are_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        load(tmp_path, text)


def test_a_column_too_many_asks_for_the_labels(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"3 columns, .* say which column holds the labels"):
        load(tmp_path, TEXT, use=DataUse())


def test_a_missing_column_of_an_input_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no column 'size' for the model's input"):
        load(tmp_path, "age,class\n1,0\n", COLUMNS)


def test_what_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "d.csv").write_bytes(b"a,b\n\xff\xfe,1\n")
    with pytest.raises(DataError, match="no text in UTF-8"):
        load_samples(tmp_path / "d.csv", PAIR)
    with pytest.raises(DataError, match="no such file"):
        load_samples(tmp_path / "other.csv", PAIR)
