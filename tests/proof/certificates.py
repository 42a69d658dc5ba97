"""Helpers for tests of certificates: small models, and the largest change that inputs cause."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import onnx

from onnxfde.graph.model import Graph
from onnxfde.graph.protos import ModelProto
from onnxfde.graph.reference import reference_runner
from onnxfde.numbers import Array
from onnxfde.proof.certificate import Certificate, certify
from tests.models import build

ROUNDING = 1e-11
"""What float64 evaluation may add, relative to the largest output."""


def in_float64(model: ModelProto) -> ModelProto:
    """The same weights, in double precision."""
    wide = ModelProto()
    wide.CopyFrom(model)
    for value in (*wide.graph.input, *wide.graph.output):
        value.type.tensor_type.elem_type = onnx.TensorProto.DOUBLE
    del wide.graph.value_info[:]
    for tensor in wide.graph.initializer:
        if tensor.data_type == onnx.TensorProto.FLOAT:
            values = onnx.numpy_helper.to_array(tensor).astype(np.float64)
            tensor.CopyFrom(onnx.numpy_helper.from_array(values, tensor.name))
    for node in wide.graph.node:
        for attribute in node.attribute:
            if attribute.name == "to":
                attribute.i = onnx.TensorProto.DOUBLE
    return wide


def largest_change(old: ModelProto, new: ModelProto, inputs: list[Array]) -> tuple[float, float]:
    """The largest change that float64 sees, and the largest output."""
    run = [reference_runner(in_float64(model), None) for model in (old, new)]
    name = old.graph.input[0].name
    most, size = 0.0, 0.0
    for x in inputs:
        before, after = (r({name: x})[0] for r in run)
        most = max(most, float(np.abs(after - before).max()))
        size = max(size, float(np.abs(before).max()))
    return most, size


def samples(shape: tuple[int, ...], count: int, seed: int = 0) -> list[Array]:
    """Inputs in [−1, 1]: anywhere, and corners."""
    rng = np.random.default_rng(seed)
    inside = [rng.uniform(-1, 1, size=shape) for _ in range(count)]
    return [*inside, *(np.sign(x) for x in inside)]


def bound(old: ModelProto, new: ModelProto) -> float:
    """The certified change over [−1, 1]."""
    found = certificate(old, new)
    assert found.unavailable is None
    return max(output.bound for output in found.outputs)


def certificate(old: ModelProto, new: ModelProto) -> Certificate:
    """The certificate of a model that became another one, over [−1, 1]."""
    return certify(Graph(old), Graph(new), {v.name: (-1.0, 1.0) for v in old.graph.input})


def perturbed(model: ModelProto, names: tuple[str, ...] = ("W",)) -> ModelProto:
    """The same model with other weights."""
    changed = ModelProto()
    changed.CopyFrom(model)
    for tensor in changed.graph.initializer:
        if tensor.name in names:
            values = onnx.numpy_helper.to_array(tensor)
            noise = np.random.default_rng(values.size).normal(1, 0.02, size=values.shape)
            values = (values * noise).astype(values.dtype)
            tensor.CopyFrom(onnx.numpy_helper.from_array(values, tensor.name))
    return changed


def built(body: str, constants: dict[str, Array], **interface: str | int) -> ModelProto:
    options: dict[str, Any] = {**interface, **constants}
    return build(body, **options)


def floats(*values: float) -> Array:
    return np.asarray(values, dtype=np.float32)


def integers(*values: int) -> Array:
    return np.asarray(values, dtype=np.int64)


def weights(seed: int = 0, **shapes: tuple[int, ...]) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    return {name: rng.normal(size=s).astype(np.float32) for name, s in shapes.items()}


TWO_LAYERS = (
    "[a] h = Gemm <transB = 1> (x, A, a) s = Mul(h, h) [b] k = Gemm <transB = 1> (s, B, b) "
    "q = Mul(k, k) [c] y = Gemm <transB = 1> (q, C, c)"
)


def two_layers(seed: int) -> ModelProto:
    rng = np.random.default_rng(seed)
    n, k = int(rng.integers(3, 9)), int(rng.integers(3, 9))
    found = weights(seed, A=(n, 3), a=(n,), B=(k, n), b=(k,), C=(2, k), c=(2,))
    return built(TWO_LAYERS, found)


CONSTANTS: dict[str, Array] = {
    **weights(5, M=(8, 3), c=(8,), L=(4, 1), K=(3, 2, 2, 2), k=(2,), R=(1, 3), S=(2, 4, 1)),
    **weights(7, T=(4, 8)),
    "zero": np.asarray(0, np.float32),
    "zero64": integers(0),
    "true": np.asarray(True),
    "var": floats(0.5, 2.0),
    "two": np.asarray(2, np.float32),
    "one": np.asarray(1, np.float32),
    "three": np.asarray(3, np.float32),
    "minus": np.asarray(-0.5, np.float32),
    "five": integers(5),
    "shape": integers(1, 2, 4),
    "image": integers(1, 2, 2, 2),
    "axes": integers(1),
    "parts": integers(3, 5),
    "pads": integers(0, 1, 0, 2),
    "larger": integers(3, 8),
    "scales": floats(1.0, 1.0, 2.0, 1.5),
    "sizes": integers(1, 2, 3, 1),
    "int2": np.asarray(2, np.int64),
    "int6": np.asarray(6, np.int64),
}


def with_tail(tail: str, opset: int = 17) -> ModelProto:
    """A square layer with weights W and V, followed by other nodes."""
    used = {k: v for k, v in CONSTANTS.items() if re.search(rf"\b{k}\b", tail)}
    if "Gemm" in tail:
        used["c"] = CONSTANTS["c"][:3]
    if "K, k)" in tail:
        used["k"] = floats(1, -2, 0.5)
    own = weights(6, W=(3, 6), V=(6, 8))
    return built(
        f"g = MatMul(x, W) s = Mul(g, g) h = MatMul(s, V) {tail}",
        {"W": own["W"], "V": own["V"] / 8, **used},
        inputs="float[1,3] x",
        outputs="float y",
        opset=opset,
    )
