"""Axes of real networks: the same in all their exports."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from onnxfde.graph.axis_costs import axis_costs
from onnxfde.graph.cost import multiply_adds, one_sample
from onnxfde.graph.find_axes import find_axes
from onnxfde.graph.model import Graph
from onnxfde.graph.size import count_parameters
from tests.graph.axis_cases import assert_same_without_units, narrow, some

MODELS = Path(__file__).parents[3] / "shared" / "models"
pytestmark = pytest.mark.skipif(not MODELS.exists(), reason="the real models are not here")

POINTWISE = [8, 16, 32, 32, 64, 64, *[128] * 6, 256, 256]
EXPECTED = {
    **{f"vww_mobilenet{kind}": POINTWISE for kind in ("", "_bn", "_tf2onnx")},
    **{f"resnet8_cifar10{kind}": [16, 32, 64] for kind in ("", "_bn", "_tf2onnx")},
    **{f"resnet20_cifar10{kind}": [16] * 3 + [32] * 3 + [64] * 3 for kind in ("", "_ts")},
    "cryptonets_square": [4],
    "ad_autoencoder": [],
}


@pytest.mark.parametrize("name", EXPECTED)
def test_units_of_all_axes(name: str) -> None:
    graph = Graph(onnx.load(MODELS / f"{name}.onnx"))
    axes, refusals = find_axes(graph)
    assert [axis.units for axis in axes] == EXPECTED[name]
    assert all("a residual stream" in refusal.reason for refusal in refusals)
    if name.startswith("vww"):
        assert [sum(i.depthwise for i in a.inner) for a in axes] == [1] * 13 + [0]
    if name.startswith("resnet"):
        sums = [reader.added for axis in axes for reader in axis.readers]
        assert len(sums) == len(axes)
        assert None not in sums


@pytest.mark.parametrize("name", [name for name, units in EXPECTED.items() if units])
def test_removing_units_of_a_real_network(name: str) -> None:
    model = onnx.load(MODELS / f"{name}.onnx")
    graph = Graph(model)
    (shape,) = one_sample(graph).values()
    x = np.random.default_rng(0).uniform(0, 1, [int(n or 1) for n in shape]).astype(np.float32)
    assert_same_without_units(model, x)
    axes, result = find_axes(graph)[0], narrow(model)
    costs = axis_costs(graph, axes, one_sample(graph))
    counts = {axis.name: len(some(axis.units)) for axis in axes}
    assert costs.total_parameters(counts) == count_parameters(result)
    macs = costs.total_macs(counts)
    assert macs is not None
    assert macs == multiply_adds(result, one_sample(graph))
