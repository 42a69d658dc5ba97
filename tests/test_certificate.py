"""The certificate of a whole model is never exceeded, and says so where there is none."""

from __future__ import annotations

import re
import tracemalloc
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import onnxfde
from onnxfde import operators
from onnxfde.certificate import Certificate, certify, cheap, cost
from onnxfde.graph import Graph, ModelProto, reference_runner
from onnxfde.intervals import Interval, Pair
from onnxfde.pairing import Box
from onnxfde.passes.fold_affine import FoldAffine
from onnxfde.polynomial import FloatArray, Layer
from onnxfde.runtime import load
from tests.models import build, mlp, outputs_of, twins

Array = npt.NDArray[Any]
CONV_NET = Path("/work/shared/models/cryptonets_square.onnx")
ROUNDING = 1e-11
"""What float64 evaluation may add, relative to the largest output."""


def in_float64(model: ModelProto) -> ModelProto:
    """The same weights, computed with in double precision."""
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


def built(body: str, constants: dict[str, Array], **interface: str) -> ModelProto:
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


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([0.4, 0.7, 0.9]))
def test_no_input_exceeds_the_certificate_of_a_merged_layer(seed: int, keep: float) -> None:
    model = mlp(*twins(4, 2, 3, 2, seed))
    merged = onnxfde.optimize(model, keep=keep, quotient="refit", verify=False).model
    x = np.concatenate(samples((100, 3), 1, seed))
    most, size = largest_change(model, merged, [x])
    assert most <= bound(model, merged) + ROUNDING * size


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([0.5, 0.8]), st.sampled_from(["*", "a", "b"]))
def test_no_input_exceeds_the_certificate_of_two_merged_layers(
    seed: int, keep: float, which: str
) -> None:
    model = two_layers(seed)
    merged = onnxfde.optimize(
        model, keep=keep, layers=(which,), quotient="refit", verify=False
    ).model
    x = np.concatenate(samples((100, 3), 1, seed))
    most, size = largest_change(model, merged, [x])
    assert most <= bound(model, merged) + ROUNDING * size


def test_a_model_against_itself_does_not_change_at_all() -> None:
    model = two_layers(0)
    assert bound(model, model) == 0.0


def test_an_exact_merge_of_two_layers_is_certified_to_rounding() -> None:
    """Neurons twice, scaled by powers of two, in both layers."""
    found = weights(1, A=(6, 3), a=(6,), B=(5, 6), b=(5,), C=(2, 5), c=(2,))
    scale = floats(1, 2, 0.5, 4, 1, 2)
    double = dict(found)
    double["A"] = np.vstack([found["A"], found["A"] * scale[:, None]])
    double["a"] = np.concatenate([found["a"], found["a"] * scale])
    columns = np.hstack([found["B"] / 2, found["B"] / (2 * scale**2)])
    double["B"] = np.vstack([columns, 2 * columns])
    double["b"] = np.concatenate([found["b"], 2 * found["b"]])
    double["C"] = np.hstack([found["C"] / 2, found["C"] / 8])
    small, large = built(TWO_LAYERS, found), built(TWO_LAYERS, double)
    run = reference_runner(in_float64(small), None)
    spread = np.ptp(run({"x": np.concatenate(samples((500, 3), 1))})[0], axis=0).min()
    assert bound(large, small) <= 1e-11 * spread


def test_a_merge_behind_which_a_bias_appears_is_followed() -> None:
    """The rewritten MatMul has an Add of its own, and what reads it another name to read."""
    found = weights(2, A=(3, 8), B=(8, 4), C=(4, 2))
    body = "h = MatMul(x, A) s = Mul(h, h) k = MatMul(s, B) r = Relu(k) y = MatMul(r, C)"
    model = built(body, found)
    merged = onnxfde.optimize(model, neurons=4, quotient="refit", verify=False).model
    assert any(node.op_type == "Add" for node in merged.graph.node)
    x = np.concatenate(samples((300, 3), 1))
    most, _ = largest_change(model, merged, [x])
    assert most <= bound(model, merged) <= 20 * most


def test_a_narrow_value_between_two_layers_is_where_they_are_compared() -> None:
    body = (
        "h = MatMul(x, A) s = Mul(h, h) z = MatMul(s, B) "
        "k = MatMul(z, C) q = Mul(k, k) y = MatMul(q, D)"
    )
    model = built(body, weights(3, A=(3, 10), B=(10, 2), C=(2, 9), D=(9, 2)))
    merged = onnxfde.optimize(model, neurons=7, quotient="refit", verify=False).model
    x = np.concatenate(samples((500, 3), 1))
    most, size = largest_change(model, merged, [x])
    assert most <= bound(model, merged) + ROUNDING * size
    assert bound(model, merged) <= 10 * most + 1e-5 * size


