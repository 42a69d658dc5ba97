"""Models that would run for ever or fill the memory are stopped or not run, for a reason."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import onnx
import pytest

import onnxfde
from onnxfde import memory
from onnxfde.errors import DataError, RunStopped, RuntimeUnavailable
from onnxfde.graph.input_specs import InputSpec, input_specs
from onnxfde.graph.model import Graph
from onnxfde.graph.reference import evaluate
from onnxfde.memory import limited_memory
from onnxfde.running import run_size
from onnxfde.running.random_inputs import MOST_VALUES, random_samples
from onnxfde.running.run_clock import RunClock
from onnxfde.running.run_size import sized, sized_to_compare
from onnxfde.running.runtime import load, onnx_reference_runner, run_all
from onnxfde.running.samples import BATCH, Samples
from tests.command.running import run
from tests.models import build
from tests.running.endless import (
    HUGE,
    SQUARE,
    UNFORESEEN,
    B,
    C,
    V,
    W,
    endless,
    with_side_branch,
)

FLOAT = np.dtype(np.float32)
LINUX = pytest.mark.skipif(sys.platform != "linux", reason="the limit is Linux's own")
SOON = 0.3
"""Seconds after which tests stop runs."""


@pytest.mark.parametrize("branch", HUGE)
def test_a_value_known_to_be_huge_is_never_made(branch: str, tmp_path: Path) -> None:
    model, out = with_side_branch(HUGE[branch]), tmp_path / "out.onnx"
    onnx.save(model, tmp_path / "m.onnx")
    done = run("optimize", tmp_path / "m.onnx", out, "--eps", "0")
    assert done.exit_code == 0, done.output
    reason = "NOT VERIFIED: one run is too large: 'z' would have 8,589,934,592 numbers"
    assert reason in " ".join(done.stdout.split())
    assert len(onnx.load(out).graph.initializer) == 4
    checked = run("verify", tmp_path / "m.onnx", out, "--tolerance", "1")
    assert checked.exit_code == 1


@LINUX
def test_a_value_that_turns_out_huge_is_refused_its_memory() -> None:
    import resource

    before = resource.getrlimit(resource.RLIMIT_DATA)
    model = with_side_branch(UNFORESEEN)
    found = onnxfde.optimize(model, eps=0).report.verification
    assert found is not None
    assert "more than the 0.7 GB of memory that it may" in (found.unverified or "")
    assert resource.getrlimit(resource.RLIMIT_DATA) == before


@LINUX
def test_the_reference_is_refused_memory_too() -> None:
    node = build("y = ConstantOfShape(x)", "int64[1] x", "float[N] y").graph.node[0]
    with limited_memory(2**28), pytest.raises(RuntimeUnavailable, match="Unable to allocate"):
        evaluate(node, [np.array([2**33])], 17)


@LINUX
def test_a_limit_inside_a_lower_one_changes_nothing() -> None:
    import resource

    with limited_memory(2**28):
        outer = resource.getrlimit(resource.RLIMIT_DATA)
        with limited_memory(2**29):
            assert resource.getrlimit(resource.RLIMIT_DATA) == outer
        assert resource.getrlimit(resource.RLIMIT_DATA) == outer
    assert resource.getrlimit(resource.RLIMIT_DATA) != outer


@LINUX
def test_the_stacks_of_threads_take_nothing_from_a_model(tmp_path: Path) -> None:
    """On 100 processors, or with large stacks, they take more than a small model may."""
    import resource

    onnx.save(build(SQUARE, W=W, b=B, V=V, c=C), tmp_path / "m.onnx")
    hard = resource.getrlimit(resource.RLIMIT_STACK)[1]
    if hard not in (resource.RLIM_INFINITY, 2**30):
        pytest.skip("the stacks of threads cannot be made large here")
    code = (
        "import onnx, sys; from onnxfde.running.runtime import load; "
        "print(load(onnx.load(sys.argv[1]), None).engine)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, tmp_path / "m.onnx"],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_STACK, (2**30, hard)),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.strip() == "onnxruntime"


@LINUX
def test_no_limit_is_set_where_it_is_unknown_what_is_in_use(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import resource

    before = resource.getrlimit(resource.RLIMIT_DATA)
    monkeypatch.setattr(memory, "Path", lambda _: Path("/no such file system"))
    with limited_memory(0):
        assert resource.getrlimit(resource.RLIMIT_DATA) == before


def test_an_endless_loop_does_not_hold_up_a_file_in_the_format_of_onnxruntime(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onnxfde.running.run_clock.RUN_SECONDS", SOON)
    report = onnxfde.optimize(endless(), eps=0).save(tmp_path / "out.ort")
    assert report.verification is not None
    assert "stopped" in (report.verification.unverified or "")
    assert (tmp_path / "out.ort").exists()


def test_a_large_model_may_take_more_memory() -> None:
    assert memory.allowance(2**30) > 2**32 > memory.allowance(2**20)


@pytest.mark.parametrize(("levels", "upstream"), [(1, False), (2, False), (1, True)])
def test_an_endless_loop_is_stopped_once(
    levels: int, upstream: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onnxfde.running.run_clock.RUN_SECONDS", SOON)
    start = time.process_time()
    report = onnxfde.optimize(endless(levels, upstream), eps=0, input_range=(0, 1)).report
    assert time.process_time() - start < 10 * SOON
    assert report.layers[0].neurons_after < report.layers[0].neurons_before
    assert report.verification is not None
    assert "stopped" in (report.verification.unverified or "")
    remark = report.layers[0].remark or ""
    assert ("stopped" in remark) == upstream


def test_two_models_of_which_one_does_not_end_are_not_verified(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onnxfde.running.run_clock.RUN_SECONDS", SOON)
    onnx.save(endless(), tmp_path / "endless.onnx")
    ended = endless()
    ended.graph.node[0].attribute[0].t.int32_data[:] = [0]
    onnx.save(ended, tmp_path / "ended.onnx")
    for files in (("ended", "endless"), ("endless", "ended")):
        done = run("verify", *(tmp_path / f"{name}.onnx" for name in files), "--tolerance", "1")
        assert done.exit_code == 1
        assert "NOT VERIFIED" in done.stdout
        assert "stopped" in done.stdout


def test_the_reference_can_be_stopped() -> None:
    runner = onnx_reference_runner(endless(2), None)
    x = np.zeros((2, 3), np.float32)
    with pytest.raises(RunStopped, match="stopped after"), RunClock(SOON).watching(runner.stop, 0):
        runner.run({"x": x})


def work_for(seconds: float) -> None:
    """Keep the processor busy."""
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass


def test_a_run_that_waits_for_a_busy_machine_is_not_stopped() -> None:
    clock, stops = RunClock(0.05), list[str]()
    with clock.watching(lambda: stops.append("stop"), work=0):
        time.sleep(0.2)
    assert not stops
    assert clock.left > 0


def test_time_grows_with_the_work_and_is_shared_by_all_runs() -> None:
    clock, stops = RunClock(0.05), list[str]()
    with clock.watching(lambda: stops.append("stop"), work=1e12):
        work_for(0.2)
    assert not stops
    assert clock.left == 0.05
    with clock.watching(lambda: stops.append("stop"), work=0):
        work_for(0.2)
    assert stops == ["stop"]
    assert clock.left < 0


def test_many_quick_runs_make_up_for_a_slow_one() -> None:
    clock = RunClock(0.5)
    with clock.watching(lambda: None, work=0):
        work_for(0.1)
    after_slow = clock.left
    for _ in range(1000):
        with clock.watching(lambda: None, work=0, runs=2):
            pass
    assert after_slow < clock.left <= 0.5


def test_after_a_run_was_stopped_no_other_is_started() -> None:
    clock = RunClock()
    with pytest.raises(RunStopped), clock.watching(lambda: None, 0):
        raise RunStopped("by the test")
    with pytest.raises(RunStopped, match="before"), clock.watching(lambda: None, 0):
        pytest.fail("it was started")


@pytest.mark.parametrize(
    ("inputs", "first"),
    [
        ("float[N,3] x, float[N,1000000000] q", "1,000,000,003"),
        ("float[N,3] x, float[N,4294967296,4294967296] q", "18,446,744,073,709,551,619"),
        ("float[50000000,3] x, float[1] q", "150,000,001"),
    ],
)
def test_inputs_too_large_to_be_made_leave_the_result_unverified(inputs: str, first: str) -> None:
    model = build(
        "h = Gemm <transB = 1> (x, W, b) s = Mul(h, h) y = Gemm <transB = 1> (s, V, c) "
        "t = ReduceSum <keepdims = 0> (q)",
        inputs=inputs,
        outputs="float[M,2] y, float t",
        W=W,
        b=B,
        V=V,
        c=C,
    )
    found = onnxfde.optimize(model, eps=0).report.verification
    assert found is not None
    reason = f"the inputs of one run have {first} numbers, more than can be tried out"
    assert found.unverified == reason


def test_batches_with_a_huge_common_multiple_are_run_once() -> None:
    specs = (InputSpec("x", FLOAT, (31153, 3)), InputSpec("q", FLOAT, (31181, 2)))
    samples = random_samples(specs, (0, 1), 1024)
    assert {name: len(a) for name, a in samples.arrays.items()} == {"x": 31153, "q": 31181}
    assert samples.runs == 1
    assert sum(a.size for a in samples.arrays.values()) < MOST_VALUES


def tiled(columns: int) -> Graph:
    """A model with a wide value inside, and a constant that is as wide for any batch."""
    body = (
        f"k = Constant <value = int64[2] {{1, {columns}}}> () z = Tile(x, k) "
        "w = ReduceSum <keepdims = 0> (W) y = ReduceMean <axes = [1], keepdims = 1> (z) "
    )
    return Graph(build(body, outputs="float[N,1] y, float w", W=np.ones((5, 5), np.float32)))


def test_a_run_takes_as_many_rows_as_its_values_leave_room_for() -> None:
    wide, rows = tiled(10_000), np.random.default_rng(0).random((1500, 3)).astype(np.float32)
    samples = Samples(input_specs(wide), {"x": rows}, "test")
    found = sized(samples, wide)
    assert found.batch == run_size.RUN_VALUES // 30_000 < BATCH
    assert sized(samples, tiled(10)).batch == BATCH
    means = run_all(load(wide.model, None), found)[0].values
    np.testing.assert_allclose(means, rows.mean(axis=1, keepdims=True), rtol=0, atol=1e-4)


def test_outputs_are_compared_on_as_many_rows_as_they_leave_room_for() -> None:
    model = build(
        "k = Constant <value = int64[2] {1, 10000}> () y = Tile(x, k)", outputs="float[N,K] y"
    )
    rows = np.zeros((1500, 3), np.float32)
    found = sized_to_compare(Samples(input_specs(Graph(model)), {"x": rows}, "test"), Graph(model))
    assert found.rows == run_size.COMPARED_VALUES // 30_000
    assert found.source == f"test ({found.rows} of 1,500 rows)"


def test_one_row_that_is_too_large_is_refused() -> None:
    wide = tiled(10**8)
    samples = Samples(input_specs(wide), {"x": np.zeros((5, 3), np.float32)}, "test")
    with pytest.raises(DataError, match="'z' would have 300,000,000 numbers"):
        sized(samples, wide)


def test_each_weight_makes_room_for_larger_values(monkeypatch: pytest.MonkeyPatch) -> None:
    wide, weights = tiled(10**6), 25
    samples = Samples(input_specs(wide), {"x": np.zeros((1, 3), np.float32)}, "test")
    enough = 3 * 10**6 - weights * run_size.VALUES_PER_WEIGHT
    monkeypatch.setattr(run_size, "LARGEST_VALUE", enough)
    assert sized(samples, wide).work >= 3 * 10**6
    monkeypatch.setattr(run_size, "LARGEST_VALUE", enough - 1)
    with pytest.raises(DataError, match="too large"):
        sized(samples, wide)
