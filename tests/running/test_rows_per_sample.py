"""Rows that come from one sample stay on one side of the split."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from onnxfde.graph.match import find_layers
from onnxfde.graph.model import Graph
from onnxfde.graph.protos import ModelProto
from onnxfde.neurons.held_out import Evidence
from onnxfde.progress import Progress
from onnxfde.running.input_source import DATA_ROWS
from onnxfde.running.layer_inputs import layer_inputs, observed_outputs
from onnxfde.running.open_files import open_data
from onnxfde.running.recording import Recording
from tests.models import build, twins

W, B, V, C = twins()
POSITIONS = 3


def applied_at_positions() -> ModelProto:
    """A layer that is applied at several positions of each sample."""
    return build(
        "h = MatMul(x, W) b = Add(h, B) s = Mul(b, b) y = MatMul(s, V)",
        inputs=f"float[N,{POSITIONS},3] x",
        outputs=f"float[N,{POSITIONS},2] y",
        W=W.T,
        B=B,
        V=V.T,
    )


def evidence_on(x: Any) -> Evidence:
    graph = Graph(applied_at_positions())
    (match,) = find_layers(graph)[0]
    source, _ = open_data(graph, {"x": x}, (-1.0, 1.0))
    recording = Recording.of(graph, source, Progress())
    found = observed_outputs(layer_inputs(recording, match), match, recording, match, recording)
    assert found is not None
    return found


@pytest.mark.parametrize("samples", [200, DATA_ROWS, DATA_ROWS + 1, 3 * DATA_ROWS])
def test_rows_of_one_sample_stay_together_however_many_samples_there_are(samples: int) -> None:
    """Each sample has a number; none is both fitted and held out."""
    x = np.zeros((samples, POSITIONS, 3), dtype=np.float32)
    x[:, :, 0] = np.arange(samples)[:, None] / samples
    x[:, :, 1:] = np.random.default_rng(0).uniform(-1, 1, (samples, POSITIONS, 2))
    found = evidence_on(x)
    assert found.rows_per_sample == POSITIONS
    fitted, held = ({*part.inputs[:, 0].tolist()} for part in (found.fitted, found.held_out))
    assert not fitted & held
    assert len(fitted) + len(held) == min(samples, DATA_ROWS)