FOLDS = {
    "alone": "[f] h = Gemm(x, A, a) [g] y = Gemm(h, B, b)",
    "dropout": "[f] h = Gemm(x, A, a) d = Dropout(h) [g] y = Gemm(d, B, b)",
    "before a layer": "h = Gemm(x, A, a) k = Gemm(h, B, b) s = Mul(k, k) y = MatMul(s, E)",
    "behind a layer": "k = MatMul(x, D) s = Mul(k, k) h = Gemm(s, A, a) y = Gemm(h, B, b)",
    "constants": "h = MatMul(x, A) t = Mul(h, a) u = Add(t, a) y = MatMul(u, B)",
}


@pytest.mark.parametrize("body", FOLDS.values(), ids=FOLDS.keys())
def test_folded_affine_maps_are_certified_to_the_rounding_of_their_weights(body: str) -> None:
    found = weights(4, A=(3, 20), a=(20,), B=(20, 2), b=(2,), D=(3, 3), E=(2, 2))
    model = built(body, {k: v for k, v in found.items() if f" {k}" in body})
    folded = FoldAffine().apply(Graph(model)).model
    assert len(folded.graph.node) < len(model.graph.node)
    most, size = largest_change(model, folded, [np.concatenate(samples((300, 3), 1))])
    assert most <= bound(model, folded) <= 1e-5 * size


OPERATORS = {
    "Gemm": "y = Gemm <alpha = 0.5, beta = 2.0> (h, M, c)",
    "Gemm with a value as C": "t = MatMul(h, M) y = Gemm <beta = 0.5> (h, M, t)",
    "Gemm transposed": "y = Gemm <transA = 1> (h, R)",
    "MatMul": "y = MatMul(h, M)",
    "MatMul of a stack": "y = MatMul(S, h)",
    "MatMul behind factors of another shape": "t = Add(h, T) y = MatMul(t, M)",
    "Flatten between": "t = Unsqueeze(h, zero64) u = MatMul(t, M) y = Flatten <axis = 2> (u)",
    "MatMul from the left": "y = MatMul(L, h)",
    "Mul of values": "t = Sigmoid(h) y = Mul(h, t)",
    "square": "y = Mul(h, h)",
    "Pow": "y = Pow(h, two)",
    "Add": "t = Relu(h) y = Add(h, t)",
    "Add constant": "y = Add(h, c)",
    "Sub": "t = Relu(h) y = Sub(t, h)",
    "Mul constant": "y = Mul(c, h)",
    "Div": "y = Div(h, c)",
    "Neg": "y = Neg(h)",
    "Sum": "t = Abs(h) y = Sum(h, t, c)",
    "Concat": "t = Relu(h) y = Concat <axis = 1> (h, t)",
    "Identity": "t = Identity(h) y = Relu(t)",
    "Dropout": "t = Dropout(h) y = Relu(t)",
    "Cast": "t = Cast <to = 11> (h) u = Relu(t) y = Cast <to = 1> (u)",
    "Flatten": "t = Reshape(h, shape) y = Flatten(t)",
    "Reshape by Shape": "t = Shape(h) u = Reshape(h, shape) y = Reshape(u, t)",
    "Squeeze": "t = Unsqueeze(h, axes) y = Squeeze(t, axes)",
    "Transpose": "y = Transpose(h)",
    "Slice": "y = Slice(h, axes, five, axes)",
    "Split": "t, u = Split <axis = 1> (h, parts) v = Relu(u) y = Concat <axis = 1> (v, t)",
    "Gather": "y = Gather <axis = 1> (h, axes)",
    "Pad": "y = Pad(h, pads)",
    "Conv": "t = Reshape(h, image) y = Conv <pads = [1, 1, 1, 1]> (t, K, k)",
    "Conv without bias": "t = Reshape(h, image) y = Conv <strides = [2, 1]> (t, K)",
    "AveragePool": "t = Reshape(h, image) y = AveragePool <kernel_shape = [2, 2]> (t)",
    "GlobalAveragePool": "t = Reshape(h, image) y = GlobalAveragePool(t)",
    "MaxPool": "t = Reshape(h, image) y = MaxPool <kernel_shape = [2, 1], pads = [1, 0, 0, 0]> (t)",
    "GlobalMaxPool": "t = Reshape(h, image) y = GlobalMaxPool(t)",
    "BatchNormalization": "t = Reshape(h, image) y = BatchNormalization(t, k, k, k, var)",
    "ReduceMean": "y = ReduceMean <axes = [1], keepdims = 0> (h)",
    "ReduceSum": "y = ReduceSum(h, axes)",
    "Relu": "y = Relu(h)",
    "LeakyRelu": "y = LeakyRelu <alpha = 0.3> (h)",
    "Sigmoid": "y = Sigmoid(h)",
    "Tanh": "y = Tanh(h)",
    "Elu": "y = Elu <alpha = 1.5> (h)",
    "HardSigmoid": "y = HardSigmoid(h)",
    "Clip": "y = Clip(h, minus, one)",
    "Abs": "y = Abs(h)",
    "Softplus": "y = Softplus(h)",
    "Erf": "y = Erf(h)",
    "Softmax": "y = Softmax(h)",
}
CONSTANTS: dict[str, Array] = {
    **weights(5, M=(8, 3), c=(8,), L=(4, 1), K=(3, 2, 2, 2), k=(2,), R=(1, 3), S=(2, 4, 1)),
    **weights(7, T=(4, 8)),
    "zero": np.asarray(0, np.float32),
    "zero64": integers(0),
    "true": np.asarray(True),
    "var": floats(0.5, 2.0),
    "two": np.asarray(2, np.float32),
    "one": np.asarray(1, np.float32),
    "minus": np.asarray(-0.5, np.float32),
    "five": integers(5),
    "shape": integers(1, 2, 4),
    "image": integers(1, 2, 2, 2),
    "axes": integers(1),
    "parts": integers(3, 5),
    "pads": integers(0, 1, 0, 2),
}


