"""Progress on a terminal, and a run that is interrupted while it shows."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import numpy as np
import onnx
import pytest
from rich.console import Console
from rich.progress import Progress as Bar

from onnxfde.command.progress_bar import progress_bar
from onnxfde.command.terminal_bar import TerminalBar
from tests.command.running import GLY, run
from tests.models import build, mlp, twins

LAYER = b"layer 1 of 1 'first' 200-1500-200"


def work_a_little(quiet: bool = False, verbose: bool = False) -> None:
    with (
        progress_bar(quiet, verbose) as work,
        work.on_layer("layer 1 of 2 'a\nb' 3-6-2") as outcome,
    ):
        work.say("comparing")
        work.at(3, 10)
        work.found("4 counts tried")
        outcome.text = "6 → 3 neurons"


def test_on_a_terminal_a_bar_shows_layer_phase_steps_and_the_best_so_far(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "120")
    with progress_bar(quiet=False) as work:
        work.layer("layer 1 of 2 'a\nb' 3-6-2")
        work.say("comparing")
        work.at(3, 10)
        work.found("4 counts tried")
        work.note("6 → 3 neurons")
    shown = capsys.readouterr().err
    for text in ("layer 1 of 2 'a b' 3-6-2 · comparing", "3/10", "4 counts tried", "0 s"):
        assert text in shown
    assert "6 → 3 neurons" not in shown


@pytest.mark.parametrize(
    ("quiet", "verbose", "steps", "note"),
    [(False, False, 0, 1), (False, True, 2, 1), (True, False, 0, 0), (True, True, 0, 0)],
)
def test_in_a_pipe_a_layer_is_one_line_and_verbose_tells_its_steps(
    capsys: pytest.CaptureFixture[str], quiet: bool, verbose: bool, steps: int, note: int
) -> None:
    work_a_little(quiet, verbose)
    layer = "layer 1 of 2 'a b' 3-6-2"
    told = [layer, "comparing"][:steps] + [f"{layer}: 6 → 3 neurons (0.0 s)"][:note]
    assert capsys.readouterr().err.splitlines() == told


def test_in_a_pipe_a_slow_layer_says_how_far_it_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    times = iter((0.0, 1.0, 5.0, 11.5, 12.0, 30.0))
    monkeypatch.setattr("onnxfde.command.progress_bar.time.monotonic", lambda: next(times))
    with progress_bar(quiet=False) as work:
        work.layer("layer 1")
        for count in range(4):
            work.found(f"{count} counts tried")
    told = ["layer 1: 1 counts tried", "layer 1: 3 counts tried"]
    assert capsys.readouterr().err.splitlines() == told


def test_the_bar_never_goes_back_within_a_phase() -> None:
    with Bar(*TerminalBar.columns, console=Console(file=io.StringIO())) as bar:
        shown = TerminalBar(bar)
        shares = []
        for done, total in ((1, 10), (5, 10), (4, 10), (6, 40), (30, 40), (1, 0)):
            shown.at(done, total)
            assert shown.task.total
            shares.append(shown.task.completed / shown.task.total)
        assert shares == [0.1, 0.5, 0.5, 0.5, 0.75, 0.75]
        shown.on_phase("reading")
        assert (shown.task.completed, shown.task.total) == (30, 40)
        shown.on_phase("the next")
        assert (shown.task.completed, shown.task.total) == (0, None)
        shown.at(10, 10)
        shown.on_layer("layer 2")
        assert (shown.task.completed, shown.task.total, shown.task.finished) == (0, None, False)


def test_every_layer_is_one_line_in_a_pipe_and_stdout_stays_json(tmp_path: Path) -> None:
    onnx.save(two_layers(), tmp_path / "in.onnx")
    words = ("optimize", tmp_path / "in.onnx", tmp_path / "out.onnx", "--input-range", "0:1")
    done = run(*words, "--json", "-", "--eps", "0")
    lines, layers = done.stderr.splitlines(), json.loads(done.stdout)["layers"]
    assert len(layers) == 2
    for number, (line, layer) in enumerate(zip(lines, layers, strict=True), start=1):
        shape = f"{layer['inputs']}-{layer['neurons_before']}-{layer['outputs']}"
        start = f"layer {number} of 2 '{layer['name']}' {shape}: {layer['neurons_before']} "
        assert line.startswith(start)
        assert re.search(r" \(\d+\.\d s\)$", line)
    assert run(*words, "-q", "--force").stderr == ""
    inspected = run("inspect", tmp_path / "in.onnx", "--input-range", "0:1").stderr.splitlines()
    assert [line.split(":")[0] for line in inspected] == [line.split(":")[0] for line in lines]


def test_the_line_of_a_layer_with_an_endless_name_is_short(tmp_path: Path) -> None:
    model = two_layers()
    model.graph.node[0].name = "n" * 100_000
    onnx.save(model, tmp_path / "in.onnx")
    done = run("optimize", tmp_path / "in.onnx", tmp_path / "out.onnx", "--input-range", "0:1")
    assert done.stderr.startswith("layer 1 of 2 'nnnnn")
    assert all(len(line) < 200 for line in done.stderr.splitlines())


def test_a_layer_that_is_left_alone_says_why_in_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onnxfde.passes.layer_study.size_fault", lambda _: "it is too large")
    onnx.save(two_layers(), tmp_path / "in.onnx")
    done = run("optimize", tmp_path / "in.onnx", tmp_path / "out.onnx", "--input-range", "0:1")
    for line in done.stderr.splitlines():
        assert ": left alone: it is too large (" in line


def test_smaller_eps_that_are_tried_do_not_repeat_the_lines_of_layers(tmp_path: Path) -> None:
    words = (
        "--max-certified-error",
        "1e-3",
        "--quotient",
        "refit",
        "--eps",
        "0.5",
        "--input-range",
        "0:1",
    )
    done = run("optimize", GLY, tmp_path / "o.onnx", *words)
    layer, why, *tried = done.stderr.splitlines()
    assert len(tried) > 2
    assert all(re.fullmatch(r"note: ε at most \S+: certified change \S+", line) for line in tried)
    assert layer.startswith("layer 1 of 1 ")
    assert why == "note: the certified change exceeds its limit: trying smaller ε"


def two_layers() -> onnx.ModelProto:
    """Two layers, each with three neurons twice."""
    (w1, b1, v1, c1), (w2, b2, v2, c2) = twins(), twins(inputs=2, seed=1)
    return build(
        "[one] h1 = Gemm <transB = 1> (x, W1, b1) s1 = Mul(h1, h1) "
        "y1 = Gemm <transB = 1> (s1, V1, c1) r = Cos(y1) "
        "[two] h2 = Gemm <transB = 1> (r, W2, b2) s2 = Mul(h2, h2) "
        "y = Gemm <transB = 1> (s2, V2, c2)",
        W1=w1, b1=b1, V1=v1, c1=c1, W2=w2, b2=b2, V2=v2, c2=c2,
    )  # fmt: skip


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
        assert LAYER in read_terminal(terminal, LAYER)
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


def test_the_error_of_a_layer_is_that_of_the_table(model: Path) -> None:
    done = run(
        "optimize", model, model.with_name("o.onnx"), "--neurons", "2", "--input-range", "0:1"
    )
    (told,) = re.findall(r"6 → 2 neurons, error (\S+) ", done.stderr)
    row = next(line.split() for line in done.stdout.splitlines() if line.startswith("first"))
    assert told in row
