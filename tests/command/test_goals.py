"""Goals on the command line: what is shown, written and answered."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from onnxfde import goals
from onnxfde.running import paired_losses
from tests.command.running import run
from tests.passes.test_goal_merging import chain, rows

REFIT = ("--quotient", "refit")


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path, Path]:
    """A model, its data, and where the result goes."""
    onnx.save(chain(), tmp_path / "in.onnx")
    np.savez(tmp_path / "rows.npz", x=rows(600), labels=np.arange(600) % 3)
    return tmp_path / "in.onnx", tmp_path / "rows.npz", tmp_path / "out.onnx"


def test_explain_shows_what_each_layer_gives(files: tuple[Path, Path, Path]) -> None:
    model, data, out = files
    done = run("optimize", model, out, "--data", data, "--max-error", "30%", "--explain", *REFIT)
    assert done.exit_code == 0, done.stderr
    assert out.exists()
    text = done.stdout
    for part in (
        "of all error",
        "of all saving",
        "first",
        "second",
        "goal        --max-error 0.3: ",
    ):
        assert part in text


def test_nothing_is_written_if_an_error_is_not_met(
    files: tuple[Path, Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paired_losses.Loss, "expected", lambda loss, _: 0.4 * loss.value)
    model, data, out = files
    done = run("optimize", model, out, "--data", data, "--max-error", "0.1", *REFIT)
    assert done.exit_code == 1
    assert not out.exists()
    assert "was not met" in done.stderr
    assert "first 24 → " in done.stderr


def test_nothing_is_written_if_a_time_is_not_met(
    files: tuple[Path, Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(goals, "TIMED_SECONDS", 0.0)
    model, data, out = files
    done = run("optimize", model, out, "--data", data, "--max-latency", "0.000001", *REFIT)
    assert done.exit_code == 1
    assert not out.exists()
    assert "first 24 → 1, second 16 → 1 it takes" in done.stderr
    assert "ms; nothing was written" in done.stderr


def test_labels_have_any_name(files: tuple[Path, Path, Path]) -> None:
    model, data, out = files
    words = ("optimize", model, out, "--data", data, "--max-drop", "20", *REFIT)
    assert "or what --labels names" in run(*words).stderr
    done = run(*words, "--labels", "labels")
    assert done.exit_code == 0, done.stderr
    assert "accuracy" in done.stdout


def test_the_help_of_eps_says_when_a_target_is_better() -> None:
    assert "--max-error is better" in " ".join(run("optimize", "--help").stdout.split())
