"""Data files are read row by row as far as they are used, and never trusted."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnxfde.errors import DataError
from onnxfde.graph.input_specs import InputSpec
from onnxfde.graph.model import Graph
from onnxfde.running import data_files, data_rows
from onnxfde.running.data_rows import least_and_most
from onnxfde.running.input_source import InputSource
from onnxfde.running.samples import load_samples, make_samples
from tests.command.running import run
from tests.models import mlp, twins

W, B, V, C = twins()
SPECS = (InputSpec("x", np.dtype(np.float32), ("N", 3)),)
ROWS = np.random.default_rng(0).uniform(-1, 1, (5000, 3)).astype(np.float32)


def header(shape: str, descr: str = "<f4") -> bytes:
    """The beginning of a .npy file."""
    text = f"{{'descr': {descr!r}, 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    return data_files.NPY + b"\x01\x00" + len(text).to_bytes(2, "little") + text.encode()


def archive(path: Path, *parts: bytes, name: str = "x.npy") -> Path:
    """A compressed archive with one member."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as made, made.open(name, "w") as member:
        for part in parts:
            member.write(part)
    return path


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_files, "BLOCK", 1000)


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("kind", ["npy", "npz", "packed"])
def test_a_file_gives_the_rows_of_its_arrays(kind: str, order: Any, tmp_path: Path) -> None:
    path, rows = tmp_path / "d", np.asarray(ROWS.astype(">f8"), order=order)
    if kind == "npy":
        np.save(path.with_suffix(".npy"), rows)
        found = load_samples(path.with_suffix(".npy"), SPECS)
    else:
        {"npz": np.savez, "packed": np.savez_compressed}[kind](path, x=rows, y=ROWS[:, 0])
        found = load_samples(path.with_suffix(".npz"), SPECS)
        assert found.labels is not None
        np.testing.assert_array_equal(found.labels, ROWS[:, 0])
    np.testing.assert_array_equal(found.arrays["x"], ROWS)
    assert found.arrays["x"].dtype == np.float32


@pytest.mark.usefixtures("small_blocks")
def test_of_many_rows_some_are_kept_and_the_range_of_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data_rows, "KEPT_ROWS", 700)
    rows = ROWS.copy()
    rows[2345] = -7, 8, 9
    np.savez(tmp_path / "d.npz", x=rows, y=np.arange(5000))
    found = load_samples(tmp_path / "d.npz", SPECS)
    assert found.rows == 700
    assert found.labels is not None
    assert (found.labels[0], found.labels[-1]) == (0, 4999)
    assert set(np.diff(found.labels)) == {7, 8}
    np.testing.assert_array_equal(found.arrays["x"], rows[found.labels])
    assert found.source == f"{tmp_path / 'd.npz'} (700 of its 5,000 rows)"
    graph = Graph(mlp(W, B, V, C))
    low, high = InputSource(data=found).parted().box(graph)["x"]
    np.testing.assert_array_equal(low, rows.min(axis=0, keepdims=True))
    np.testing.assert_array_equal(high, rows.max(axis=0, keepdims=True))
    same = make_samples({"x": rows, "y": np.arange(5000)}, SPECS, str(tmp_path / "d.npz"))
    np.testing.assert_array_equal(same.arrays["x"], found.arrays["x"])


def test_rows_that_are_kept_fill_fixed_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_rows, "KEPT_ROWS", 10)
    specs = (InputSpec("x", np.dtype(np.float32), (4, 1)),)
    found = make_samples({"x": np.arange(101.0)[:, None]}, specs, "d")
    assert found.arrays["x"].ravel().tolist() == [0, 1, 2, 3, 96, 97, 98, 99]


@pytest.mark.usefixtures("small_blocks")
def test_a_number_that_is_none_is_found_in_rows_that_are_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data_rows, "KEPT_ROWS", 10)
    rows = ROWS.copy()
    rows[777, 1] = np.nan
    np.save(tmp_path / "d.npy", rows)
    with pytest.raises(DataError, match="NaN or infinite"):
        load_samples(tmp_path / "d.npy", SPECS)


@given(st.integers(1, 3000), st.integers(1, 4), st.integers(0, 9))
def test_the_range_of_rows_is_that_of_each_column(rows: int, columns: int, seed: int) -> None:
    block = np.random.default_rng(seed).normal(size=(rows, columns))
    low, high = least_and_most(block)
    np.testing.assert_array_equal(low, block.min(axis=0))
    np.testing.assert_array_equal(high, block.max(axis=0))


LIES = {
    "a trillion rows": (header("(1000000000000, 3)") + bytes(120), "12,000,000,000,000 bytes"),
    "a negative length": (header("(-5, 3)") + bytes(120), "has the shape (-5, 3)"),
    "a product beyond 64 bits": (header("(6148914691236517206, 3)"), "by its header, it has 0"),
    "a length that is no number": (header("('a', 3)"), "cannot be read"),
    "text that is no header": (header("((((((") + bytes(120), "cannot be read"),
    "objects": (header("(5, 3)", "|O") + bytes(120), "plain numbers"),
    "a version of the future": (data_files.NPY + b"\x09\x00" + bytes(99), "plain numbers"),
    "nothing but a beginning": (data_files.NPY, "cannot be read"),
}


