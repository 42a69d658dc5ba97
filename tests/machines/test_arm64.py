"""onnxruntime's ARM build under qemu: the same numbers as here, and instructions that repeat."""

from __future__ import annotations

import os
import signal
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
from onnxfde.machines.results import Comparison
from onnxfde.machines.targets.arm64 import Arm64, counted_model
from onnxfde.machines.targets.base import parse_target
from onnxfde.machines.targets.runner import REGIONS
from onnxfde.machines.targets.sysroot import find_sysroot
from tests.machines.processes import runners, running_bench, wait_until
from tests.models import build, mlp

PARITY = 1e-5
"""Largest difference from this machine's outputs, relative to the largest."""
REPEATS = 0.005
"""Largest relative difference between counts of the same runs."""
INPUTS, NEURONS = 64, 512
FIXED_INSTRUCTIONS = 50_000
"""More than a run of the smallest network takes."""


@pytest.fixture(autouse=True, scope="module")
def emulator() -> None:
    try:
        find_sysroot()
    except TargetError as reason:
        pytest.skip(str(reason))


def network(inputs: int, neurons: int) -> onnx.ModelProto:
    rng = np.random.default_rng(0)
    shapes = ((neurons, inputs), (neurons,), (inputs, neurons), (inputs,))
    w, b, v, c = (rng.normal(size=shape).astype(np.float32) for shape in shapes)
    return mlp(w, b, v, c)


def save_for_x86(file: Path) -> None:
    """Save a model as onnxruntime optimizes it here: with memory layouts for x86."""
    rng = np.random.default_rng(0)
    convolution = build(
        "h = Conv <pads = [1, 1, 1, 1]> (x, W) y = Relu(h)",
        inputs="float[1,16,8,8] x",
        outputs="float[1,32,8,8] y",
        W=rng.normal(size=(32, 16, 3, 3)).astype(np.float32),
    )
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath, options.log_severity_level = str(file), 4
    onnxruntime.InferenceSession(
        convolution.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    """A network, one with half its neurons, the same again, and a model that only x86 can run."""
    folder = tmp_path_factory.mktemp("arm64")
    whole, half, x86 = (folder / f"{name}.onnx" for name in ("whole", "half", "x86"))
    onnx.save(network(INPUTS, NEURONS), whole)
    onnx.save(network(INPUTS, NEURONS // 2), half)
    save_for_x86(x86)
    return bench([whole, half, half, x86], targets=["cpu", "arm64"], batches=[1, 4], seconds=0)


def test_the_outputs_are_those_of_this_machine(compared: Comparison) -> None:
    for line in compared.targets[1].lines[:3]:
        differences = [run.difference for run in line.latencies]
        assert all(d is not None and d <= PARITY for d in differences), differences


def test_instructions_are_counted_and_no_time_is_taken(compared: Comparison) -> None:
    here, there = compared.targets
    assert (here.counts, there.counts) == (False, True)
    for line, neurons in zip(there.lines, (NEURONS, NEURONS // 2), strict=False):
        assert line.load is None
        for run in line.latencies:
            assert run.p50 is None
            assert run.instructions is not None
            assert run.simd is not None
            multiply_adds = run.batch * 2 * INPUTS * neurons
            assert 0.25 <= run.simd / multiply_adds <= 0.28
            assert run.simd < run.instructions < 2 * run.simd + FIXED_INSTRUCTIONS


def test_half_the_neurons_cost_half_the_instructions(compared: Comparison) -> None:
    (_, whole), (_, half) = (line.latencies for line in compared.targets[1].lines[:2])
    assert whole.simd is not None
    assert half.simd is not None
    assert whole.simd / half.simd == pytest.approx(2.0, rel=0.05)
    assert half.speedup is not None
    assert 1.3 < half.speedup.value < 2.1


def test_without_the_call_the_ratio_is_nearer_to_that_of_the_neurons(compared: Comparison) -> None:
    """Twice the neurons are twice the work; a call takes as much in both."""
    whole, half = compared.targets[1].lines[:2]
    for line in (whole, half):
        assert line.call is not None
        assert 10_000 < line.call < 40_000
    single = half.latencies[0]
    assert single.speedup is not None
    assert single.speedup_without_call is not None
    assert single.speedup.value < single.speedup_without_call < 2.1


def test_counts_repeat_within_a_process_and_from_one_to_the_next(compared: Comparison) -> None:
    _, once, again, _ = compared.targets[1].lines
    for a, b in zip(once.latencies, again.latencies, strict=True):
        for run in (a, b):
            assert run.repeatability is not None
            assert run.repeatability <= 2 * REPEATS
        assert a.instructions is not None
        assert b.instructions == pytest.approx(a.instructions, rel=REPEATS)


def test_a_model_that_fails_on_arm_only_keeps_its_row_here_and_the_others_theirs(
    compared: Comparison,
) -> None:
    here, there = compared.targets
    assert [line.error for line in here.lines] == [None] * 4
    nodes = onnx.load(compared.models[3].file).graph.node
    if not any(node.domain == "com.microsoft.nchwc" for node in nodes):
        pytest.skip("onnxruntime has no layouts of its own on this machine")
    assert "nchwc" in (there.lines[3].error or "")
    assert [line.error for line in there.lines[:3]] == [None] * 3


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
    target = "arm64:cortex-a53"
    (place,) = bench([tmp_path / "a.onnx"] * 2, targets=[target], seconds=0).targets
    killer.join(60)
    assert len(crashed) == 1
    assert place.lines[0].error == "signal 9"
    (run,) = place.lines[1].latencies
    assert run.instructions
    assert run.difference is not None
    assert run.difference <= PARITY


def test_a_slow_model_is_given_up(tmp_path: Path) -> None:
    onnx.save(network(8, 8), tmp_path / "a.onnx")
    (place,) = bench([tmp_path / "a.onnx"] * 2, targets=["arm64"], seconds=0, timeout=0.2).targets
    assert "it took longer than 0.2 s" in (place.error or "")


def test_the_emulator_ends_when_bench_is_killed(tmp_path: Path) -> None:
    """The batch is so large that the emulator would run for minutes."""
    onnx.save(network(256, 4096), tmp_path / "a.onnx")
    options = ("--batch", "8192", "--target", "arm64")
    with running_bench(tmp_path / "a.onnx", *options, TMPDIR=str(tmp_path)) as process:
        log = "onnxfde-*/counts-0"
        assert wait_until(lambda: bool(runners(tmp_path) and list(tmp_path.glob(log))))
        process.kill()
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
    for cost in (100, 30):
        for kind in REGIONS:
            total += 7
            counts.append((total, simd))
            if kind != "nothing":
                total, simd = total + 5 * cost, simd + 5 * 40
            total += 7
            counts.append((total, simd))
    answer = {"failed": {}, "repeats": {"1": 5}, "outputs": {"1": EMPTY}, "idle_repeats": 5}
    found = counted_model(answer, iter(counts))
    assert found.runs[1].instructions == (100.0,) * 3
    assert found.runs[1].simd == (40.0,) * 3
    assert found.call == 30.0


EMPTY = "UEsFBgAAAAAAAAAAAAAAAAAAAAAAAA=="
"""A .npz without arrays, in base64."""
