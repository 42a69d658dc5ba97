"""A line tells of a result whose convolutions run slowly, and what to do."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from tests.command.running import run
from tests.conv_models import images, residual

ODD = ("--keep", "70%")
EVEN = (*ODD, "--align", "8")


@pytest.mark.parametrize(
    ("out", "words", "said"),
    [
        ("out.onnx", ODD, "no multiple of 8: try --align 8"),
        ("out.onnx", EVEN, ""),
        ("out.onnx", (*ODD, "--align", "1"), ""),
        ("out.onnx", (*EVEN, "--int8", "static"), ""),
        (
            "out.onnx",
            (*EVEN, "--int8", "dynamic"),
            "in dynamic 8 bits: give --int8 static",
        ),
        ("out.ort", EVEN, "slower from an .ort file"),
    ],
)
def test_what_is_slow_is_said(tmp_path: Path, out: str, words: tuple[str, ...], said: str) -> None:
    onnx.save(residual(), tmp_path / "in.onnx")
    np.save(tmp_path / "images.npy", images(100))
    given = ("--data", str(tmp_path / "images.npy"), "--quotient", "refit", *words)
    done = run("optimize", tmp_path / "in.onnx", tmp_path / out, *given)
    assert done.exit_code == 0, done.stderr
    hints = ("no multiple of 8", "in dynamic 8 bits", "slower from an .ort")
    assert said in done.stdout
    assert [hint for hint in hints if hint in done.stdout] == [h for h in hints if h in said]