def with_tail(tail: str) -> ModelProto:
    """A layer of which W may change, and an operator behind it."""
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
    )


@pytest.mark.parametrize("tail", OPERATORS.values(), ids=OPERATORS.keys())
def test_every_supported_operator_is_certified_and_not_exceeded(tail: str) -> None:
    model = with_tail(tail)
    other = perturbed(model, ("W", "V"))
    assert bound(model, model) == 0.0
    most, size = largest_change(model, other, samples((1, 3), 60))
    assert 0 < most <= bound(model, other) + ROUNDING * size
    assert bound(model, other) <= 60 * most


@pytest.mark.parametrize(
    ("tail", "reason"),
    [
        ("[n] y = Exp(h)", "node n (Exp)"),
        ("t = Transpose(h) [n] y = MatMul(h, t)", "node n (MatMul): neither of its inputs"),
        ("[n] y = Pow(h, one)", "node n (Pow): its exponent is not 2"),
        ("t = Relu(h) [n] y = Div(t, h)", "node n (Div): its input 2 is not a constant"),
        ("[n] y = Div(h, zero)", "node n (Div): it divides by 0"),
        ("[n] y = Pad(h, pads, one)", "node n (Pad): it pads with another number than 0"),
        ("[n] y = Dropout(h, minus, true)", "node n (Dropout): it is in training mode"),
        ("[n] y = Relu(axes)", "node n (Relu): it reads integers"),
        ("[n] y = Relu(nowhere)", "'nowhere' is neither a constant nor computed"),
        (
            "t = Reshape(h, image) "
            "[n] y, m, v = BatchNormalization <training_mode = 1> (t, k, k, k, var)",
            "node n (BatchNormalization): it is in training mode",
        ),
        (
            "t = Reshape(h, image) [n] u, i = MaxPool <kernel_shape = [2, 2]> (t) "
            "y = Cast <to = 1> (i)",
            "node n (MaxPool): no rule for its output 2",
        ),
        ("t = Cast <to = 7> (h) y = Cast <to = 1> (t)", "(Cast): it makes integers"),
    ],
)
def test_what_cannot_be_certified_is_named(tail: str, reason: str) -> None:
    found = certificate(with_tail(tail), with_tail(tail))
    assert found.unavailable is not None
    assert found.unavailable.startswith("not certified: ")
    assert reason in found.unavailable
    assert found.outputs == ()
    assert found.rounding is None


def test_the_conv_net_of_the_project_is_certified() -> None:
    if not CONV_NET.exists():
        pytest.skip(f"{CONV_NET} is not there")
    model = onnx.load(CONV_NET)
    assert bound(model, model) == 0.0
    assert cheap(Graph(model))
    merged = onnxfde.optimize(CONV_NET, keep=0.5, quotient="refit", verify=False).model
    most, _ = largest_change(model, merged, samples((1, 1, 32, 32), 30))
    assert most <= bound(model, merged) < np.inf


def test_integer_inputs_and_unknown_shapes_are_named() -> None:
    model = build("y = Cast <to = 1> (x)", inputs="int64[N,3] x")
    assert certificate(model, model).unavailable == "not certified: input 'x' is int64"
    model = build("y = Relu(x)", inputs="float[N,M] x")
    found = certificate(model, model).unavailable
    assert found == "not certified: input 'x' has axes of unknown length"
    model = build("y = Relu(x)")
    found = certify(Graph(model), Graph(model), {}).unavailable
    assert found == "not certified: input 'x' has no range"


def test_old_opsets_and_weights_that_a_caller_may_replace_are_not_certified() -> None:
    model = build("y = Relu(x)", opset=6)
    assert certificate(model, model).unavailable == (
        "not certified: opset 6 broadcasts by other rules"
    )
    model = built("y = MatMul(x, W)", weights(0, W=(3, 2)), inputs="float[N,3] x, float[3,2] W")
    found = certify(Graph(model), Graph(model), {"x": (-1.0, 1.0)})
    assert found.unavailable == "not certified: 'W' is neither a constant nor computed"


