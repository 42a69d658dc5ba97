"""How far apart two models are, and results that are errors."""

from __future__ import annotations

import numpy as np
import pytest

import onnxfde
from onnxfde.errors import DataError, VerificationError
from onnxfde.running.outputs import Output
from onnxfde.running.samples import Samples
from onnxfde.running.verification import measure
from tests.models import build, mlp, outputs_of
from tests.running.comparing import B, C, V, W, X, compared


def test_errors_are_those_of_the_outputs() -> None:
    other = mlp(W, B, V, C + np.float32(0.5))
    before, after = outputs_of(mlp(W, B, V, C), X)[0], outputs_of(other, X)[0]
    found = compared(mlp(W, B, V, C), other, x=X)
    assert found.max_abs_error == pytest.approx(np.abs(after - before).max(), rel=1e-6)
    assert found.mean_abs_error == pytest.approx(0.5, rel=1e-6)
    assert found.mse == pytest.approx(0.25, rel=1e-6)
    spread = np.linalg.norm(before - before.mean(axis=0))
    assert found.relative_l2 == pytest.approx(np.linalg.norm(after - before) / spread, rel=1e-6)
    assert (found.samples, found.engine, found.source) == (50, "onnxruntime", "test data")


def test_a_fixed_batch_of_one_gives_the_same_figures() -> None:
    other = mlp(W, B, V * np.float32(1.1), C)
    dynamic = compared(mlp(W, B, V, C), other, x=X)
    fixed = compared(mlp(W, B, V, C, batch="1"), mlp(W, B, V * np.float32(1.1), C, batch="1"), x=X)
    assert fixed.relative_l2 == pytest.approx(dynamic.relative_l2, rel=1e-4)
    assert fixed.samples == 50


def test_integer_labels_give_accuracy_and_others_mse() -> None:
    model, other = mlp(W, B, V, C), mlp(W, B, -V, -C)
    scores = outputs_of(model, X)[0]
    found = compared(model, other, x=X, y=scores.argmax(axis=1))
    assert (found.metric, found.metric_before, found.metric_after) == ("accuracy", 1.0, 0.0)
    found = compared(model, model, x=X, y=scores + 1)
    assert found.metric == "MSE"
    assert found.metric_before == pytest.approx(1.0, rel=1e-5)
    assert compared(model, model, x=X, y=np.zeros((50, 7))).metric is None


def test_a_constant_output_has_no_relative_error() -> None:
    zero = np.zeros_like(V)
    assert compared(mlp(W, B, zero, C), mlp(W, B, zero, C + 1), x=X).relative_l2 is None


def test_a_model_without_floating_point_outputs_is_compared_for_equality() -> None:
    model = build("y = ArgMax(x)", outputs="int64[N,K] y")
    assert compared(model, model, x=X).max_abs_error is None


def test_outputs_of_different_lengths_are_compared_as_a_whole() -> None:
    model = build(
        "y = Identity(x) z = ReduceSum <keepdims = 0> (x)", outputs="float[N,3] y, float z"
    )
    assert compared(model, model, x=X).max_abs_error == 0.0


def test_each_output_varies_around_its_own_mean_if_their_lengths_differ() -> None:
    """A large constant beside rows that vary says nothing about how much they vary."""
    rng = np.random.default_rng(0)
    rows, fixed = rng.normal(size=(50, 3)), np.full((1, 4), 100.0)
    before, after = [Output(rows), Output(fixed)], [Output(rows + 0.5), Output(fixed)]
    found = measure(["a", "b"], before, after, Samples((), {}, ""), "").verification
    spread = np.linalg.norm(rows - rows.mean(axis=0))
    assert found.relative_l2 == pytest.approx(0.5 * np.sqrt(rows.size) / spread, rel=1e-12)


def test_outputs_of_different_shapes_are_an_error() -> None:
    other = mlp(W, B, np.vstack([V, V]), np.tile(C, 2))
    with pytest.raises(VerificationError, match="different shapes"):
        compared(mlp(W, B, V, C), other, x=X)


def test_models_with_different_inputs_are_not_compared() -> None:
    other = build("y = Identity(z)", inputs="float[N,3] z", outputs="float[N,3] y")
    with pytest.raises(
        DataError, match=r"different inputs: x \(float32 N×3\) and z \(float32 N×3\)"
    ):
        onnxfde.verify(mlp(W, B, V, C), other)


def test_values_that_are_no_numbers_in_the_original_are_left_out() -> None:
    model = build(
        "h = Gemm <transB = 1> (x, W, b) s = Mul(h, h) d = Gemm <transB = 1> (s, V, c) y = Log(d)",
        W=W,
        b=B,
        V=V,
        c=C,
    )
    report = onnxfde.optimize(model, eps=0).report
    assert report.verification is not None
    assert report.verification.max_abs_error is not None
    assert report.verification.max_abs_error < 1e-2
    nothing = onnxfde.verify(
        build("y = Log(x)", outputs="float[N,3] y"),
        build("y = Log(x)", outputs="float[N,3] y"),
        input_range=(-2, -1),
    )
    assert nothing.unverified == "the original's outputs are not finite on these inputs"


def test_a_result_that_is_no_number_where_the_original_is_one_is_an_error() -> None:
    plain = build("y = Identity(x)", outputs="float[N,3] y")
    log = build("y = Log(x)", outputs="float[N,3] y")
    with pytest.raises(VerificationError, match="NaN or infinity"):
        compared(plain, log, x=X)


def test_models_that_name_their_batch_differently_can_be_compared() -> None:
    model, other = mlp(W, B, V, C), mlp(W, B, V, C, batch="M")
    assert onnxfde.verify(model, other).max_abs_error == 0.0


def test_a_fixed_batch_as_long_as_our_own_batches_is_run() -> None:
    data = {"x": np.random.default_rng(0).uniform(-1, 1, (1500, 3))}
    report = onnxfde.optimize(mlp(W, B, V, C, batch="1024"), eps=0, data=data).report
    assert report.verification is not None
    assert report.verification.unverified is None


def test_a_scalar_input_may_come_first() -> None:
    model = build(
        "z = Mul(x, k) h = Gemm <transB = 1> (z, W, b) s = Mul(h, h) "
        "y = Gemm <transB = 1> (s, V, c)",
        inputs="float k, float[N,3] x",
        W=W,
        b=B,
        V=V,
        c=C,
    )
    found = onnxfde.optimize(model, eps=0).report.verification
    assert found is not None
    assert found.unverified is None


def test_labels_of_rows_that_fill_no_batch_are_left_out() -> None:
    model = mlp(W, B, V, C, batch="4")
    x = np.random.default_rng(0).uniform(-1, 1, (150, 3)).astype(np.float32)
    found = compared(model, model, x=x, y=np.zeros((150, 2), np.float32))
    assert (found.metric, found.samples) == ("MSE", 148)
