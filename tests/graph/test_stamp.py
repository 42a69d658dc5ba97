"""What onnxfde recognises as its own work."""

from __future__ import annotations

import pytest

import onnxfde
from onnxfde.graph.model import Graph
from onnxfde.graph.stamp import is_own_work, stamp
from tests.models import mlp, twins

W, B, V, C = twins()


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
