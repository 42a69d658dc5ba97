"""What a run records of its time, its bounds, and what it left alone."""

from __future__ import annotations

import numpy as np
import pytest

import onnxfde
from onnxfde.demo import demo_model
from onnxfde.neurons import lower_bound
from onnxfde.numbers import FloatArray
from onnxfde.progress import Progress
from tests.models import build, mlp, twins

W, B, V, C = twins()


def test_the_time_of_a_run_is_not_added_to_the_one_before() -> None:
    progress = Progress()
    first = onnxfde.optimize(mlp(W, B, V, C), eps=0, progress=progress).report
    before = dict(first.seconds)
    second = onnxfde.optimize(mlp(W, B, V, C), eps=0, progress=progress).report
    assert first.seconds == before
    assert second.seconds is not first.seconds


def test_maps_that_are_not_folded_are_reported_with_their_reason() -> None:
    narrow = np.ones((3, 1), dtype=np.float32), np.ones((1, 9), dtype=np.float32)
    model = build(
        "[one] h = MatMul(x, A) [two] y = MatMul(h, B)",
        outputs="float[N,9] y",
        A=narrow[0],
        B=narrow[1],
    )
    report = onnxfde.optimize(model).report
    (refusal,) = report.refused
    assert refusal.node == "one"
    assert refusal.reason.startswith("folded into 'two' it would need 27 parameters")
    assert report.unchanged is not None
    assert "no activation between two dense layers" in report.unchanged


def test_the_lower_bounds_of_a_layer_are_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    honest = lower_bound.lower_bounds

    def counted(rows: FloatArray, outgoing: FloatArray, total: float) -> FloatArray:
        calls.append(1)
        return honest(rows, outgoing, total)

    monkeypatch.setattr("onnxfde.neurons.problem.lower_bounds", counted)
    onnxfde.optimize(demo_model(), 0.3, input_range=(0, 1))
    assert len(calls) == 1
