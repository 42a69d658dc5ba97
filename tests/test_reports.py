"""What a report says of layers, refusals and time, and which runs it is about."""

from __future__ import annotations

import numpy as np
import pytest

import onnxfde
from onnxfde.demo import demo_data, demo_model
from onnxfde.graph.model import Graph
from onnxfde.graph.stamp import is_own_work, stamp
from onnxfde.neurons import lower_bound
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


def test_another_version_does_not_take_a_model_for_its_own_work() -> None:
    graph = Graph(mlp(W, B, V, C))
    stamp(graph, "0.1.0", {"eps": 0.1})
    assert is_own_work(graph, "0.1.0", {"eps": 0.1})
    assert not is_own_work(graph, "0.2.0", {"eps": 0.1})
    assert not is_own_work(graph, "0.1.0", {"eps": 0.2})


def test_a_model_made_by_another_version_is_optimized_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = onnxfde.optimize(mlp(W, B, V, C), neurons=2).model
    assert onnxfde.optimize(made, neurons=2).report.unchanged is not None
    monkeypatch.setattr("onnxfde.pipeline.__version__", "99")
    reason = onnxfde.optimize(made, neurons=2).report.unchanged
    assert reason != "onnxfde made it with these settings before"


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
    assert "no square activation" in report.unchanged


def test_layers_are_reported_when_a_limit_allows_nothing() -> None:
    report = onnxfde.optimize(
        demo_model(), 0.1, data=demo_data(), quotient="refit", max_certified_error=1e-12
    ).report
    assert report.unchanged == "nothing merges within --max-certified-error 1e-12"
    (layer,) = report.layers
    assert (layer.neurons_before, layer.neurons_after) == (120, 120)
    assert not layer.changed
    assert layer.measured_error == layer.error == 0.0


def test_a_limit_does_not_depend_on_the_eps_one_starts_from() -> None:
    left = [
        onnxfde.optimize(demo_model(), eps, data=demo_data(), max_certified_error=0.01)
        for eps in (0.1, 0.3)
    ]
    first, second = (result.report for result in left)
    assert first.layers[0].neurons_after == second.layers[0].neurons_after <= 9
    assert first.certificate == second.certificate


def test_the_lower_bounds_of_a_layer_are_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    honest = lower_bound.lower_bounds

    def counted(*arrays: np.ndarray) -> np.ndarray:
        calls.append(1)
        return honest(*arrays)

    monkeypatch.setattr("onnxfde.neurons.problem.lower_bounds", counted)
    onnxfde.optimize(demo_model(), 0.3, input_range=(0, 1))
    assert len(calls) == 1