def test_a_convolution_too_large_for_memory_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operators, "MOST_UNFOLDED", 1)
    found = certificate(with_tail(OPERATORS["Conv"]), with_tail(OPERATORS["Conv"]))
    assert found.unavailable == "not certified: node y (Conv): it is too large"


def test_models_that_do_not_fit_together_are_not_certified() -> None:
    one, other = (built("y = MatMul(x, W)", weights(0, W=(3, n))) for n in (2, 4))
    found = certificate(one, other).unavailable
    assert found == "not certified: node y (MatMul): 'y' has another shape in the result"
    one, other = (build("y = Relu(x)", opset=opset) for opset in (16, 17))
    found = certificate(one, other).unavailable
    assert found == "not certified: the two models have different opsets"
    one, other = (
        built("s = Identity(t) y = Reshape(x, s)", {"t": integers(*shape)})
        for shape in ((1, 3), (3, 1))
    )
    found = certificate(one, other).unavailable
    assert found == "not certified: node y (Reshape): 'y' has another shape in the result"


def test_a_bound_that_overflows_is_none() -> None:
    constants = {"W": np.full((3, 2), 1e38, np.float32), "V": np.full((2, 2), 1e300)}
    model = built("t = MatMul(x, W) [n] y = MatMul(t, V)", constants)
    found = certificate(model, model).unavailable
    assert found is not None
    assert "overflow" in found
    model = two_layers(0)
    limits: Box = {"x": (-1e100, 1e100)}
    found = certify(Graph(model), Graph(perturbed(model, ("A", "B"))), limits).unavailable
    assert found is not None
    assert "overflow" in found


def test_a_changed_operator_is_compared_by_the_ranges_of_both_sides() -> None:
    old = built("h = MatMul(x, W) y = Tanh(h)", weights(0, W=(3, 2)))
    new = built("h = MatMul(x, W) y = Sigmoid(h)", weights(0, W=(3, 2)))
    most, _ = largest_change(old, new, samples((50, 3), 2))
    assert most <= bound(old, new) <= 2.0


def test_a_maximum_may_fall_as_far_as_any_of_its_elements() -> None:
    body = "h = Mul(x, f) y = MaxPool <kernel_shape = [1, 2]> (h)"
    old, new = (
        built(body, {"f": floats(first, 1)}, inputs="float[1,1,1,2] x") for first in (1, 0.5)
    )
    found = certify(Graph(old), Graph(new), {"x": (1.0, 2.0)})
    assert 1 <= found.outputs[0].bound <= 1 + ROUNDING


def test_changed_weights_of_a_convolution_are_followed() -> None:
    body = "h = Conv(x, W, k) r = Relu(h) y = Flatten(r)"
    model = built(body, weights(0, W=(2, 1, 2, 2), k=(2,)), inputs="float[1,1,3,3] x")
    other = perturbed(model, ("W", "k"))
    most, _ = largest_change(model, other, samples((1, 1, 3, 3), 50))
    assert most <= bound(model, other) <= 4 * most


@pytest.mark.parametrize("shape", ["float[N,5,3] x", "float[2,3] x", "float[3] x"])
def test_leading_axes_of_any_number_are_followed(shape: str) -> None:
    body = "h = MatMul(x, W) t = Add(h, b) s = Mul(t, t) y = MatMul(s, V)"
    found = weights(1, W=(3, 6), b=(6,), V=(6, 2))
    model = built(body, found, inputs=shape, outputs="float y")
    other = perturbed(model)
    sizes = {"float[N,5,3] x": (1, 5, 3), "float[2,3] x": (2, 3), "float[3] x": (3,)}
    most, _ = largest_change(model, other, samples(sizes[shape], 50))
    assert most <= bound(model, other) <= 4 * most


@pytest.mark.parametrize(("shape", "size"), [("float[3,4] x", (3, 4)), ("float[3] x", (3,))])
def test_features_in_columns_are_followed(shape: str, size: tuple[int, ...]) -> None:
    body = "h = MatMul(W, x) s = Mul(h, h) y = MatMul(V, s)"
    model = built(body, weights(1, W=(6, 3), V=(2, 6)), inputs=shape, outputs="float y")
    other = perturbed(model)
    most, _ = largest_change(model, other, samples(size, 50))
    assert most <= bound(model, other) <= 4 * most


def test_constants_around_the_maps_belong_to_them() -> None:
    body = (
        "p = Mul(x, f) h = MatMul(p, W) t = Sub(a, h) u = Div(t, g) s = Mul(u, u) "
        "w = Add(s, g) v = MatMul(w, V) y = Mul(v, half)"
    )
    found = weights(2, f=(3,), W=(3, 6), a=(6,), g=(6,), V=(6, 2), half=())
    model = built(body, found)
    other = perturbed(model, ("W", "f"))
    most, _ = largest_change(model, other, [np.concatenate(samples((200, 3), 2))])
    assert most <= bound(model, other) <= 3 * most


