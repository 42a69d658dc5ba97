"""Equality up to rounding, and how rounding limits what merging can promise."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import onnxfde
from onnxfde.errors import RuntimeUnavailable, VerificationError
from onnxfde.graph.input_specs import input_specs
from onnxfde.graph.magnitude import magnitude_model
from onnxfde.graph.model import Graph
from onnxfde.running import side_by_side
from onnxfde.running.samples import make_samples
from onnxfde.running.side_by_side import SideBySide
from onnxfde.running.verification import require_equal
from tests.models import build, mlp, outputs_of
from tests.running.comparing import B, C, V, W, X


def test_a_difference_beyond_rounding_at_eps_zero_ends_in_a_copy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wrong = Graph(mlp(W, B, V * np.float32(1.001), C))
    honest = side_by_side.loaded
    monkeypatch.setattr(side_by_side, "loaded", lambda _, engine: honest(wrong, engine))
    result = onnxfde.optimize(mlp(W, B, V, C), eps=0)
    assert "more than rounding explains" in (result.report.unchanged or "")
    assert result.model == mlp(W, B, V, C)


@pytest.mark.parametrize("kind", ["Max", "Sub"])
def test_arithmetic_on_lengths_is_no_obstacle(kind: str) -> None:
    """Of absolute lengths onnxruntime or the reference would make another shape."""
    rng = np.random.default_rng(0)
    twice = rng.normal(size=(3, 8)).astype(np.float32)
    twice[:, 1] = twice[:, 0]
    model = build(
        f"h = MatMul(x, W) r = Relu(h) o = MatMul(r, V) s = Shape(o) c = Slice(s, one, two) "
        f"t = {kind}(c, k) l = Concat <axis = 0> (m, t) y = Reshape(o, l)",
        outputs="float[P,Q] y",
        W=twice,
        V=rng.normal(size=(8, 4)).astype(np.float32),
        one=np.array([1]),
        two=np.array([2]),
        k=np.array([2]),
        m=np.array([-1]),
    )
    (layer,) = onnxfde.optimize(model, eps=0).report.layers
    assert (layer.neurons_before, layer.neurons_after) == (8, 7)


def test_equality_up_to_rounding_without_a_rule_for_an_operator() -> None:
    model = build("y = Exp(x)", outputs="float[N,3] y")
    graph = Graph(model)
    assert magnitude_model(graph) is None
    require_equal([np.exp(X)], [np.exp(X) * (1 + 1e-6)], None, 2.0**-24)
    with pytest.raises(VerificationError):
        require_equal([np.exp(X)], [np.exp(X) * 1.01], None, 2.0**-24)


def test_equality_is_judged_by_size_where_the_magnitude_cannot_be_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def unavailable(*_: Any) -> Any:
        raise RuntimeUnavailable("no")

    graph = Graph(mlp(W, B, V, C))
    samples = make_samples({"x": X}, input_specs(graph), "test")
    beside = SideBySide(graph, samples)
    assert beside.magnitudes() is not None
    monkeypatch.setattr(side_by_side, "load", unavailable)
    assert beside.magnitudes() is None
    (y,) = outputs_of(mlp(W, B, V, C), X)
    require_equal([y], [y], None, 2.0**-24)
    with pytest.raises(VerificationError):
        require_equal([y], [y * np.float32(1.01)], None, 2.0**-24)


def test_the_magnitude_bounds_the_outputs_of_a_network() -> None:
    model = build(
        "a = Gemm <transB = 1, alpha = -1.0> (x, W, b) r = Relu(a) d = Sub(r, b) n = Neg(d) "
        "p = Pow(n, two) q = Tanh(p) y = Gemm <transB = 1> (q, V, c)",
        W=W,
        b=B,
        V=V,
        c=C,
        two=np.float32(2),
    )
    magnitude = magnitude_model(Graph(model))
    assert magnitude is not None
    (bound,), (value,) = outputs_of(magnitude, np.abs(X)), outputs_of(model, X)
    assert np.all(bound >= np.abs(value))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_eps_holds_in_half_precision_although_rounding_is_coarse(dtype: str) -> None:
    rng = np.random.default_rng(0)
    kind = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16}[dtype]
    shapes: dict[str, Any] = {"W": (24, 12), "b": (24,), "V": (3, 24), "c": (3,)}
    weights = {k: (rng.normal(size=s) / np.sqrt(s[-1])).astype(kind) for k, s in shapes.items()}
    model = build(
        "h = Gemm <transB = 1> (x, W, b) s = Mul(h, h) y = Gemm <transB = 1> (s, V, c)",
        inputs=f"{dtype}[N,12] x",
        outputs=f"{dtype}[N,3] y",
        **weights,
    )
    report = onnxfde.optimize(model, eps=0.1, verify=False).report
    assert report.layers[0].error <= 0.1
    assert 10 < report.layers[0].neurons_after < 24
    exact = onnxfde.optimize(model, eps=0, verify=False).report
    assert exact.parameters.after > 0.9 * (24 * (12 + 1 + 3) + 3)


def test_factors_in_double_precision_are_not_rounded_by_the_runtime() -> None:
    """onnxruntime would fuse the factor into a float32 attribute of the product."""
    rng = np.random.default_rng(0)
    rows = np.tile(rng.normal(size=(3, 3)), (2, 1)).T
    model = build(
        "h = MatMul(x, W) s = Mul(h, h) k = Div(s, third) y = MatMul(k, V)",
        inputs="double[N,3] x",
        outputs="double[N,2] y",
        W=rows,
        third=np.array(0.3),
        V=rng.normal(size=(6, 2)),
    )
    report = onnxfde.optimize(model, eps=0).report
    assert report.layers[0].neurons_after == 3
