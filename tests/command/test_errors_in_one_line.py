"""What a user gets wrong is answered by one line on stderr, and nothing is written."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from typer.testing import Result

from tests.command.running import B, C, V, W, run, without_layers
from tests.models import mlp


def bad_models(folder: Path) -> dict[str, str]:
    """File names and what must be said of them."""
    (folder / "folder").mkdir()
    (folder / "empty.onnx").write_bytes(b"")
    (folder / "cut.onnx").write_bytes(mlp(W, B, V, C).SerializeToString()[:300])
    (folder / "text.onnx").write_text("hello")
    (folder / "none.onnx").write_bytes(b"\x1a\x05hello")
    invalid = mlp(W, B, V, C)
    invalid.graph.node[1].input[0] = "nowhere"
    onnx.save(invalid, folder / "invalid.onnx")
    return {
        "gone.onnx": "no such file",
        "folder": "is a directory",
        "empty.onnx": "is empty",
        "cut.onnx": "is truncated, or not an ONNX file",
        "text.onnx": "not an ONNX file",
        "none.onnx": "holds no graph",
        "invalid.onnx": "is not a valid ONNX model",
    }


def assert_one_line_error(done: Result, message: str, code: int = 1) -> None:
    assert done.exit_code == code, done.output
    assert done.stdout == ""
    (line,) = without_layers(done.stderr).strip().splitlines()
    assert line.startswith("onnxfde: ")
    assert message in line


def test_bad_models_get_one_line(tmp_path: Path) -> None:
    for name, message in bad_models(tmp_path).items():
        for command in (
            ("optimize", tmp_path / name, tmp_path / "o"),
            ("inspect", tmp_path / name),
        ):
            assert_one_line_error(run(*command), message)
    assert not (tmp_path / "o").exists()


@pytest.mark.parametrize(
    ("args", "message", "code"),
    [
        (("--eps", "-1"), "--eps -1.0 is not a number ≥ 0", 2),
        (("--eps", "nan"), "--eps nan is not a number ≥ 0", 2),
        (("--eps", "much"), "'much' is not a number", 2),
        (("--eps", "10"), "give a number below 1; for 10 % give 10% or 0.1", 2),
        (("--eps", "first=1"), "--eps first=1 allows any change: give a number below 1", 2),
        (("--eps", "100%"), "--eps 1 allows any change", 2),
        (("--eps", "other=0.1"), "no layer is called 'other'; the layers are first", 1),
        (("--layers", "z*"), "no layer is called 'z*'; the layers are first", 1),
        (("--neurons", "0"), "--neurons 0 is not a number ≥ 1", 2),
        (("--eps", "first=much"), "'much' is not a number", 2),
        (("--keep", "0%"), "--keep 0 is not a fraction above 0 and up to 1", 2),
        (("--keep", "half"), "give a share such as 25% or 0.25", 2),
        (("--keep", "25"), "not a fraction above 0 and up to 1; for 25 % give 25% or 0.25", 2),
        (("--keep", "1.5"), "for 1.5 % give 1.5% or 0.015", 2),
        (("--keep", "150%"), "--keep 150%: more than 100 %", 2),
        (("--keep", "-0.5"), "--keep -0.5 is not a fraction above 0", 2),
        (("--keep", "nan"), "--keep nan is not a fraction above 0", 2),
        (("--seed", "-1"), "--seed -1 is not a number ≥ 0", 2),
        (("--max-certified-error", "nan"), "--max-certified-error nan is not a number ≥ 0", 2),
        (("--input-range", "0;1"), "--input-range must be LO:HI, two numbers, not '0;1'", 2),
        (("--input-range", "a:b"), "--input-range must be two numbers", 2),
        (("--input-range", "1:0"), "needs finite LO < HI", 2),
        (("--data", "gone.npz"), "gone.npz: no such file", 1),
        (("--report", "gone/r.json"), "gone: no such folder", 1),
        (("--json", "gone/r.json"), "gone: no such folder", 1),
        (("--quotient", "exact"), "--quotient exact needs --semantics paper", 2),
        (("--relation", "backward"), "need --semantics paper", 2),
        (("--eps", "0.1", "--neurons", "3"), "--eps cannot be combined", 2),
        (("--keep", "20%", "--neurons", "3"), "--neurons and --keep cannot be combined", 2),
        (("--semantics=paper", "--quotient=exact", "--relation=backward"), "exact needs", 2),
    ],
)  # fmt: skip
def test_bad_options_get_one_line(
    model: Path, tmp_path: Path, args: tuple[str, ...], message: str, code: int
) -> None:
    assert_one_line_error(run("optimize", model, tmp_path / "o.onnx", *args), message, code)
    assert not (tmp_path / "o.onnx").exists()


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("--semantics", "other"), "budget"),
        (("--neurons", "many"), "--neurons"),
        (("--sed", "1"), "--sed"),
    ],
)
def test_what_does_not_parse_is_a_usage_error(
    model: Path, tmp_path: Path, args: tuple[str, ...], message: str
) -> None:
    done = run("optimize", model, tmp_path / "o.onnx", *args)
    assert done.exit_code == 2
    assert message in done.stderr


def test_data_that_does_not_fit_gets_one_line(model: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "d.npz", z=np.zeros((3, 3)), w=np.zeros((3, 3)))
    done = run("optimize", model, tmp_path / "o.onnx", "--data", tmp_path / "d.npz")
    assert_one_line_error(done, "has no array 'x'")


def test_a_target_that_cannot_be_written_gets_one_line(model: Path, tmp_path: Path) -> None:
    assert_one_line_error(run("optimize", model, tmp_path / "no" / "o.onnx"), "no such folder")
    assert_one_line_error(run("optimize", model, tmp_path), "is not a file")


@pytest.mark.parametrize("target", ["in.onnx", "d.npz", "o.onnx"])
def test_a_report_does_not_replace_another_file_of_the_run(model: Path, target: str) -> None:
    folder = model.parent
    np.savez(folder / "d.npz", x=np.zeros((3, 3)))
    before = {p.name: p.read_bytes() for p in folder.iterdir()}
    args = ("--data", folder / "d.npz", "--json", folder / target)
    assert_one_line_error(
        run("optimize", model, folder / "o.onnx", *args), "choose another file", 2
    )
    assert_one_line_error(
        run("optimize", model, folder / "d.npz", "--data", folder / "d.npz"), "is the data file", 2
    )
    assert {p.name: p.read_bytes() for p in folder.iterdir()} == before


def test_a_misspelt_layer_to_skip_is_an_error(model: Path, tmp_path: Path) -> None:
    done = run("optimize", model, tmp_path / "o.onnx", "--skip", "frist")
    assert_one_line_error(done, "no layer is called 'frist'; the layers are first")


def test_eps_twice_is_a_usage_error(model: Path, tmp_path: Path) -> None:
    done = run("optimize", model, tmp_path / "o.onnx", "--eps", "0.1", "--eps", "0.2")
    assert_one_line_error(done, "--eps is given twice", 2)
