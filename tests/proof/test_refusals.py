"""Where there is no certificate, the reason is named."""

from __future__ import annotations

import numpy as np
import pytest

from onnxfde.graph.model import Graph
from onnxfde.neurons.intervals import Box, Interval, Uncertified
from onnxfde.numbers import Array
from onnxfde.proof import operator_rules
from onnxfde.proof.affine_bounds import Map
from onnxfde.proof.certificate import certify
from onnxfde.proof.chain_bounds import routed_change
from tests.models import build
from tests.proof.certificates import (
    built,
    certificate,
    floats,
    integers,
    perturbed,
    two_layers,
    weights,
    with_tail,
)


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


def test_models_that_do_not_fit_together_are_not_certified() -> None:
    one, other = (built("y = MatMul(x, W)", weights(0, W=(3, n))) for n in (2, 4))
    found = certificate(one, other).unavailable
    assert found == "not certified: node y (MatMul): 'y' has a different shape in the result"
    one, other = (build("y = Relu(x)", opset=opset) for opset in (16, 17))
    found = certificate(one, other).unavailable
    assert found == "not certified: the two models have different opsets"
    one, other = (
        built("s = Identity(t) y = Reshape(x, s)", {"t": integers(*shape)})
        for shape in ((1, 3), (3, 1))
    )
    found = certificate(one, other).unavailable
    assert found == "not certified: node y (Reshape): 'y' has a different shape in the result"


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


def test_an_input_without_a_shape_is_not_taken_for_a_number() -> None:
    for kind in ("float[] x", "float x"):
        model = built("y = Mul(x, c)", weights(0, c=(3,)), inputs=kind, outputs="float[] y")
        found = certificate(model, model).unavailable
        assert found == "not certified: input 'x' has no shape"


def test_outputs_without_a_bound_must_be_unchanged() -> None:
    changed, unchanged = (
        built(
            f"h = MatMul(x, W) y = Relu(h) i = ArgMax <axis = 1> ({read})",
            weights(0, W=(3, 2)),
            outputs="float[N,2] y, int64[N,1] i",
        )
        for read in ("h", "x")
    )
    found = certificate(changed, perturbed(changed))
    assert found.unavailable == "not certified: output 'i' is int64"
    assert found.largest == np.inf
    found = certificate(unchanged, perturbed(unchanged))
    assert [output.name for output in found.outputs] == ["y"]


def test_other_kinds_of_inputs_are_not_certified() -> None:
    for kind, name in (
        ("complex64", "complex numbers, not real ones"),
        ("string", "texts, not numbers"),
    ):
        model = build("y = Cast <to = 1> (x)", inputs=f"{kind}[N,3] x")
        assert certificate(model, model).unavailable == f"not certified: input 'x' holds {name}"


def test_ranges_that_are_none_are_named() -> None:
    model = build("y = Relu(x)")
    for limits in ((np.zeros(4), np.ones(4)), (1.0, -1.0), (0.0, np.inf), (np.nan, 1.0)):
        found = certify(Graph(model), Graph(model), {"x": limits}).unavailable
        assert found is not None
        assert "input 'x'" in found


@pytest.mark.parametrize(
    ("tail", "reason"),
    [
        ("[n] y = Exp(h)", "node n (Exp)"),
        ("[n] y = Pow(h, minus)", "node n (Pow): its exponent is not a whole number from 1 to 32"),
        ("t = Relu(h) [n] y = Div(t, h)", "node n (Div): its input 2 is not a constant"),
        ("[n] y = Div(h, zero)", "node n (Div): it divides by 0"),
        ("[n] y = Pad(h, pads, one)", "node n (Pad): it pads with a number other than 0"),
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


def test_a_convolution_too_large_for_memory_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operator_rules, "MOST_UNFOLDED", 1)
    model = with_tail("t = Reshape(h, image) y = Conv(t, K)")
    found = certificate(model, model)
    assert found.unavailable == "not certified: node y (Conv): it is too large"


def test_a_split_into_more_parts_is_another_operator() -> None:
    old, new = (
        built(
            f"h = MatMul(x, W) {outputs} = Split <axis = 1> (h)",
            weights(0, W=(3, 6)),
            outputs="float[] y",
        )
        for outputs in ("y, a", "y, a, b")
    )
    found = certificate(old, new).unavailable
    assert found == "not certified: node y (Split): 'y' has a different shape in the result"


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


def test_a_route_between_values_that_overflow_is_refused() -> None:
    """LAPACK would write its own message to stdout."""
    identity = Map(np.eye(2), np.zeros(2))
    endless = Interval(np.full((1, 2), -np.inf), np.full((1, 2), np.inf))
    point = Interval.point(np.zeros((1, 2)))
    with np.errstate(all="ignore"), pytest.raises(Uncertified, match="its bounds overflow"):
        routed_change((identity, identity), (identity, identity), endless, point, point)
