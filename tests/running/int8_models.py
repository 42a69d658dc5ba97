"""Models and data for the tests of 8 bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx

import onnxfde
from onnxfde.options import Int8
from tests.models import Array, build, twins

MODES: tuple[Int8, ...] = ("dynamic", "static")
ROWS = {"x": np.random.default_rng(0).uniform(-1, 1, (600, 8)).astype(np.float32)}
BIG = twins(distinct=20, copies=2, inputs=8, outputs=30)


def weights(*shape: int, dtype: Any = np.float32) -> Array:
    return np.random.default_rng(sum(shape)).normal(size=shape).astype(dtype)


def relative(found: onnxfde.Verification | None) -> float:
    assert found is not None
    assert found.relative_l2 is not None
    return found.relative_l2


def dense(text: str, inputs: str = "float[N,8] x", **parts: Any) -> onnx.ModelProto:
    outputs = parts.pop("outputs", "float[N,8] y")
    return build(text, inputs=inputs, outputs=outputs, **{"W": weights(8, 8), **parts})


BIAS = np.arange(8, dtype=np.float32)
