"""What bench prints."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from onnxfde.command import bench_table
from onnxfde.machines.ratios import Ratio
from onnxfde.machines.results import (
    BatchResult,
    Comparison,
    ModelResult,
    ModelSize,
    TargetResult,
    model_result,
    relative_difference,
)
from onnxfde.machines.targets.base import MeasuredBatch, MeasuredModel

MODELS = (ModelSize("a/x.onnx", 2000, 100, 90), ModelSize("b/x.onnx", 1000, 50, 45))


def comparison(*places: TargetResult, models: tuple[ModelSize, ...] = MODELS) -> Comparison:
    return Comparison({"threads": 2}, models, places)


def timed(batch: int = 1, **more: Any) -> BatchResult:
    return BatchResult(batch, **{"p50": 0.001, "p90": 0.002, "least": 0.0009, "turns": 9, **more})


def printed(found: Comparison, capsys: pytest.CaptureFixture[str]) -> str:
    bench_table.show_comparison(found)
    return capsys.readouterr().out


def test_models_of_one_name_are_told_apart_and_ratios_come_first(
    capsys: pytest.CaptureFixture[str],
) -> None:
    fast = timed(speedup=Ratio(2.0, 1.9, 2.1), p50=0.0005)
    lines = (
        ModelResult("x", (timed(speedup=Ratio(1.0, 1.0, 1.0)),), 0.01, 5_000_000),
        ModelResult("x", (fast,), 0.005),
    )
    text = printed(comparison(TargetResult("cpu", "machine", "1.2.3", lines)), capsys)
    assert "cpu: machine, onnxruntime 1.2.3, 2 threads" in text
    row = next(line for line in text.splitlines() if "b/x.onnx" in line)
    assert row.split()[1:6] == ["1", "2×", "(1.9–2.1)", "500", "µs"]
    assert "1 kB (50%)" in row
    assert "warning" not in text


def test_a_narrow_terminal_gets_sizes_in_a_table_of_their_own_and_whole_names() -> None:
    name = "mobile_classifier_release_candidate.onnx"
    models = (ModelSize(name, 2000, 100, 90), ModelSize("b.onnx", 1000, 50, 45))
    lines = tuple(
        ModelResult(m.file, (timed(speedup=Ratio(1.1, 1.05, 1.12)),), 0.1, 9) for m in models
    )
    stream = io.StringIO()
    out = Console(width=80, file=stream)
    bench_table.show_comparison(
        comparison(TargetResult("cpu", "m", "1", lines), models=models), out
    )
    text = stream.getvalue()
    assert text.index("speed-up") < text.index("mult-adds")
    assert max(map(len, text.splitlines())) <= 80
    assert "…" not in text
    cells = "".join(line.split(" ")[0] for line in text.splitlines())
    assert cells.count(name) == 2


def test_a_ratio_that_means_nothing_is_called_so(capsys: pytest.CaptureFixture[str]) -> None:
    vague = timed(speedup=Ratio(1.1, 0.7, 1.9))
    text = printed(
        comparison(
            TargetResult(
                "cpu", "m", "1", (ModelResult("x", (timed(),)), ModelResult("x", (vague,)))
            )
        ),
        capsys,
    )
    assert "b/x.onnx on cpu, batch 1: the times vary too much" in text


def test_outputs_that_differ_on_another_machine_are_pointed_out(
    capsys: pytest.CaptureFixture[str],
) -> None:
    lines = (
        ModelResult("x", (timed(difference=0.5),)),
        ModelResult("x", (timed(difference=None),)),
    )
    text = printed(comparison(TargetResult("ssh://board", "m", "1", lines)), capsys)
    assert "a/x.onnx on ssh://board, batch 1: its outputs differ from this machine's by 0.5" in text
    assert "b/x.onnx on ssh://board, batch 1: its outputs could not be compared" in text


def test_a_target_that_cannot_be_used_leaves_the_sizes(capsys: pytest.CaptureFixture[str]) -> None:
    found = comparison(TargetResult("arm64", error="arm64 is not set up; run: …"))
    text = printed(found, capsys)
    assert "arm64 is not set up" in text
    assert "1 kB (50%)" in text
    assert found.failed


def test_a_model_without_results_keeps_its_row(capsys: pytest.CaptureFixture[str]) -> None:
    lines = (ModelResult("a/x.onnx", error="no kernel"), ModelResult("b/x.onnx", error="no kernel"))
    text = printed(comparison(TargetResult("arm64", "m", "1", lines, counts=True)), capsys)
    assert "instructions" in text
    assert text.count("b/x.onnx") == 2
    assert "b/x.onnx on arm64: no kernel" in text


def test_counts_are_called_counts(capsys: pytest.CaptureFixture[str]) -> None:
    runs = [BatchResult(1, Ratio(r, r, r), instructions=1e6 / r, simd=5e5, repeatability=1e-4,
                    difference=0.0) for r in (1.0, 4.0)]  # fmt: skip
    lines = tuple(ModelResult("x", (run,)) for run in runs)
    text = printed(comparison(TargetResult("arm64", "aarch64", "1", lines, counts=True)), capsys)
    assert "a cost, not a time" in text
    assert "4×" in text
    assert "250 k" in text
    assert "p50" not in text


def counted(instructions: float, call: float, first: float) -> ModelResult:
    rows = [
        MeasuredModel({1: MeasuredBatch(instructions=(n,) * 3, simd=(0,) * 3)}, call=call)
        for n in (instructions, first)
    ]
    return model_result("x", rows[0], rows[1], MeasuredModel(), {})


def test_small_counts_are_compared_without_the_call_too(capsys: pytest.CaptureFixture[str]) -> None:
    lines = (counted(47_000, 21_000, 47_000), counted(34_000, 21_000, 47_000))
    assert lines[1].latencies[0].speedup_without_call == 2.0
    text = printed(comparison(TargetResult("arm64", "aarch64", "1", lines, counts=True)), capsys)
    row = next(line for line in text.splitlines() if "b/x.onnx" in line)
    assert row.split()[1:6] == ["1", "1.38×", "2×", "34", "k"]
    told = "note: on arm64 a call takes 21 k instructions whatever the model, 45% to 62% of"
    assert told in text


def test_large_counts_are_compared_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    lines = (counted(4_700_000, 21_000, 4_700_000), counted(3_400_000, 21_000, 4_700_000))
    text = printed(comparison(TargetResult("arm64", "aarch64", "1", lines, counts=True)), capsys)
    assert "call" not in text


def test_a_count_that_is_all_call_has_no_ratio_without_it() -> None:
    assert counted(21_100, 21_000, 47_000).latencies[0].speedup_without_call is None


def test_differences_are_relative_to_the_largest_value() -> None:
    here = [np.array([0.0, 2.0]), np.array([], dtype=np.float32)]
    assert relative_difference([np.array([0.5, 2.0]), here[1]], here) == 0.25
    assert relative_difference([np.array([0.5])], [np.array([0.5, 1.0])]) is None
    assert relative_difference([np.array([np.nan])], [np.array([1.0])]) is None
    assert relative_difference([np.zeros(3)], [np.zeros(3)]) == 0.0


def test_a_line_keeps_errors_of_runs_and_batches_left_out() -> None:
    row = MeasuredModel(
        {1: MeasuredBatch([[0.1], [0.2]]), 8: MeasuredBatch(error="no")}, (0.1, 0.3, 0.2)
    )
    line = model_result("a", row, MeasuredModel(), MeasuredModel(), {4: "fixed"})
    assert [(r.batch, r.error, r.left_out) for r in line.latencies] == [
        (1, None, None),
        (4, None, "fixed"),
        (8, "no", None),
    ]
    assert line.load == 0.2
    assert line.latencies[0].speedup is None