@pytest.mark.parametrize("lie", LIES)
@pytest.mark.parametrize("packed", [False, True])
def test_a_lying_header_is_refused(lie: str, packed: bool, tmp_path: Path) -> None:
    raw, reason = LIES[lie]
    path = tmp_path / "d.npy"
    path.write_bytes(raw)
    path = archive(tmp_path / "d.npz", raw) if packed else path
    with pytest.raises(DataError) as error:
        load_samples(path, SPECS)
    assert str(error.value).startswith(str(path))
    assert reason in str(error.value)


def test_a_bomb_is_not_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    zeros = [bytes(2**20)] * 16
    monkeypatch.setattr(data_files, "read_exactly", lambda *_: pytest.fail("it is unpacked"))
    for name, first, reason in (
        ("longer", header("(10, 3)"), "'x' should have 120 bytes by its header, it has 16,777,216"),
        ("wider", header("(1, 4194304)"), "'x' is 1×4194304, the model's input is N×3"),
    ):
        with pytest.raises(DataError, match=reason):
            load_samples(archive(tmp_path / f"{name}.npz", first, *zeros), SPECS)
    other = archive(tmp_path / "other.npz", header("(4194304,)"), *zeros, name="other.npy")
    with pytest.raises(DataError, match="'x' is 4194304, the model's input is N×3"):
        load_samples(other, SPECS)


def test_an_honest_array_of_zeros_is_read_in_little_memory(tmp_path: Path) -> None:
    resource: Any = pytest.importorskip("resource")
    rows, block = 4 * 2**20, bytes(12 * 2**17)
    path = archive(tmp_path / "d.npz", header(f"({rows}, 3)"), *[block] * 32)
    assert path.stat().st_size < 2**17
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found = load_samples(path, SPECS)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert found.rows == data_rows.KEPT_ROWS
    assert grown * 1024 < 2**25


def test_a_damaged_member_is_named(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "d.npz", x=ROWS)
    raw = bytearray((tmp_path / "d.npz").read_bytes())
    raw[20_000:20_100] = bytes(100)
    (tmp_path / "d.npz").write_bytes(raw)
    with pytest.raises(DataError, match=r"d\.npz cannot be read as \.npz or \.npy"):
        load_samples(tmp_path / "d.npz", SPECS)


@pytest.mark.parametrize(
    ("labels", "reason"),
    [
        (np.full((300, 2), np.nan), ""),
        (np.ones(300, np.complex64), "'y' must be an array of numbers"),
        (np.zeros(300, "M8[s]"), "'y' must be an array of numbers"),
        (np.full((300, 2), 1e300), ""),
        (np.ones(300, bool), ""),
        (np.ones(300, np.longdouble), ""),
        (np.full(300, 2**63, np.uint64), ""),
    ],
)
def test_strange_labels_are_refused_before_any_work_or_harmless(
    labels: Any, reason: str, tmp_path: Path
) -> None:
    onnx.save(mlp(W, B, V, C), tmp_path / "m.onnx")
    np.savez(tmp_path / "d.npz", x=ROWS[:300], y=labels)
    out, report = tmp_path / "out.onnx", tmp_path / "r.json"
    data = ("--data", tmp_path / "d.npz", "--report", report)
    done = run("optimize", tmp_path / "m.onnx", out, "--eps", "0", *data)
    assert (done.exit_code, reason in done.stderr) == (int(bool(reason)), True), done.output
    assert out.exists() == report.exists() == (not reason)


def test_what_is_no_regular_file_is_refused(tmp_path: Path) -> None:
    onnx.save(mlp(W, B, V, C), tmp_path / "m.onnx")
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero")):
        done = run("optimize", tmp_path / "m.onnx", tmp_path / "out.onnx", "--data", path)
        assert done.exit_code == 1
        assert f"{path} is no regular file; give a .npz or .npy file" in done.stderr


@pytest.mark.parametrize("value", [300.0, -1.0, 1e30])
def test_numbers_that_an_integer_input_cannot_hold_are_refused(value: float) -> None:
    specs = (InputSpec("x", np.dtype(np.uint8), ("N", 1)),)
    with pytest.raises(DataError, match="too large for uint8"):
        make_samples({"x": np.array([[value]])}, specs, "d")
    assert make_samples({"x": np.array([[255.0]])}, specs, "d").arrays["x"].item() == 255


def test_verify_says_how_many_rows_it_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_rows, "KEPT_ROWS", 700)
    onnx.save(mlp(W, B, V, C), tmp_path / "m.onnx")
    np.save(tmp_path / "d.npy", ROWS)
    done = run("verify", *[tmp_path / "m.onnx"] * 2, "--data", tmp_path / "d.npy")
    assert done.exit_code == 0
    assert "(700 of its 5,000 rows)" in " ".join(done.stdout.split())


@pytest.mark.parametrize("kind", ["int64", "uint64", "int8"])
def test_an_integer_input_takes_the_ends_of_its_type(kind: str) -> None:
    ends = np.iinfo(kind)
    values = np.array([[ends.min], [ends.max]], kind)
    samples = make_samples({"x": values}, (InputSpec("x", np.dtype(kind), ("N", 1)),), "data")
    assert np.array_equal(samples.arrays["x"], values)