def test_the_box_may_differ_by_input_and_element() -> None:
    body = "h = MatMul(x, W) s = Mul(h, h) t = Mul(s, z) y = MatMul(t, V)"
    inputs = "float[N,3] x, float[N,6] z"
    model = built(body, weights(3, W=(3, 6), V=(6, 2)), inputs=inputs)
    graphs = Graph(model), Graph(perturbed(model))
    narrow: Box = {"x": (np.zeros(3), np.asarray([1.0, 0.5, 0.0])), "z": (-1.0, 1.0)}
    wide: Box = {"x": (-1.0, 1.0), "z": (-1.0, 1.0)}
    small, large = (certify(*graphs, box) for box in (narrow, wide))
    assert small.outputs[0].bound < large.outputs[0].bound
    assert (small.box, large.box) == ("range of the data", "range [-1, 1]")


def test_execution_stays_within_the_certificate_and_the_stated_rounding() -> None:
    model = mlp(*twins(6, 3, 4, 3))
    merged = onnxfde.optimize(model, 0.0, quotient="refit", verify=False).model
    found = certificate(model, merged)
    x = np.concatenate(samples((500, 4), 1)).astype(np.float32)
    before, after = outputs_of(model, x)[0], outputs_of(merged, x)[0]
    assert found.rounding is not None
    assert np.abs(after - before).max() <= found.outputs[0].bound + found.rounding


def test_a_large_layer_is_not_cheap() -> None:
    small, large = (Graph(mlp(*twins(n, 2, d, m))) for n, d, m in ((10, 7, 7), (64, 200, 400)))
    assert cost(small) < cost(large)
    assert cheap(small)
    assert not cheap(large)


def test_an_exponent_with_more_axes_than_its_base_adds_them() -> None:
    """Whether the square stands alone or inside a layer."""
    three = np.full((1, 1, 1), 2, np.float32)
    for body in (
        "g = MatMul(x, W) s = Mul(g, g) h = MatMul(s, V) t = Pow(h, e) "
        "y = ReduceMean <axes = [1], keepdims = 0> (t)",
        "g = MatMul(x, W) s = Pow(g, e) h = MatMul(s, V) "
        "y = ReduceMean <axes = [1], keepdims = 0> (h)",
    ):
        constants = {"e": three, **weights(0, W=(3, 6), V=(6, 8))}
        model = built(body, constants, inputs="float[1,3] x", outputs="float y")
        other = perturbed(model, ("W", "V"))
        most, _ = largest_change(model, other, samples((1, 3), 100))
        assert most <= bound(model, other) <= 5 * most


def test_a_hard_sigmoid_is_certified_to_the_last_digit() -> None:
    """In rational arithmetic: alpha·x + beta cancels, and alpha changes in its last digit."""
    for seed in range(100):
        rng = np.random.default_rng(seed)
        alpha = floats(rng.choice([0.2, 7.7, 1e3, 1e5]))[0]
        beta = np.float32(-alpha * rng.uniform(0.5, 1))
        x = float(-beta / alpha + rng.uniform(0, 0.9) / alpha)
        slopes = float(alpha), float(np.nextafter(alpha, floats(np.inf)[0]))
        models = [
            build(
                f"y = HardSigmoid <alpha = {slope!r}, beta = {float(beta)!r}> (x)",
                inputs="double[1,1] x",
                outputs="double[1,1] y",
            )
            for slope in slopes
        ]
        stored = [
            {a.name: Fraction(a.f) for a in model.graph.node[0].attribute} for model in models
        ]
        exact = [
            min(max(s["alpha"] * Fraction(x) + s["beta"], Fraction(0)), Fraction(1)) for s in stored
        ]
        found = certify(Graph(models[0]), Graph(models[1]), {"x": (x, x)})
        assert abs(exact[1] - exact[0]) <= Fraction(found.outputs[0].bound)


