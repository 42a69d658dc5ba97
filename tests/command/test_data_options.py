"""--preprocess, --input and folders of images, as users write them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import onnxfde
from tests.command.running import run
from tests.command.test_errors_in_one_line import assert_one_line_error
from tests.models import build, contents, twins

RNG = np.random.default_rng(0)
IMAGES = RNG.integers(0, 256, (200, 4, 4, 3)).astype(np.uint8)
TEXT = "scale=1/255,mean=0.5:0.4:0.3,layout=nhwc"
FED = np.moveaxis(IMAGES / 255 - [0.5, 0.4, 0.3], -1, 1).astype(np.float32)


@pytest.fixture
def image_model(tmp_path: Path) -> Path:
    """A dense layer behind images, in which neurons are present twice."""
    w, b, v, c = twins(distinct=6, copies=2, inputs=48)
    body = (
        "f = Flatten(x) h = Gemm<transB = 1>(f, w, b) s = Mul(h, h) y = Gemm<transB = 1>(s, v, c)"
    )
    model = build(body, "float[N,3,4,4] x", "float[N,2] y", w=w, b=b, v=v, c=c)
    onnx.save(model, tmp_path / "m.onnx")
    return tmp_path / "m.onnx"


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    np.savez(tmp_path / "d.npz", images=IMAGES, other=IMAGES)
    return tmp_path / "d.npz"


def test_a_run_on_pixels_is_the_run_on_what_they_become(
    image_model: Path, archive: Path, tmp_path: Path
) -> None:
    out, report = tmp_path / "o.onnx", tmp_path / "r.json"
    options = ("--data", archive, "--input", "x=images", "--preprocess", TEXT)
    done = run("optimize", image_model, out, "--neurons", "4", *options, "--json", report)
    assert done.exit_code == 0, done.output
    found = json.loads(report.read_text())
    assert found["settings"]["preprocess"] == [TEXT]
    assert found["settings"]["inputs"] == {"x": "images"}
    assert found["verification"]["source"].startswith(f"{archive} ('images' as input 'x')")
    plain = onnxfde.optimize(image_model, neurons=4, data=FED).report
    assert plain.verification is not None
    own = found["verification"]["relative_l2"]
    assert own == pytest.approx(plain.verification.relative_l2, rel=1e-3)
    again = run("verify", image_model, out, *options, "--tolerance", "10")
    assert again.exit_code == 0
    assert run("inspect", image_model, *options).exit_code == 0
    bench = run("bench", image_model, "--seconds", "0", *options, "--json", "-")
    assert bench.exit_code == 0, bench.output
    assert json.loads(bench.stdout)["settings"]["inputs"] == {"x": "images"}


def test_other_preprocessing_is_other_work(image_model: Path, archive: Path) -> None:
    def made(model: Any, text: str) -> Any:
        names = {"x": "images"}
        return onnxfde.optimize(model, neurons=4, data=archive, preprocess=text, inputs=names)

    first = made(image_model, TEXT)
    assert made(first.model, TEXT).report.unchanged == "onnxfde made it with these settings before"
    other = made(first.model, "scale=1,layout=nhwc").report
    assert other.unchanged != "onnxfde made it with these settings before"


def test_at_eps_0_pixels_are_compared_as_they_are_fed(image_model: Path, archive: Path) -> None:
    options = ("--data", archive, "--input", "x=images", "--preprocess", TEXT, "--dry-run")
    done = run("optimize", image_model, image_model, "--eps", "0", *options, "--json", "-")
    found = json.loads(done.stdout)
    assert found["layers"][0]["neurons_after"] == 6
    assert found["verification"]["relative_l2"] < 1e-5


@pytest.mark.parametrize("command", ["optimize", "inspect", "verify", "bench"])
def test_what_makes_no_sense_is_one_line(image_model: Path, archive: Path, command: str) -> None:
    models = {"optimize": (image_model, archive.with_name("o.onnx")), "verify": (image_model,) * 2}
    before = contents(image_model.parent)
    for options, reason, code in (
        (("--preprocess", "mean"), "'mean' is not WORD=VALUE", 2),
        (("--input", "images"), "--input images: write NAME=ARRAY, the model's input first", 2),
        (("--input", "x=images", "--input", "x=other"), "--input is given twice for 'x'", 2),
        (("--input", "z=images"), "--input z=images: no input 'z'; the inputs are x", 1),
        ((), "say which it is, e.g. --input x=images", 1),
        (("--input", "x=images"), "add --preprocess layout=nhwc", 1),
        (("--input", "x=images", "--preprocess", "layout=nhwc"), "as pixels do: say how they", 1),
    ):
        done = run(command, *models.get(command, (image_model,)), "--data", archive, *options)
        assert_one_line_error(done, reason, code)
    for options in (("--preprocess", TEXT), ("--input", "x=images")):
        done = run(command, *models.get(command, (image_model,)), *options)
        assert_one_line_error(done, f"{options[0]} says how data becomes inputs: give --data", 2)
    assert contents(image_model.parent) == before


def test_a_folder_of_images_is_data_and_is_not_overwritten(
    image_model: Path, tmp_path: Path
) -> None:
    image: Any = pytest.importorskip("PIL.Image")
    folder = tmp_path / "images" / "class"
    folder.mkdir(parents=True)
    for number, pixels in enumerate(IMAGES[:120]):
        image.fromarray(pixels).save(folder / f"{number:03}.png")
    options = ("--data", tmp_path / "images", "--preprocess", "scale=1/255")
    done = run("optimize", image_model, tmp_path / "o.onnx", "--neurons", "4", *options)
    assert done.exit_code == 0, done.output
    assert "(120 images)" in " ".join(done.stdout.split())
    before = contents(tmp_path)
    done = run("optimize", image_model, folder / "007.png", "--neurons", "4", *options)
    assert_one_line_error(done, "is a file of the data; choose another file to write to", 2)
    assert contents(tmp_path) == before
