"""A certificate follows one sample: what keeps samples apart, and what mixes them."""

from __future__ import annotations

import re

import pytest

from onnxfde.graph.protos import ModelProto
from onnxfde.numbers import Array
from tests.proof.certificates import (
    ROUNDING,
    bound,
    built,
    certificate,
    integers,
    largest_change,
    perturbed,
    samples,
    weights,
)

MIXING = {
    "sum over everything": "y = ReduceSum(h)",
    "sum over samples": "y = ReduceSum(h, zero64)",
    "mean over samples": "y = ReduceMean <axes = [-2]> (h)",
    "softmax over samples": "y = Softmax <axis = 0> (h)",
    "samples as features": "t = Transpose(h) y = Softmax(t)",
    "samples side by side": "y = Reshape(h, flat)",
    "flattened from the start": "y = Flatten <axis = 0> (h)",
    "joined along the leading axis": "t = Relu(h) y = Concat <axis = 0> (h, t)",
    "the first sample": "y = Gather(h, zero64)",
    "the first samples": "y = Slice(h, zero64, one64, zero64)",
    "the last sample": "y = Slice(h, last64, five, zero64)",
    "an axis before": "t = Unsqueeze(h, zero64) y = ReduceMean <axes = [1]> (t)",
    "an axis before by a constant": "t = Add(h, S) y = ReduceMean <axes = [1]> (t)",
    "all axes of one": "y = Squeeze(h)",
    "repeated": "y = Tile(h, twice)",
    "padded": "y = Pad(h, pads)",
    "transposed": "y = Gemm <transA = 1> (h, R)",
    "transposed numbers": "t = ReduceSum(h, one64) y = Gemm <transA = 1> (t, R)",
    "samples as weights": "y = Gemm(Q, h)",
    "how many as a factor": (
        "s1 = Shape(h) i = Gather(s1, zero64) f = Cast <to = 1> (i) y = Mul(h, f)"
    ),
    "how many in a length": (
        "s1 = Shape(h) i = Gather(s1, zero64) j = Add(i, one64) k = Concat <axis = 0> (j, last64) "
        "y = Reshape(h, k)"
    ),
}
APART = {
    "Flatten": "t = Reshape(h, pairs) y = Flatten(t)",
    "Reshape by Shape": (
        "s1 = Shape(h) i = Gather(s1, zero64) k = Concat <axis = 0> (i, twos) t = Reshape(h, k) "
        "y = Softmax(t)"
    ),
    "Reshape by Shape and Slice": (
        "s1 = Shape(h) i = Slice(s1, zero64, one64) k = Concat <axis = 0> (i, last64) "
        "y = Reshape(h, k)"
    ),
    "all rows as one axis": (
        "t = Reshape(h, pairs) u = Flatten <axis = 2> (t) v = Relu(u) y = Reshape(v, rows)"
    ),
    "Expand": "s1 = Shape(h) t = Expand(M, s1) y = Mul(h, t)",
    "ConstantOfShape": (
        "s1 = Shape(h) t = ConstantOfShape(s1) u = Cast <to = 1> (t) y = Add(h, u)"
    ),
    "ReduceSum": "y = ReduceSum <keepdims = 0> (h, one64)",
    "Concat": "t = Relu(h) y = Concat <axis = -1> (h, t)",
    "Slice": "y = Slice(h, one64, five, one64)",
    "Pad": "y = Pad(h, sides)",
    "Sub": "t = Relu(h) y = Sub(t, h)",
    "Sum": "t = Relu(h) y = Sum(c, h, t)",
    "Gemm": "y = Gemm(h, B, h)",
    "MatMul from the left": "t = Unsqueeze(h, one64) y = MatMul(Q, t)",
    "Split": "t, u = Split <axis = 1> (h) y = Mul(t, u)",
    "Transpose": "t = Reshape(h, pairs) y = Transpose <perm = [0, 2, 1]> (t)",
    "Unsqueeze": "t = Unsqueeze(h, one64) y = Squeeze(t, one64)",
}
BATCHED: dict[str, Array] = {
    **weights(9, R=(1, 3), S=(2, 1, 4), M=(1, 4), Q=(1, 1), B=(4, 4), c=(4,)),
    "zero64": integers(0), "one64": integers(1), "last64": integers(-1), "five": integers(5),
    "flat": integers(1, -1), "twice": integers(2, 1), "pads": integers(1, 0, 0, 0),
    "sides": integers(0, 1, 0, 2),
    "pairs": integers(-1, 2, 2), "twos": integers(2, 2), "rows": integers(-1, 4),
}  # fmt: skip


def batched(tail: str) -> ModelProto:
    """A square layer that reads any number of samples, followed by other nodes."""
    used = {k: v for k, v in BATCHED.items() if re.search(rf"\b{k}\b", tail)}
    body = f"g = MatMul(x, W) s = Mul(g, g) h = MatMul(s, V) {tail}"
    return built(body, {**weights(8, W=(3, 6), V=(6, 4)), **used}, outputs="float[] y")


@pytest.mark.parametrize("tail", MIXING.values(), ids=MIXING.keys())
def test_what_mixes_samples_is_not_certified(tail: str) -> None:
    found = certificate(batched(tail), perturbed(batched(tail))).unavailable
    assert found is not None
    assert "the samples of a batch" in found or "the number of samples" in found


@pytest.mark.parametrize("tail", APART.values(), ids=APART.keys())
def test_samples_that_stay_apart_are_certified_in_batches_of_any_size(tail: str) -> None:
    model = batched(tail)
    other = perturbed(model, ("W", "V"))
    assert bound(model, model) == 0.0
    certified = bound(model, other)
    for count in (1, 2, 7):
        most, size = largest_change(model, other, samples((count, 3), 15))
        assert 0 < most <= certified + ROUNDING * size
    assert certified <= 20 * most