MIXING = {
    "sum over everything": "y = ReduceSum(h)",
    "sum over samples": "y = ReduceSum(h, zero64)",
    "mean over samples": "y = ReduceMean <axes = [-2]> (h)",
    "softmax over samples": "y = Softmax <axis = 0> (h)",
    "samples as features": "t = Transpose(h) y = Softmax(t)",
    "samples side by side": "y = Reshape(h, flat)",
    "flattened from the start": "y = Flatten <axis = 0> (h)",
    "one behind the other": "t = Relu(h) y = Concat <axis = 0> (h, t)",
    "the first sample": "y = Gather(h, zero64)",
    "the first samples": "y = Slice(h, zero64, one64, zero64)",
    "the last sample": "y = Slice(h, last64, five, zero64)",
    "an axis before": "t = Unsqueeze(h, zero64) y = ReduceMean <axes = [1]> (t)",
    "an axis before by a constant": "t = Add(h, S) y = ReduceMean <axes = [1]> (t)",
    "all axes of one": "y = Squeeze(h)",
    "repeated": "y = Tile(h, twice)",
    "padded": "y = Pad(h, pads)",
    "transposed": "y = Gemm <transA = 1> (h, R)",
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
    "Split": "t, u = Split <axis = 1> (h) y = Mul(t, u)",
    "Transpose": "t = Reshape(h, pairs) y = Transpose <perm = [0, 2, 1]> (t)",
    "Unsqueeze": "t = Unsqueeze(h, one64) y = Squeeze(t, one64)",
}
BATCHED: dict[str, Array] = {
    **weights(9, R=(1, 3), S=(2, 1, 4), M=(1, 4)),
    "zero64": integers(0), "one64": integers(1), "last64": integers(-1), "five": integers(5),
    "flat": integers(1, -1), "twice": integers(2, 1), "pads": integers(1, 0, 0, 0),
    "pairs": integers(-1, 2, 2), "twos": integers(2, 2), "rows": integers(-1, 4),
}  # fmt: skip


def batched(tail: str) -> ModelProto:
    """A layer with any number of samples, and something behind it."""
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
    for count in (1, 2, 4, 7):
        most, size = largest_change(model, other, samples((count, 3), 40))
        assert 0 < most <= bound(model, other) + ROUNDING * size
    assert bound(model, other) <= 20 * most


def test_an_input_without_a_shape_is_not_taken_for_a_number() -> None:
    for kind in ("float[] x", "float x"):
        model = built("y = Mul(x, c)", weights(0, c=(3,)), inputs=kind, outputs="float[] y")
        found = certificate(model, model).unavailable
        assert found == "not certified: input 'x' has no shape"


def test_outputs_without_a_bound_must_be_unchanged() -> None:
    for body, certified in (
        ("h = MatMul(x, W) y = Relu(h) i = ArgMax <axis = 1> (h)", False),
        ("h = MatMul(x, W) y = Relu(h) i = ArgMax <axis = 1> (x)", True),
    ):
        model = built(body, weights(0, W=(3, 2)), outputs="float[N,2] y, int64[N,1] i")
        found = certificate(model, perturbed(model))
        if certified:
            assert [output.name for output in found.outputs] == ["y"]
        else:
            assert found.unavailable == "not certified: output 'i' is int64"
            assert found.largest == np.inf


def test_other_kinds_of_inputs_are_not_certified() -> None:
    for kind, name in (("complex64", "complex64"), ("string", "object")):
        model = build("y = Cast <to = 1> (x)", inputs=f"{kind}[N,3] x")
        assert certificate(model, model).unavailable == f"not certified: input 'x' is {name}"


def test_a_split_into_more_parts_is_another_operator() -> None:
    old, new = (
        built(f"h = MatMul(x, W) {outputs} = Split <axis = 1> (h)", weights(0, W=(3, 6)), **SPLIT)
        for outputs in ("y, a", "y, a, b")
    )
    found = certificate(old, new).unavailable
    assert found == "not certified: node y (Split): 'y' has another shape in the result"


SPLIT = {"outputs": "float[] y"}
WRONG = {
    "a bias of another length": ("y = Gemm(x, W, b)", {"b": floats(1, 2, 3, 4)}),
    "a matrix of another length": ("y = MatMul(x, U)", weights(0, U=(4, 2))),
    "limits of another length": ("y = Clip(x, b)", {"b": floats(1, 2)}),
    "a training mode of another length": (
        "t = Dropout(x, h, m) y = Relu(t)",
        {"h": np.asarray(0.5, np.float32), "m": np.asarray([False, False])},
    ),
    "a mean for each element": (
        "y = BatchNormalization <spatial = 0> (x, b, b, b, b)",
        {"b": floats(1, 2, 3)},
    ),
    "no elements": ("t = Slice(x, i, i, i) y = Softmax(t)", {"i": integers(1)}),
    "too few inputs": ("y = Mul(x)", {}),
}


@pytest.mark.parametrize(("body", "constants"), WRONG.values(), ids=WRONG.keys())
def test_nodes_that_do_not_fit_are_named(body: str, constants: dict[str, Array]) -> None:
    model = built(body, {**weights(0, W=(3, 2)), **constants})
    found = certificate(model, perturbed(model)).unavailable
    assert found is not None
    assert found.startswith("not certified: node ")


def test_ranges_that_are_none_are_named() -> None:
    model = build("y = Relu(x)")
    for limits in ((np.zeros(4), np.ones(4)), (1.0, -1.0), (0.0, np.inf), (np.nan, 1.0)):
        found = certify(Graph(model), Graph(model), {"x": limits}).unavailable
        assert found is not None
        assert "input 'x'" in found


