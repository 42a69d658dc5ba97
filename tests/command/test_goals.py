"""Goals on the command line: what is shown, written and answered."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path

import numpy as np
import onnx
import pytest

from onnxfde import goals
from onnxfde.estimates import Estimate
from tests.command.running import run
from tests.models import build, outputs_of
from tests.passes.test_goal_merging import chain, rows

REFIT = ("--quotient", "refit")


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path, Path]:
    """A model, its data, and where the result goes."""
    onnx.save(chain(), tmp_path / "in.onnx")
    labels = outputs_of(chain(), rows(600))[0].argmax(axis=1)
    np.savez(tmp_path / "rows.npz", x=rows(600), labels=labels)
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
        "neurons     40 → ",
    ):
        assert part in text
    header = next(line for line in text.splitlines() if line.startswith("layer"))
    assert "ε" not in header.split(), "no layer has one"


def test_nothing_is_written_if_an_error_is_not_met(
    files: tuple[Path, Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Estimate, "expected", lambda loss, _: 0.4 * loss.value)
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
    assert "--max-latency 0.000001 was not met: with first 24 → " in done.stderr
    assert "ms; nothing was written" in done.stderr


def test_an_error_holds_for_the_file_that_is_written(files: tuple[Path, Path, Path]) -> None:
    model, data, out = files
    words = ("--data", data, "--max-error", "0.002", "--int8", "dynamic", *REFIT)
    done = run("optimize", model, out, *words)
    assert done.exit_code == 1
    assert not out.exists()
    assert "--max-error 0.002 was not met: in 8 bits 0.0" in done.stderr
    assert "leave out --int8, or allow more" in done.stderr


def test_a_loss_that_was_allowed_is_not_called_large(files: tuple[Path, Path, Path]) -> None:
    model, data, out = files
    done = run("optimize", model, out, "--data", data, "--max-error", "50%", *REFIT)
    assert done.exit_code == 0, done.stderr
    assert "The outputs changed by more than" not in done.stdout


def test_a_time_is_measured_of_models_with_external_weights(
    files: tuple[Path, Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(goals, "TIMED_SECONDS", 0.0)
    model, data, out = files
    outside = model.with_name("outside.onnx")
    onnx.save(deepcopy(chain()), outside, save_as_external_data=True, size_threshold=0)
    done = run("optimize", outside, out, "--data", data, "--max-latency", "0.000001", *REFIT)
    assert "--max-latency 0.000001 was not met: with first 24 → " in done.stderr


def test_labels_that_the_original_guesses_are_refused(files: tuple[Path, Path, Path]) -> None:
    model, data, out = files
    np.savez(data, x=rows(600), y=np.arange(600) % 3)
    done = run("optimize", model, out, "--data", data, "--max-drop", "20", *REFIT)
    assert done.exit_code == 1
    assert "--max-drop: the original is right on" in done.stderr
    assert "hardly more than by chance" in done.stderr


def test_labels_have_any_name(files: tuple[Path, Path, Path]) -> None:
    model, data, out = files
    words = ("optimize", model, out, "--data", data, "--max-drop", "20", *REFIT)
    assert "or what --labels names" in run(*words).stderr
    done = run(*words, "--labels", "labels")
    assert done.exit_code == 0, done.stderr
    assert "accuracy" in done.stdout


def test_the_help_of_eps_says_when_a_target_is_better() -> None:
    assert "--max-error is better" in " ".join(run("optimize", "--help").stdout.split())


def test_a_run_tells_lengths_that_onnx_cannot_follow(tmp_path: Path) -> None:
    """Maps are padded to multiples of 4, whose widths are computed by Mod."""
    rng = np.random.default_rng(0)
    model = build(
        "s = Shape(x) w = Gather(s, three) m = Mod(w, four) d = Sub(four, m) e = Mod(d, four) "
        "u = Unsqueeze(e, first) p = Concat <axis = 0> (sevens, u) q = Pad(x, p) "
        "h = Conv(q, C) r = Relu(h) y = Conv(r, D)",
        inputs="float[N,3,8,L] x",
        outputs="float[N,4,P,Q] y",
        C=rng.normal(size=(16, 3, 3, 3)).astype(np.float32),
        D=rng.normal(size=(4, 16, 3, 3)).astype(np.float32),
        three=np.int64(3),
        four=np.int64(4),
        first=np.array([0]),
        sevens=np.zeros(7, np.int64),
    )
    onnx.save(model, tmp_path / "in.onnx")
    np.save(tmp_path / "x.npy", rng.random((120, 3, 8, 10)).astype(np.float32))
    words = ["--max-macs", "50%", "--data", str(tmp_path / "x.npy"), *REFIT]
    done = run("optimize", tmp_path / "in.onnx", tmp_path / "out.onnx", *words)
    assert done.exit_code == 0, done.stderr
    whole = 16 * 27 * 6 * 10 + 4 * 16 * 9 * 4 * 8
    assert f"{whole:,} → {whole // 2:,} multiply-adds" in done.stdout
