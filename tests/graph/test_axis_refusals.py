"""What ends an axis, and in which words."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

from onnxfde.graph.axis_rules import ENDS
from onnxfde.graph.find_axes import find_axes
from onnxfde.graph.model import Graph
from onnxfde.graph.protos import ModelProto
from tests.graph.axis_cases import IMAGE, OUTPUTS, UNITS, WEIGHTS, between, normal
from tests.models import build


def reasons(model: ModelProto) -> dict[str, str]:
    axes, refusals = find_axes(Graph(model))
    assert "first" not in [axis.name for axis in axes]
    return {refusal.node: refusal.reason for refusal in refusals}


def integers(*numbers: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.array(numbers, np.int64)


SQUEEZE = "g = GlobalAveragePool(h) e = Conv(g, E) s = Sigmoid(e) r = Mul(h, s)"
CASES: dict[str, tuple[str, dict[str, Any], str]] = {
    "residual": (
        "g = Conv(x, G) r = Add(h, g)",
        {"G": normal(UNITS, 2, 1, 1)},
        "Add 'r' adds the channels to another value, 'g': a residual stream",
    ),
    "residual Sum": (
        "g = Conv(x, G) r = Sum(g, h)",
        {"G": normal(UNITS, 2, 1, 1)},
        "Sum 'r' adds the channels to another value, 'g': a residual stream",
    ),
    "squeeze-and-excite": (
        SQUEEZE,
        {"E": normal(UNITS, UNITS, 1, 1)},
        "Mul 'r' multiplies the channels with another value, 's', as a gate or squeeze-and-excite "
        "does",
    ),
    "a value of the caller": (
        "m = ReduceMean(x) r = Max(h, m)",
        {},
        "Max 'r' combines the channels with another value, 'm'",
    ),
    "Concat": (
        "g = Relu(h) r = Concat <axis = 1> (h, g)",
        {"V": normal(OUTPUTS, 2 * UNITS, 1, 1)},
        "Concat 'r' joins the channels with others",
    ),
    "Split": (
        "r, s = Split <axis = 1> (h, parts)",
        {"parts": integers(3, 3), "V": normal(OUTPUTS, 3, 1, 1)},
        "Split 'r' splits the channels",
    ),
    "groups": (
        "r = Conv <group = 3> (h, G)",
        {"G": normal(UNITS, 2, 1, 1)},
        "Conv 'r' reads the channels in 3 groups",
    ),
    "multiplier": (
        "r = Conv <group = 6> (h, G)",
        {"G": normal(2 * UNITS, 1, 1, 1), "V": normal(OUTPUTS, 2 * UNITS, 1, 1)},
        "Conv 'r' makes several channels of each of the channels",
    ),
    "ConvTranspose": (
        "r = ConvTranspose(h, G)",
        {"G": normal(UNITS, UNITS, 1, 1)},
        "ConvTranspose 'r' reads the channels; a transposed convolution is not merged yet",
    ),
    "Softmax": ("r = Softmax <axis = 1> (h)", {}, "Softmax 'r' mixes the channels"),
    "LRN": ("r = LRN <size = 3> (h)", {}, "LRN 'r' mixes the channels"),
    "DepthToSpace": (
        "d = Mul(h, h) r = SpaceToDepth <blocksize = 2> (d)",
        {"V": normal(OUTPUTS, 4 * UNITS, 1, 1)},
        "SpaceToDepth 'r' moves the channels to other axes",
    ),
    "quantized": (
        "q = QuantizeLinear(h, scale) r = DequantizeLinear(q, scale)",
        {"scale": np.float32(0.1)},
        "QuantizeLinear 'q' quantizes the channels",
    ),
    "unknown": (
        "r = CumSum(h, one)",
        {"one": np.int64(1)},
        "CumSum 'r' is not known to act on each of the channels by itself",
    ),
    "mean over channels": (
        "m = ReduceMean <axes = [1]> (h) r = Sub(h, m)",
        {},
        "ReduceMean 'm' sums over the channels",
    ),
    "mean over all": (
        "m = ReduceMean(h) r = Sub(h, m)",
        {},
        "ReduceMean 'm' sums over the channels",
    ),
    "Pad of channels": (
        "r = Pad(h, p)",
        {"p": integers(0, 1, 0, 0, 0, 1, 0, 0), "V": normal(OUTPUTS, UNITS + 2, 1, 1)},
        "Pad 'r' adds others to the channels",
    ),
    "Slice of every other channel": (
        "r = Slice(h, s, e, ax, two)",
        {"s": integers(0), "e": integers(9), "ax": integers(1), "two": integers(2)},
        "Slice 'r' takes some of the channels",
    ),
    "Slice with a number too few": (
        "r = Slice(h, s, e, ax)",
        {"s": integers(0), "e": integers(9, 9), "ax": integers(1, 2)},
        "Slice 'r' does not have numbers for 2 axes",
    ),
    "Pad with a number too few": (
        "r = Pad(h, p)",
        {"p": integers(0, 0, 1, 1, 0, 0, 1)},
        "Pad 'r' has 7 lengths for 4 axes",
    ),
    "Split that says how long": (
        "r = Split <axis = 1, split = [6]> (h)",
        {"opset": 11},
        "Split 'r' says how many channels there are",
    ),
    "Gather of channels": (
        "r = Gather <axis = 1> (h, n)",
        {"n": integers(5, 4, 3, 2, 1, 0)},
        "Gather 'r' takes some of the channels",
    ),
    "Tile of channels": (
        "r = Tile(h, n)",
        {"n": integers(1, 2, 1, 1)},
        "Tile 'r' repeats the channels",
    ),
    "Expand to more axes": (
        "r = Expand(h, n)",
        {"n": integers(2, 1, 1, 1, 1)},
        "Expand 'r' adds axes in front",
    ),
    "Slice of channels": (
        "r = Slice(h, s, e, s)",
        {"s": integers(1), "e": integers(4), "V": normal(OUTPUTS, 3, 1, 1)},
        "Slice 'r' takes some of the channels",
    ),
    "Resize of channels": (
        "r = Resize(h, , s)",
        {"s": np.array([1, 2, 1, 1], np.float32), "V": normal(OUTPUTS, 2 * UNITS, 1, 1)},
        "Resize 'r' changes the number of channels",
    ),
    "shuffle": (
        "a = Reshape(h, s) t = Transpose <perm = [0, 2, 1, 3, 4]> (a) r = Reshape(t, u)",
        {"s": integers(-1, 2, 3, 8, 8), "u": integers(-1, 6, 8, 8)},
        "Reshape 'a' mixes the channels with other axes",
    ),
    "batch as channels": (
        "r = Reshape(h, s)",
        {"s": integers(-1, 12, 8, 8), "V": normal(OUTPUTS, 12, 1, 1)},
        "Reshape 'r' mixes the channels with other axes",
    ),
    "computed Reshape": (
        "a = Shape(x) r = Reshape(h, a)",
        {"V": normal(OUTPUTS, 2, 1, 1)},
        "the shape of Reshape 'r' is computed",
    ),
    "the number of channels is asked for": (
        "a = Shape(h) n = Gather(a, one) f = Cast <to = 1> (n) r = Div(h, f)",
        {"one": np.int64(1)},
        "Shape 'a' asks the number of channels",
    ),
    "Squeeze of any axes": (
        "r = Squeeze(h)",
        {},
        "Squeeze 'r' does not say that it removes other axes",
    ),
    "Cast to integers": (
        "a = Cast <to = 7> (h) r = Cast <to = 1> (a)",
        {},
        "Cast 'a' makes something else than floating-point numbers of the channels",
    ),
    "indices of a pool": (
        "r, i = MaxPool <kernel_shape = [2, 2]> (h) f = Cast <to = 1> (i) z = ReduceSum(f)",
        {"outputs": "float[N,3,P,Q] y, float[1,1,1,1] z"},
        "the further outputs of MaxPool 'r' are used",
    ),
    "training": (
        "r, p, q = BatchNormalization <training_mode = 1> (h, k, k, k, v)",
        {"k": normal(UNITS), "v": np.ones(UNITS, np.float32)},
        "BatchNormalization 'r' may be in training mode",
    ),
    "another axis": (
        "t = Transpose <perm = [0, 2, 1, 3]> (h) r = MaxPool <kernel_shape = [1, 1]> (t)",
        {"V": normal(OUTPUTS, 8, 1, 1)},
        "the channels are not on axis 1 of what MaxPool 'r' reads",
    ),
    "a product over space": (
        "r = MatMul(h, M)",
        {"M": normal(8, 4)},
        "MatMul 'r' does not sum over the channels",
    ),
    "a product from the left": (
        "f = Flatten(h) t = Transpose(f) m = MatMul(M, t) r = Unsqueeze(m, ax)",
        {"M": normal(4, UNITS * 64), "ax": integers(0), "V": normal(OUTPUTS, 4, 1)},
        "MatMul 'm' reads the channels in an unusual place",
    ),
    "an output": (
        "r = Relu(h)",
        {"outputs": "float[N,3,P,Q] y, float[N,6,8,8] r"},
        "'r' with the channels is an output of the graph",
    ),
    "two axes": (
        "t = Transpose <perm = [0, 2, 1, 3]> (h) g = GlobalAveragePool(h) r = Add(g, t)",
        {"V": normal(OUTPUTS, 8, 1, 1)},
        "Add 'r' reads the channels on different axes",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_what_ends_an_axis(name: str) -> None:
    body, options, reason = CASES[name]
    assert reasons(between(body, **options))["first"] == reason


def test_nothing_reads_the_channels() -> None:
    model = between("r = Relu(h)", "y = Conv(x, V)", V=normal(3, 2, 1, 1))
    assert reasons(model)["first"] == "nothing that can be refitted reads the channels"


def test_weights_that_a_caller_may_override() -> None:
    for name in ("W", "b", "V", "k"):
        model = between("r = Mul(h, k)", k=normal(UNITS, 1, 1))
        tensor = next(t for t in model.graph.initializer if t.name == name)
        model.graph.input.append(onnx.helper.make_tensor_value_info(name, 1, list(tensor.dims)))
        assert reasons(model)["first"] == (
            f"the weight '{name}' is also a graph input that a caller may override; take it off "
            "the graph's inputs to make it a constant"
        )


def test_weights_that_are_computed() -> None:
    model = build(
        "U = Mul(W, W) [first] h = Conv(x, U) y = Conv(h, V)",
        inputs=IMAGE,
        outputs="float[N,3,P,Q] y",
        W=WEIGHTS["W"],
        V=WEIGHTS["V"],
    )
    assert reasons(model)["first"] == "the weight of Conv 'first' is not a constant"


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_weights_that_are_not_finite(bad: float) -> None:
    weight = WEIGHTS["V"].copy()
    weight[0, 0, 0, 0] = bad
    reason = reasons(between("r = Relu(h)", V=weight))["first"]
    assert reason == "the weight of 'second' is empty, or not finite"


def test_bodies_that_read_the_channels() -> None:
    model = between(
        "t = ReduceMax <keepdims = 0> (x) b = Cast <to = 9> (t) "
        "r = If (b) <then_branch = p () => (s) { s = Relu(h) }, "
        "else_branch = q () => (s) { s = Neg(h) }>",
    )
    assert reasons(model)["first"] == "If 'r' reads the channels in a body"


def test_a_convolution_with_groups_makes_no_axis() -> None:
    model = build(
        "[first] h = Conv <group = 2> (x, W) y = Conv(h, V)",
        inputs=IMAGE,
        outputs="float[N,3,P,Q] y",
        W=normal(UNITS, 1, 3, 3),
        V=WEIGHTS["V"],
    )
    assert "first" not in reasons(model)
    model.graph.input[0].type.tensor_type.shape.dim[1].dim_value = 4
    del model.graph.initializer[0]
    model.graph.initializer.append(onnx.numpy_helper.from_array(normal(UNITS, 2, 3, 3), "W"))
    assert reasons(model)["first"] == "Conv 'first' has several groups"


def test_a_shape_that_is_used_elsewhere_stays() -> None:
    model = between(
        "a = Shape(h) n = Gather(a, zero) s = Concat <axis = 0> (n, rest) r = Reshape(h, s) "
        "z = Reshape(x2, s)",
        "y = Gemm <transB = 1> (r, V, c)",
        zero=integers(0),
        rest=integers(UNITS * 64),
        V=normal(OUTPUTS, UNITS * 64),
        outputs="float[N,3] y, float[N,384] z",
    )
    model.graph.input.append(onnx.helper.make_tensor_value_info("x2", 1, ["N", 384]))
    assert reasons(model)["first"] == "the shape of Reshape 'r' is used elsewhere, too"


def test_old_opsets_broadcast_by_other_rules() -> None:
    model = between("r = Mul(h, k)", k=normal(UNITS, 1, 1), opset=6)
    assert reasons(model)["first"] == (
        "opset 6 broadcasts by other rules; convert the model to a newer one first"
    )


def test_every_operator_with_its_own_words_is_in_a_case_or_has_the_words_of_one() -> None:
    met = {n.op_type for body, o, _ in CASES.values() for n in between(body, **o).graph.node}
    said = {"quantizes", "mixes", "moves", "joins", "splits", "transposed"}
    assert all(any(word in reason for _, _, reason in CASES.values()) for word in said)
    assert {"ConvTranspose", "Softmax", "LRN", "QuantizeLinear"} <= met & {*ENDS}