@pytest.mark.parametrize("limits", ["zero, inf", ", inf", "minus, one", "less, inf"])
def test_infinite_limits_are_certified(limits: str) -> None:
    constants = {"zero": 0.0, "inf": np.inf, "minus": -0.5, "one": 1.0, "less": -np.inf}
    used = {k: np.asarray(v, np.float32) for k, v in constants.items() if k in limits}
    model = built(f"h = MatMul(x, W) y = Clip(h, {limits})", {**weights(1, W=(3, 2)), **used})
    other = perturbed(model)
    most, _ = largest_change(model, other, [np.concatenate(samples((200, 3), 1))])
    assert 0 < most <= bound(model, other) <= 3 * most


def test_one_feature_that_factors_make_more_of_is_followed() -> None:
    body = "h = MatMul(x, W) s = Mul(h, h) t = Mul(s, f) y = MatMul(t, V)"
    model = built(body, weights(1, W=(3, 1), f=(5,), V=(5, 2)))
    other = perturbed(model)
    most, _ = largest_change(model, other, [np.concatenate(samples((200, 3), 2))])
    assert most <= bound(model, other) <= 10 * most


@pytest.mark.parametrize(("inputs", "neurons"), [(0, 4), (3, 0), (3, 4)])
def test_layers_without_inputs_or_neurons_are_followed(inputs: int, neurons: int) -> None:
    full = weights(2, W=(inputs, 4), V=(4, 2), b=(2,))
    body, kind = "h = MatMul(x, W) s = Mul(h, h) z = MatMul(s, V) y = Add(z, b)", "float[N,{}] x"
    model = built(body, full, inputs=kind.format(inputs))
    fewer = {"W": full["W"][:, :neurons], "V": full["V"][:neurons], "b": full["b"]}
    other = built(body, fewer, inputs=kind.format(inputs))
    if inputs == 0:
        assert bound(model, other) == 0.0
        return
    most, _ = largest_change(model, other, [np.concatenate(samples((200, 3), 1))])
    assert most <= bound(model, other) <= 3 * most


def test_unsqueeze_of_old_opsets_is_certified() -> None:
    found = weights(0, W=(3, 2))
    plain = built("y = MatMul(x, W)", found)
    body = "h = MatMul(x, W) u = Unsqueeze <axes = [-1, 1]> (h) y = ReduceMean <axes = [1, 3]> (u)"
    model = build(body, outputs="float[] y", opset=11, W=found["W"])
    most, _ = largest_change(plain, perturbed(plain), [np.concatenate(samples((200, 3), 1))])
    assert most <= bound(model, perturbed(model)) <= 2 * most


def test_a_long_row_of_casts_is_followed() -> None:
    names = [f"W{i}" for i in range(3000)]
    casts = " ".join(f"{b} = Cast <to = 1> ({a})" for a, b in pairwise(["W", *names]))
    model = built(f"{casts} y = MatMul(x, {names[-1]})", weights(0, W=(3, 2)))
    assert bound(model, model) == 0.0


OLD_FORMS = {
    "Squeeze": ("Squeeze <axes = [0]> (x)", 7, (1, 1, 2, 3)),
    "Squeeze of two": ("Squeeze <axes = [0, 2]> (x)", 11, (1, 2, 1, 3)),
    "Unsqueeze": ("Unsqueeze <axes = [2, 0]> (x)", 7, (2, 3)),
    "Slice": ("Slice <starts = [0, -2], ends = [9, -1], axes = [1, 2]> (x)", 9, (1, 2, 3)),
    "Pad": ("Pad <pads = [0, 1, 2, 0]> (x)", 7, (2, 3)),
    "ReduceSum": ("ReduceSum <axes = [1, -1], keepdims = 0> (x)", 11, (2, 3, 2)),
    "ReduceMean": ("ReduceMean <axes = [1]> (x)", 7, (2, 3, 2)),
    "Softmax": ("Softmax <axis = 1> (x)", 11, (1, 2, 3)),
    "Clip": ("Clip <min = -0.5, max = 0.3> (x)", 7, (2, 3)),
    "Split": ("Split <axis = 1, split = [1, 2]> (x)", 11, (2, 3)),
}


@pytest.mark.parametrize(("call", "opset", "shape"), OLD_FORMS.values(), ids=OLD_FORMS.keys())
def test_forms_of_old_opsets_are_those_of_onnxruntime(
    call: str, opset: int, shape: tuple[int, ...]
) -> None:
    names = "y, z" if "Split" in call else "y"
    kind = f"float[{','.join(map(str, shape))}] x"
    model = build(f"{names} = {call}", kind, "float[] y", opset, 6)
    x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    expected = load(model, None).run({"x": x})[0]
    pair = Pair.same(Interval.point(x.astype(np.float64)))
    node = model.graph.node[0]
    found = operators.apply(operators.Site(node, (pair,), opset), node.op_type)
    assert isinstance(found, Pair)
    assert found.shape == expected.shape
    if "Softmax" not in call:
        np.testing.assert_allclose(found.value.mid, expected, rtol=1e-5)


