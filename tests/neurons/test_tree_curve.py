"""The errors of all cuts of a merge tree."""

from __future__ import annotations

import numpy as np
import pytest

from onnxfde.neurons import positive_matrices, tree_curve
from onnxfde.neurons.kernels import Metric, features
from onnxfde.neurons.layer import Layer
from onnxfde.neurons.merge_order import canonical, merge_tree
from onnxfde.neurons.original_layer import OriginalLayer
from onnxfde.neurons.tree_curve import TreeCurve


@pytest.mark.parametrize("single", [0, 2048])
@pytest.mark.parametrize("windows", [1, 4, 32])
@pytest.mark.parametrize("shape", [(4, 30, 2), (12, 60, 3)])
def test_each_is_the_error_of_a_least_squares_fit(
    shape: tuple[int, int, int], windows: int, single: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tree_curve, "SINGLE", single)
    monkeypatch.setattr(tree_curve, "WINDOWS", windows)
    monkeypatch.setattr(positive_matrices, "LARGE", 20)
    inputs, neurons, outputs = shape
    rng = np.random.default_rng(1)
    layer, _ = canonical(
        Layer(
            rng.normal(size=(neurons, inputs + 1)),
            rng.normal(size=(outputs, neurons)),
            np.zeros(outputs),
        )
    )
    original = OriginalLayer(layer, Metric.box(inputs, -1.0, 1.0))
    tree = merge_tree(original.rows, layer.outgoing)
    curve = TreeCurve(original, tree)
    target = (layer.outgoing @ features(original.rows)).T
    for count in range(1, neurons + 1):
        basis = features(tree.nodes[tree.cut(count)[0]]).T
        left = target - basis @ np.linalg.lstsq(basis, target, rcond=1e-12)[0]
        wanted = np.linalg.norm(left)
        assert curve.error(count) == pytest.approx(wanted, rel=1e-4, abs=1e-5 * original.total)
