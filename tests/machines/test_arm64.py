"""onnxruntime's ARM build under qemu: the same numbers as here, and instructions that repeat."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from typer.testing import CliRunner

from onnxfde.command.main import app
from onnxfde.errors import TargetError
from onnxfde.machines.benchmark import bench
from onnxfde.machines.targets.arm64 import Arm64, counted_model
from onnxfde.machines.targets.base import parse_target
from onnxfde.machines.targets.runner import REGIONS
from onnxfde.machines.targets.sysroot import find_sysroot
from tests.machines.processes import runners, wait_until
from tests.models import build, mlp

PARITY = 1e-5
REPEATS = 0.005


@pytest.fixture(autouse=True, scope="module")
def ready(request: pytest.FixtureRequest) -> None:
    try:
        find_sysroot()
    except TargetError as reason:
        pytest.skip(str(reason))


def network(inputs: int, neurons: int, seed: int = 0) -> onnx.ModelProto:
    rng = np.random.default_rng(seed)
    shapes = ((neurons, inputs), (neurons,), (inputs, neurons), (inputs,))
    w, b, v, c = (rng.normal(size=shape).astype(np.float32) for shape in shapes)
    return mlp(w, b, v, c)


def test_half_the_neurons_cost_half_the_instructions_and_the_numbers_are_those_of_here(
    tmp_path: Path,
) -> None:
    files = []
    for neurons in (512, 256):
        files.append(tmp_path / f"{neurons}.onnx")
        onnx.save(network(64, neurons), files[-1])
    found = bench(files, targets=["arm64:cortex-a53", "arm64"], batches=[1, 8], seconds=0)
    assert not found.failed
    assert [place.counts for place in found.targets] == [True] * 2
    for place in found.targets:
        whole, half = place.lines
        assert whole.load is None
        for a, b in zip(whole.latencies, half.latencies, strict=True):
            for run in (a, b):
                assert run.p50 is None
                assert run.difference is not None
                assert run.difference <= PARITY
                assert run.repeatability is not None
                assert run.repeatability <= 2 * REPEATS
            assert a.simd is not None
            assert b.simd is not None
            assert a.simd / b.simd == pytest.approx(2.0, rel=0.05)
            assert a.simd / (a.batch * 2 * 64 * 512) == pytest.approx(0.25, rel=0.15)
        (_, many) = half.latencies
        assert many.speedup is not None
        assert 1.5 < many.speedup.value < 2.1


def test_counts_repeat_from_run_to_run(tmp_path: Path) -> None:
    onnx.save(network(16, 64), tmp_path / "a.onnx")
    counts = []
    for _ in range(3):
        (place,) = bench([tmp_path / "a.onnx"], targets=["arm64"], seconds=0).targets
        counts.append(place.lines[0].latencies[0].instructions or 0)
    assert max(counts) <= (1 + REPEATS) * min(counts)


def test_a_model_that_fails_on_arm_only_keeps_its_row_here_and_the_others_theirs(
    tmp_path: Path,
) -> None:
    """Layouts for x86, which onnxruntime bakes in when it saves what it optimized."""
    rng = np.random.default_rng(0)
    convolution = build(
        "h = Conv <pads = [1, 1, 1, 1]> (x, W) y = Relu(h)",
        inputs="float[1,16,8,8] x",
        outputs="float[1,32,8,8] y",
        W=rng.normal(size=(32, 16, 3, 3)).astype(np.float32),
    )
    good, bad = tmp_path / "good.onnx", tmp_path / "x86.onnx"
    onnx.save(convolution, good)
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath, options.log_severity_level = str(bad), 4
    onnxruntime.InferenceSession(str(good), options, providers=["CPUExecutionProvider"])
    if not any(node.domain == "com.microsoft.nchwc" for node in onnx.load(bad).graph.node):
        pytest.skip("onnxruntime has no layouts of its own on this machine")
    here, there = bench([bad, good], targets=["cpu", "arm64"], seconds=0).targets
    assert [line.error for line in here.lines] == [None, None]
    assert "nchwc" in (there.lines[0].error or "")
    assert there.lines[1].latencies[0].instructions


def test_a_crash_costs_one_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    onnx.save(network(8, 8), tmp_path / "a.onnx")
    crashed: list[int] = []

    def crash() -> None:
        if wait_until(lambda: bool(runners(tmp_path, "--count 0"))):
            crashed.extend(runners(tmp_path, "--count 0"))
            os.kill(crashed[0], signal.SIGKILL)

    killer = threading.Thread(target=crash)
    killer.start()
    (place,) = bench([tmp_path / "a.onnx"] * 2, targets=["arm64"], seconds=0).targets
    killer.join()
    assert len(crashed) == 1
    assert place.lines[0].error == "signal 9"
    assert place.lines[1].latencies[0].instructions


def test_a_slow_model_is_given_up(tmp_path: Path) -> None:
    onnx.save(network(8, 8), tmp_path / "a.onnx")
    (place,) = bench([tmp_path / "a.onnx"] * 2, targets=["arm64"], seconds=0, timeout=0.2).targets
    assert "it took longer than 0.2 s" in (place.error or "")


def test_the_emulator_ends_with_whoever_started_it(tmp_path: Path) -> None:
    onnx.save(network(256, 4096), tmp_path / "a.onnx")
    command = [sys.executable, "-m", "onnxfde", "bench", str(tmp_path / "a.onnx")]
    process = subprocess.Popen(
        [*command, "--batch", "512", "--target", "arm64"],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    log = "onnxfde-*/counts-0"
    assert wait_until(lambda: bool(runners(tmp_path) and list(tmp_path.glob(log))))
    process.kill()
    process.wait(20)
    assert wait_until(lambda: not runners(tmp_path))


def test_a_set_up_that_is_ready_is_left_alone() -> None:
    done = CliRunner().invoke(app, ["target", "setup", "arm64"])
    assert done.exit_code == 0
    assert done.stdout.startswith(f"arm64 was set up before in {find_sysroot().folder}")


def test_the_processor_may_be_spelled_with_and_without_arm64() -> None:
    for text, cpu in (("arm64", "cortex-a76"), ("arm64:cortex-a53", "cortex-a53")):
        assert parse_target(text) == Arm64(text, cpu)
    assert parse_target("cortex-a72") == Arm64("cortex-a72", "cortex-a72")


def test_markers_cost_nothing() -> None:
    """Each marker takes 7 instructions here, each run 100 of which 40 are SIMD."""
    counts, total, simd = [], 0, 0
    for kind in REGIONS:
        total += 7
        counts.append((total, simd))
        if kind != "nothing":
            total, simd = total + 5 * 100, simd + 5 * 40
        total += 7
        counts.append((total, simd))
    answer = {"failed": {}, "repeats": {"1": 5}, "outputs": {"1": EMPTY}}
    run = counted_model(answer, iter(counts)).runs[1]
    assert run.instructions == (100.0,) * 3
    assert run.simd == (40.0,) * 3


EMPTY = "UEsFBgAAAAAAAAAAAAAAAAAAAAAAAA=="
"""A .npz without arrays, in base64."""