def test_rows_and_pools_count_and_a_wide_layer_takes_little_memory() -> None:
    body = "h = MatMul(x, W) s = Mul(h, h) y = MatMul(s, V)"
    found = weights(0, W=(16, 8), V=(8, 8))
    few, many = (
        built(body, found, inputs=f"float[N,{rows},16] x", outputs=f"float[N,{rows},8] y")
        for rows in (1, 4096)
    )
    assert cost(Graph(many)) > 100 * cost(Graph(few))
    pool = build(
        "y = MaxPool <kernel_shape = [3, 3]> (x)", "float[1,8,64,64] x", "float[1,8,62,62] y"
    )
    assert cost(Graph(pool)) >= 8 * 62 * 62 * 9
    wide = built(body, weights(0, W=(5000, 4), V=(4, 1)), inputs="float[N,5000] x")
    tracemalloc.start()
    assert bound(wide, perturbed(wide)) > 0
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 20e6
    assert cheap(Graph(wide))


def searched(chain: Chain, other: Chain, rng: np.random.Generator) -> float:
    """The largest change of any output that random inputs, corners and sign-gradient steps find."""
    width = chain[0].inputs
    x = np.vstack([rng.uniform(-1, 1, (24, width)), rng.choice([-1.0, 1.0], (24, width))])
    worst = 0.0
    for step in (0.0, 1.0, 0.5, 0.25, 0.1, 0.03):
        (before, up), (after, down) = followed(chain, x), followed(other, x)
        change = after - before
        worst = max(worst, float(np.abs(change).max()))
        k = np.abs(change).argmax(axis=1)
        rows = np.arange(len(x))
        slope = (down - up)[rows, k] * np.sign(change[rows, k])[:, None]
        x = np.clip(x + step * np.sign(slope), -1, 1)
    return worst


Chain = tuple[Layer, ...]


def followed(chain: Chain, x: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The outputs of square layers in a row, and their derivatives by the inputs."""
    slope = np.broadcast_to(np.eye(x.shape[1]), (len(x), x.shape[1], x.shape[1]))
    for layer in chain:
        weight = layer.incoming[:, :-1]
        hidden = x @ weight.T + layer.incoming[:, -1]
        slope = (layer.outgoing * (2 * hidden)[:, None, :]) @ (weight @ slope)
        x = layer(x)
    return x, slope


def as_model(chain: Chain) -> ModelProto:
    """The layers as Gemm → Mul → Gemm, one after the other."""
    weights: dict[str, Any] = {}
    body, value = "", "x"
    for i, layer in enumerate(chain):
        last = "y" if i == len(chain) - 1 else f"o{i}"
        body += (
            f"[a{i}] h{i} = Gemm <transB = 1> ({value}, W{i}, b{i}) s{i} = Mul(h{i}, h{i}) "
            f"[z{i}] {last} = Gemm <transB = 1> (s{i}, V{i}, c{i}) "
        )
        arrays = (layer.incoming[:, :-1], layer.incoming[:, -1], layer.outgoing, layer.offset)
        weights |= {f"{n}{i}": a.astype(np.float32) for n, a in zip("WbVc", arrays, strict=True)}
        value = last
    return build(
        body,
        inputs=f"float[N,{chain[0].inputs}] x",
        outputs=f"float[N,{chain[-1].outputs}] y",
        **weights,
    )


def shaken(layer: Layer, rng: np.random.Generator) -> Layer:
    """The layer with fewer neurons or other weights."""
    kept = np.sort(rng.permutation(layer.neurons)[: rng.integers(1, layer.neurons + 1)])
    noise = rng.choice([0.0, 0.01, 0.3]) * rng.normal(size=(len(kept), layer.inputs + 1))
    return Layer(layer.incoming[kept] + noise, layer.outgoing[:, kept], layer.offset).stored_as(
        np.float32
    )


@pytest.mark.parametrize("depth", [1, 2])
def test_no_searched_input_exceeds_the_certificate_of_a_thousand_models(depth: int) -> None:
    for seed in range(1000):
        rng = np.random.default_rng((depth, seed))
        widths = rng.integers(1, 5, depth + 1)
        chain = tuple(
            Layer(
                rng.normal(size=(n, d + 1)), rng.normal(size=(m, n)), rng.normal(size=m)
            ).stored_as(np.float32)
            for d, m, n in zip(widths, widths[1:], rng.integers(1, 7, depth), strict=False)
        )
        other = tuple(shaken(layer, rng) for layer in chain)
        found = certify(Graph(as_model(chain)), Graph(as_model(other)), {"x": (-1.0, 1.0)})
        assert found.unavailable is None
        worst = searched(chain, other, rng)
        assert worst <= found.largest * (1 + 1e-9) + 1e-12, seed
