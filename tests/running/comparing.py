"""A small layer, inputs for it, and how tests compare models on data."""

from __future__ import annotations

from typing import Any

import numpy as np

from onnxfde.graph.input_specs import input_specs
from onnxfde.graph.model import Graph
from onnxfde.graph.protos import ModelProto
from onnxfde.running.samples import make_samples
from onnxfde.running.side_by_side import SideBySide
from onnxfde.running.verification import Verification
from tests.models import twins

W, B, V, C = twins()
X = np.random.default_rng(1).uniform(-1, 1, (50, 3)).astype(np.float32)


def compared(a: ModelProto, b: ModelProto, **data: Any) -> Verification:
    samples = make_samples(data, input_specs(Graph(a)), "test data")
    return SideBySide(Graph(a), samples).compare(Graph(b)).verification
