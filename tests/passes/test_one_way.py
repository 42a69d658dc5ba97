"""A chain of layers is found once, copied once, and run piece by piece."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import onnxfde
from onnxfde.graph import match, tensors
from onnxfde.graph.protos import ModelProto
from onnxfde.running import runtime
from tests.models import build

LAYERS = 6


def chain(layers: int = LAYERS, width: int = 8) -> ModelProto:
    """Gemm → square → … → Gemm with each neuron twice."""
    rng, weights, nodes = np.random.default_rng(0), dict[str, Any](), []
    for i in range(layers + 1):
        shape = (width if i < layers else 2, width if i else 3)
        rows = rng.normal(size=shape) / np.sqrt(3 * shape[1])
        if i < layers:
            rows[width // 2 :] = rows[: width // 2]
        weights[f"W{i}"] = rows.astype(np.float32)
        read, made = f"s{i - 1}" if i else "x", f"h{i}" if i < layers else "y"
        nodes.append(f"[l{i}] {made} = Gemm <transB = 1> ({read}, W{i})")
        if i < layers:
            nodes.append(f"s{i} = Mul(h{i}, h{i})")
    return build(" ".join(nodes), **weights)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often layers are looked for, models copied, and nodes given to a runtime."""
    found: Counter[str] = Counter()

    def counting(name: str, honest: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*given: Any, **more: Any) -> Any:
            found[name] += 1
            if name == "load":
                found["nodes"] += len(given[0].graph.node)
            return honest(*given, **more)

        return counted

    find, copy = counting("find", match.find_layers), counting("copy", tensors.copy_of)
    monkeypatch.setattr("onnxfde.passes.merge_neurons.find_layers", find)
    monkeypatch.setattr("onnxfde.graph.model.copy_of", copy)
    monkeypatch.setattr(runtime, "load", counting("load", runtime.load))
    return found


@pytest.mark.parametrize("quotient", ["refit", "minimal"])
def test_each_step_is_taken_once(calls: Counter[str], quotient: Any) -> None:
    x = np.random.default_rng(1).uniform(-1, 1, (200, 3)).astype(np.float32)
    result = onnxfde.optimize(chain(), 0.0, quotient=quotient, data={"x": x}, verify=False)
    assert [layer.changed for layer in result.report.layers] == [True] * LAYERS
    assert calls["find"] == 1
    assert calls["copy"] == 2  # for the pass, and with its provenance
    assert calls["load"] == LAYERS  # all layers together, then the part before each later one
    whole = 2 * LAYERS + 1
    assert calls["nodes"] <= 2 * whole


def test_layers_behind_no_change_are_not_run_again(calls: Counter[str]) -> None:
    x = np.random.default_rng(1).uniform(-1, 1, (200, 3)).astype(np.float32)
    onnxfde.optimize(chain(), 0.0, layers=("l4",), data={"x": x}, verify=False)
    assert calls["load"] == 1
