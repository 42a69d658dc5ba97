"""Progress on a terminal, and a run that is interrupted while it shows."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import numpy as np
import onnx
import pytest

from onnxfde.command.progress_bar import progress_bar
from tests.models import mlp


def test_progress_is_shown_on_a_terminal_only(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def work_a_little() -> str:
        with progress_bar(quiet=False) as work:
            work.say("layer one")
            work.at(3, 10)
        return capsys.readouterr().err

    assert work_a_little() == ""
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    monkeypatch.setenv("FORCE_COLOR", "1")
    shown = work_a_little()
    assert "layer one" in shown
    assert "3/10" in shown


def test_without_a_terminal_verbose_tells_every_step_and_quiet_nothing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for quiet, told in ((False, "layer one\nlayer two\n"), (True, "")):
        with progress_bar(quiet, verbose=True) as work:
            work.say("layer one")
            work.say("layer two")
        assert capsys.readouterr().err == told


def model_for_many_seconds(path: Path) -> None:
    rng = np.random.default_rng(0)
    shapes: tuple[tuple[int, ...], ...] = ((1500, 200), (1500,), (200, 1500), (200,))
    onnx.save(mlp(*(rng.normal(size=s).astype(np.float32) for s in shapes)), path)


def read_terminal(terminal: int, until: bytes | None = None) -> bytes:
    """What a process shows: up to some text, or to its end."""
    shown = b""
    with suppress(OSError):
        while until is None or until not in shown:
            assert select.select([terminal], [], [], 60)[0], shown
            found = os.read(terminal, 4096)
            if not found:
                break
            shown += found
    return shown


@pytest.mark.parametrize(
    ("kind", "code", "last"),
    [
        (signal.SIGINT, 130, b"onnxfde: interrupted, nothing written\r\n"),
        (signal.SIGTERM, 143, b""),
    ],
)
def test_a_run_interrupted_at_work_leaves_nothing_behind(
    tmp_path: Path, kind: signal.Signals, code: int, last: bytes
) -> None:
    model_for_many_seconds(tmp_path / "big.onnx")
    terminal, inside = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "onnxfde", "optimize", "big.onnx", "out.onnx", "--eps", "0.01"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=inside,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
    )
    os.close(inside)
    try:
        assert b"first: 200-1500-200" in read_terminal(terminal, b"first: 200-1500-200")
        process.send_signal(kind)
        shown = read_terminal(terminal)
        stdout, _ = process.communicate(timeout=60)
    finally:
        process.kill()
        os.close(terminal)
    assert (process.returncode, stdout) == (code, b"")
    assert b"Traceback" not in shown
    assert shown.endswith(last)
    assert [p.name for p in tmp_path.iterdir()] == ["big.onnx"]
