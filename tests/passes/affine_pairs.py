"""Pairs of affine maps, and what must hold after folding."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx

from onnxfde.graph.input_specs import input_specs
from onnxfde.graph.model import Graph
from onnxfde.graph.protos import ModelProto
from onnxfde.numbers import ROUNDOFF
from onnxfde.passes import FoldAffine, PassResult
from onnxfde.running.samples import Samples
from onnxfde.running.side_by_side import SideBySide
from onnxfde.running.verification import require_equal
from tests.models import Array, build

RNG = np.random.default_rng(0)
W, B, V, C = (RNG.normal(size=s).astype(np.float32) for s in ((8, 3), (8,), (2, 8), (2,)))
X = RNG.uniform(-1, 1, (50, 3)).astype(np.float32)
GEMMS = "[one] h = Gemm <transB = 1> (x, W, b) [two] y = Gemm <transB = 1> (h, V, c)"


def pair(body: str = GEMMS, **options: Any) -> ModelProto:
    return build(body, **{"W": W, "b": B, "V": V, "c": C, **options})


def folded(model: ModelProto) -> PassResult:
    """The result of the pass, which must leave the model alone and be valid and idempotent."""
    before = model.SerializeToString()
    result = FoldAffine().apply(Graph(model))
    assert model.SerializeToString() == before
    onnx.checker.check_model(result.model, full_check=True)
    again = FoldAffine().apply(Graph(result.model))
    assert not again.changed
    assert again.model is result.model
    return result


def kinds(result: PassResult) -> list[str]:
    return [node.op_type for node in result.model.graph.node]


def stored(result: PassResult) -> dict[str, list[int]]:
    return {t.name: list(t.dims) for t in result.model.graph.initializer}


def assert_equal_up_to_rounding(model: ModelProto, result: PassResult, x: Array) -> None:
    original = Graph(model)
    specs = input_specs(original)
    samples = Samples(specs, {specs[0].name: x}, "test")
    beside = SideBySide(original, samples)
    found = beside.compare(result.graph)
    assert found.verification.unverified is None
    require_equal(found.before, found.after, beside.magnitudes(), ROUNDOFF[x.dtype.name])


def assert_left_alone(model: ModelProto, *reasons: str) -> None:
    result = folded(model)
    assert not result.changed
    assert result.model is model
    assert [r.reason for r in result.unfolded] == list(reasons)


NAMES = {"float32": "float", "float16": "float16", "float64": "double"}
