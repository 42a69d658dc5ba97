"""A folder of images as data."""

from __future__ import annotations

import os
import struct
import sys
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from onnxfde.data_use import DataUse
from onnxfde.errors import DataError, OptionError
from onnxfde.graph.input_specs import InputSpec
from onnxfde.graph.model import Graph
from onnxfde.running import data_files, data_rows
from onnxfde.running.open_files import open_data
from onnxfde.running.samples import Samples, load_samples
from tests.models import build

Image: Any = pytest.importorskip("PIL.Image")

FLOAT = np.dtype(np.float32)
RGB = InputSpec("x", FLOAT, ("N", 3, 4, 6))
RAW = DataUse.given("scale=1")
PIXELS = np.random.default_rng(0).integers(0, 256, (5, 4, 6, 3)).astype(np.uint8)


def save(file: Path, pixels: Any, **more: Any) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(file, **more)
    return file


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Five images in class subfolders, among other files."""
    for name, pixels in zip(
        ("b/1.png", "b/0.bmp", "a/2.PNG", "c.png", "a/1.png"), PIXELS, strict=True
    ):
        save(tmp_path / "d" / name, pixels)
    (tmp_path / "d" / "labels.csv").write_text("no image")
    return tmp_path / "d"


ORDER = [4, 2, 1, 0, 3]
"""The images by path: a/1, a/2, b/0, b/1, c."""


def load(folder: Path, spec: InputSpec = RGB, use: DataUse = RAW) -> Samples:
    return load_samples(folder, (spec,), use)


def test_images_are_read_in_the_order_of_their_paths(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data_files, "BLOCK", 2 * 72)
    found = load(folder)
    assert found.arrays["x"].dtype == np.uint8
    np.testing.assert_array_equal(found.arrays["x"], np.moveaxis(PIXELS[ORDER], -1, 1))
    assert found.source == f"{folder} (5 images)"
    assert found.labels is None
    last = load(folder, InputSpec("x", FLOAT, ("N", 4, 6, 3)))
    np.testing.assert_array_equal(last.arrays["x"], PIXELS[ORDER])


def test_images_are_preprocessed_when_they_are_fed(folder: Path) -> None:
    found = load(folder, use=DataUse.given("scale=1/255,mean=0.1:0.2:0.3"))
    (feeds,) = found.feeds()
    wanted = PIXELS[ORDER] / 255 - [0.1, 0.2, 0.3]
    np.testing.assert_allclose(feeds["x"], np.moveaxis(wanted, -1, 1), rtol=0, atol=1e-6)
    with pytest.raises(DataError, match="as pixels do: say how they become inputs"):
        load(folder, use=DataUse())
    assert load(folder, InputSpec("x", np.dtype(np.uint8), RGB.dims), DataUse()).rows == 5


def test_images_get_the_size_and_the_channels_of_the_model(tmp_path: Path) -> None:
    flat = np.full((9, 12, 3), 200, np.uint8)
    flat[:, 6:] = 40
    save(tmp_path / "a.png", flat)
    save(tmp_path / "b.png", np.full((4, 6), 7, np.uint8))
    found = load(tmp_path).arrays["x"]
    np.testing.assert_array_equal(found[0, :, :, :2], 200)
    np.testing.assert_array_equal(found[0, :, :, -2:], 40)
    np.testing.assert_array_equal(found[1], 7)
    grey = load(tmp_path, InputSpec("x", FLOAT, ("N", 1, 4, 6))).arrays["x"]
    assert grey.shape == (2, 1, 4, 6)
    assert grey[0, 0, 0].tolist()[::5] == [200, 40]


def test_an_open_size_is_that_of_all_images(folder: Path, tmp_path: Path) -> None:
    spec = InputSpec("x", FLOAT, ("N", 3, "h", "w"))
    assert load(folder, spec).arrays["x"].shape == (5, 3, 4, 6)
    save(folder / "z.png", np.zeros((6, 4, 3), np.uint8))
    with pytest.raises(DataError, match=r"z\.png has 6×4 pixels, 1\.png has 4×6: the model leaves"):
        load(folder, spec)


def test_of_many_images_evenly_spread_ones_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for i in range(20):
        save(tmp_path / f"{i:02}.png", np.full((4, 6, 3), 10 * i, np.uint8))
    monkeypatch.setattr(data_rows, "KEPT_BYTES", 3 * 72)
    found = load(tmp_path)
    assert found.arrays["x"][:, 0, 0, 0].tolist() == [0, 90, 190]
    assert found.source == f"{tmp_path} (3 of its 20 images)"


def test_links_in_circles_end(folder: Path) -> None:
    (folder / "a" / "loop").symlink_to(folder, target_is_directory=True)
    (folder.parent / "other").mkdir()
    save(folder.parent / "other" / "0.png", PIXELS[0])
    (folder / "linked").symlink_to(folder.parent / "other", target_is_directory=True)
    assert load(folder).rows == 6


def test_the_hash_is_that_of_names_and_images(folder: Path) -> None:
    graph = Graph(build("y = Relu(x)", "float[N,3,4,6] x", "float[N,3,4,6] y"))

    def digest() -> str | None:
        return open_data(graph, folder, (-1, 1), RAW)[1]

    first = digest()
    (folder / "labels.csv").write_text("other")
    assert digest() == first
    (folder / "c.png").rename(folder / "d.png")
    renamed = digest()
    save(folder / "d.png", PIXELS[0])
    assert len({first, renamed, digest()}) == 3


@pytest.mark.parametrize(
    ("dims", "shown"),
    [(("N", 640), "N×640"), (("N", 4, 8, 8), "N×4×8×8"), (("N", 3, 8), "N×3×8"), ((), "")],
)
def test_a_model_that_takes_no_images_is_refused(folder: Path, dims: Any, shown: str) -> None:
    with pytest.raises(DataError, match=f"the model's input 'x' is {shown}: images need N×C×H×W"):
        load(folder, InputSpec("x", FLOAT, dims))


def test_subfolders_are_classes_if_all_images_lie_in_them(folder: Path) -> None:
    assert load(folder).labels is None
    (folder / "c.png").rename(folder / "b" / "c.png")
    found = load(folder)
    assert found.labels is not None
    assert found.labels.tolist() == [0, 0, 1, 1, 1]
    assert found.source.endswith("(5 images in 2 classes)")
    for image in (folder / "b").iterdir():
        image.rename(folder / "a" / f"b{image.name}")
    assert load(folder).labels is None


def test_subfolders_that_are_numbers_are_the_classes(tmp_path: Path) -> None:
    for name in ("2", "10", "0"):
        save(tmp_path / name / "i.png", PIXELS[0])
    found = load(tmp_path)
    assert found.labels is not None
    assert sorted(found.labels.tolist()) == [0, 2, 10]
    (tmp_path / "0").rename(tmp_path / "zero")
    found = load(tmp_path)
    assert found.labels is not None
    assert found.labels.tolist() == [0, 1, 2]


def test_classes_are_counted_over_images_that_are_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for i, name in enumerate(("a", "a", "a", "b", "c", "c", "c")):
        save(tmp_path / name / f"{i}.png", PIXELS[0])
    monkeypatch.setattr(data_rows, "KEPT_BYTES", 2 * (72 + 8))
    found = load(tmp_path)
    assert found.labels is not None
    assert found.labels.tolist() == [0, 2]
    assert found.source.endswith("(2 of its 7 images in 3 classes)")


def test_a_folder_without_images_is_refused(tmp_path: Path) -> None:
    (tmp_path / "d.txt").write_bytes(b"")
    os.mkfifo(tmp_path / "pipe.png")
    with pytest.raises(
        DataError, match=r"no .npz files, and neither it nor .* images \(\.bmp, .*\)"
    ):
        load(tmp_path)


def test_options_that_are_for_arrays_are_refused(folder: Path) -> None:
    two = (RGB, InputSpec("z", FLOAT, ("N",)))
    with pytest.raises(DataError, match=r"is a folder of images, the model has 2 inputs: use .npz"):
        load_samples(folder, two, RAW)
    with pytest.raises(OptionError, match=r"layout=nhwc is for arrays; .* drop it"):
        load(folder, use=DataUse.given("scale=1,layout=nhwc"))
    with pytest.raises(OptionError, match=r"--input x=a: .* is a folder of images; drop it"):
        load(folder, use=DataUse.given(inputs={"x": "a"}))


def bomb(width: int) -> bytes:
    """A PNG that says it is very large."""
    found = b"\x89PNG\r\n\x1a\n"
    header = struct.pack(">IIBBBBB", width, width, 8, 2, 0, 0, 0)
    for kind, body in ((b"IHDR", header), (b"IDAT", zlib.compress(b"")), (b"IEND", b"")):
        found += struct.pack(">I", len(body)) + kind + body
        found += struct.pack(">I", zlib.crc32(kind + body))
    return found


@pytest.mark.parametrize("damage", ["text", "empty", "cut", "broken", "large", "huge"])
def test_an_image_that_cannot_be_read_is_named(folder: Path, damage: str) -> None:
    whole = (folder / "c.png").read_bytes()
    raw = {
        "text": b"no image",
        "empty": b"",
        "cut": whole[: len(whole) // 2],
        "broken": whole[:50] + bytes(40) + whole[90:],
        "large": bomb(12_000),
        "huge": bomb(60_000),
    }[damage]
    (folder / "c.png").write_bytes(raw)
    with pytest.raises(DataError, match=r"c\.png cannot be read as an image \("):
        load(folder)


def test_sixteen_bits_are_not_cut_to_eight(folder: Path) -> None:
    save(folder / "deep.png", np.full((4, 6), 40_000, np.uint16))
    with pytest.raises(DataError, match=r"deep\.png has more than 8 bits a value"):
        load(folder)


def test_without_pillow_the_extra_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(DataError, match=r"needs Pillow: pip install 'onnxfde\[images\]'"):
        load(folder)
