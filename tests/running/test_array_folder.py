"""A folder of .npz files is read as one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from onnxfde.data_use import DataUse
from onnxfde.errors import DataError
from onnxfde.graph.input_specs import InputSpec
from onnxfde.graph.model import Graph
from onnxfde.running.open_files import open_data
from onnxfde.running.samples import load_samples
from tests.models import mlp, twins

SPEC = (InputSpec("x", np.dtype(np.float32), ("N", 3)),)
ROWS = np.arange(30, dtype=np.float32).reshape(10, 3)


def test_rows_come_file_by_file(tmp_path: Path) -> None:
    np.savez(tmp_path / "b.npz", x=ROWS[4:], y=np.arange(4, 10))
    np.savez_compressed(tmp_path / "a.npz", x=ROWS[:4], y=np.arange(4))
    found = load_samples(tmp_path, SPEC)
    np.testing.assert_array_equal(next(found.feeds())["x"], ROWS)
    assert found.labels is not None
    assert found.labels.tolist() == list(range(10))
    assert found.source == f"{tmp_path} (2 files)"


def test_labels_may_have_another_name(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=ROWS, kinds=np.arange(10))
    found = load_samples(tmp_path, SPEC, DataUse.given(labels="kinds"))
    assert found.labels is not None
    with pytest.raises(DataError, match="no array 'colours' for --labels"):
        load_samples(tmp_path, SPEC, DataUse.given(labels="colours"))


def test_files_that_do_not_fit_together_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=ROWS, y=np.arange(10))
    np.savez(tmp_path / "b.npz", x=ROWS)
    with pytest.raises(DataError, match="do not hold the same arrays: 'y'"):
        load_samples(tmp_path, SPEC)
    np.savez(tmp_path / "b.npz", x=ROWS[:, :2], y=np.arange(10))
    with pytest.raises(DataError, match=r"b.npz: 'x' is float32 N×2, in .*a.npz it is float32 N×3"):
        load_samples(tmp_path, SPEC)


def test_labels_of_other_rows_are_refused(tmp_path: Path) -> None:
    """There are as many rows as labels, but not in each file."""
    np.savez(tmp_path / "a.npz", x=ROWS[:4], y=np.arange(3))
    np.savez(tmp_path / "b.npz", x=ROWS[4:], y=np.arange(3, 10))
    with pytest.raises(DataError, match=r"a.npz: 'y' has 3 rows, 'x' has 4"):
        load_samples(tmp_path, SPEC)


def test_the_hash_is_that_of_all_files(tmp_path: Path) -> None:
    graph = Graph(mlp(*twins()))
    width = next(v.type.tensor_type.shape.dim[1].dim_value for v in graph.inputs)
    rows = np.random.default_rng(0).normal(size=(200, width)).astype(np.float32)
    np.savez(tmp_path / "a.npz", x=rows)
    _, first = open_data(graph, tmp_path, (-1, 1))
    np.savez(tmp_path / "b.npz", x=rows)
    _, second = open_data(graph, tmp_path, (-1, 1))
    assert first != second
