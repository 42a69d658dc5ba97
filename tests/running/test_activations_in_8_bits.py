"""Networks with ReLU and GELU in 8 bits and in onnxruntime's own format."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

import onnxfde
from onnxfde.graph.protos import ModelProto
from onnxfde.options import Int8
from onnxfde.running.int8 import small_weights
from tests.activation_spellings import BIAS, SLOPES, SPELLINGS, WEIGHTS, spelled_layer_model
from tests.models import Array, outputs_of
from tests.running.int8_models import MODES

X = np.random.default_rng(0).uniform(-2, 2, (300, 3)).astype(np.float32)
NAMES = ["Relu", "Gelu: (x·(1 + erf))·0.5", "Gelu", "BiasGelu"]


def copied(values: Array) -> Array:
    """The first three neurons twice."""
    return np.concatenate([values[:3], values[:3]])


def twin_model(name: str) -> ModelProto:
    found: dict[str, Any] = {"W": WEIGHTS["W"], "b": WEIGHTS["b"], "slopes": SLOPES, "added": BIAS}
    found = {n: copied(a) for n, a in found.items()}
    return spelled_layer_model(SPELLINGS[name], **found)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("mode", MODES)
def test_a_merged_network_fits_in_8_bits(name: str, mode: Int8) -> None:
    model = twin_model(name)
    result = onnxfde.optimize(model, 0, int8=mode, data={"x": X})
    assert [layer.neurons_after for layer in result.report.layers] == [3]
    assert small_weights(result.model) == 2
    (before,), (after,) = outputs_of(model, X), outputs_of(result.model, X)
    assert np.linalg.norm(after - before) < 0.03 * np.linalg.norm(before)


@pytest.mark.parametrize("name", NAMES)
def test_a_merged_network_in_the_format_of_onnxruntime(name: str, tmp_path: Path) -> None:
    model, path = twin_model(name), tmp_path / "small.ort"
    onnxfde.optimize(model, 0).save(path)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    (after,) = session.run(None, {"x": X})
    np.testing.assert_allclose(after, outputs_of(model, X)[0], rtol=1e-5, atol=1e-5)
