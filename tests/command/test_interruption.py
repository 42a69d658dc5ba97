"""Ctrl-C: one line that says whether anything was written, and exit code 130."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.command.running import run, without_layers


def interrupt(*_: Any, **__: Any) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("work", "command", "message"),
    [
        ("onnxfde.pipeline.optimized", "optimize M O", "interrupted, nothing written"),
        ("onnxfde.pipeline.optimized", "optimize M M", "interrupted, nothing written"),
        ("onnxfde.pipeline.optimized", "optimize M O --dry-run", "interrupted"),
        ("onnxfde.inspection.inspect", "inspect M", "interrupted"),
        ("onnxfde.inspection.inspect", "inspect M --json -", "interrupted"),
        ("onnxfde.inspection.inspect", "inspect M --json J", "interrupted, nothing written"),
        ("onnxfde.pipeline.verify", "verify M M", "interrupted"),
        ("onnxfde.machines.benchmark.bench", "bench M", "interrupted"),
        ("onnxfde.pipeline.optimize", "demo", "interrupted"),
    ],
)
def test_an_interrupted_command_says_so(
    model: Path, monkeypatch: pytest.MonkeyPatch, work: str, command: str, message: str
) -> None:
    monkeypatch.setattr(work, interrupt)
    before = {path: path.read_bytes() for path in model.parent.iterdir()}
    files = {"M": model, "O": model.with_name("out.onnx"), "J": model.with_name("j.json")}
    done = run(*(files.get(word, word) for word in command.split()))
    assert (done.exit_code, done.stdout) == (130, "")
    assert done.stderr == f"onnxfde: {message}\n"
    assert {path: path.read_bytes() for path in model.parent.iterdir()} == before


def test_an_interrupted_sweep_says_what_is_kept(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onnxfde.sweeping.latencies.bench", interrupt)
    out = model.with_name("points")
    words = ("--sizes", "100%,50%", "--input-range", "0:1", "--quotient", "refit")
    done = run("sweep", model, "--out", out, *words)
    told = f"onnxfde: interrupted; 2 of 2 points are kept in {out}, give the same command to go on"
    assert (done.exit_code, done.stdout, done.stderr.splitlines()[-1]) == (130, "", told)


def test_what_was_written_before_an_interruption_is_named(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onnxfde.command.optimize_command.write_json", interrupt)
    out = model.with_name("out.onnx")
    done = run("optimize", model, out, "--input-range", "0:1")
    told = without_layers(done.stderr)
    assert (done.exit_code, told) == (130, f"onnxfde: interrupted after writing {out}\n")
    assert out.exists()
