"""Running both models, and what is said when that is not possible."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import helper

import onnxfde
from onnxfde.errors import DataError, RuntimeUnavailable, VerificationError
from onnxfde.graph.input_specs import input_specs
from onnxfde.graph.magnitude import magnitude_model
from onnxfde.graph.model import Graph
from onnxfde.graph.protos import ModelProto
from onnxfde.graph.reference import reference_runner
from onnxfde.graph.tensors import copy_of
from onnxfde.running import side_by_side
from onnxfde.running.runtime import load
from onnxfde.running.samples import make_samples
from onnxfde.running.side_by_side import SideBySide
from onnxfde.running.verification import Verification, require_equal
from tests.models import build, mlp, outputs_of, twins

W, B, V, C = twins()
X = np.random.default_rng(1).uniform(-1, 1, (50, 3)).astype(np.float32)


def compared(a: ModelProto, b: ModelProto, **data: Any) -> Verification:
    samples = make_samples(data, input_specs(Graph(a)), "test data")
    return SideBySide(Graph(a), samples).compare(Graph(b)).verification


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


def test_a_model_without_floating_point_outputs_is_only_run() -> None:
    model = build("y = ArgMax(x)", outputs="int64[N,K] y")
    assert compared(model, model, x=X).max_abs_error is None


def test_outputs_of_different_lengths_are_compared_as_a_whole() -> None:
    model = build(
        "y = Identity(x) z = ReduceSum <keepdims = 0> (x)", outputs="float[N,3] y, float z"
    )
    assert compared(model, model, x=X).max_abs_error == 0.0


def test_outputs_of_different_shapes_are_an_error() -> None:
    other = mlp(W, B, np.vstack([V, V]), np.tile(C, 2))
    with pytest.raises(VerificationError, match="different shapes"):
        compared(mlp(W, B, V, C), other, x=X)


def test_a_result_that_does_not_run_is_an_error() -> None:
    custom = build("y = Identity(x)", outputs="float[N,3] y")
    custom.graph.node[0].domain = "not.known"
    custom.opset_import.add(domain="not.known", version=1)
    plain = build("y = Identity(x)", outputs="float[N,3] y")
    with pytest.raises(VerificationError, match="does not run although the original does"):
        compared(plain, custom, x=X)


def test_a_result_must_run_where_the_original_did() -> None:
    """Reference kernels take types that onnxruntime's do not."""
    plain = build("y = Identity(x)", outputs="float[N,3] y")
    odd = build(
        "k = Cast <to = 11> (x) q, s, z = DynamicQuantizeLinear(k) y = Cast <to = 1> (s)",
        outputs="float[N,3] y",
    )
    assert load(odd, None).engine == "onnx.reference"
    with pytest.raises(VerificationError, match="although the original does: onnxruntime: "):
        compared(plain, odd, x=X)


def test_a_result_that_fails_when_run_is_an_error() -> None:
    plain = build("y = Identity(x)", outputs="float[N,3] y")
    odd = build(
        "s = Constant <value = int64[2] {7, 3}> () y = Reshape(x, s)", outputs="float[N,3] y"
    )
    with pytest.raises(VerificationError, match="although the original does: onnxruntime: "):
        compared(plain, odd, x=X)


def custom_layer() -> ModelProto:
    """A layer behind an operator that no runtime here knows."""
    model = mlp(W, B, V, C)
    model.graph.node.insert(0, helper.make_node("Own", ["x0"], ["x"], "own", domain="not.known"))
    model.graph.input[0].name = "x0"
    model.opset_import.add(domain="not.known", version=1)
    return model


def test_a_model_that_cannot_be_run_is_optimized_but_said_to_be_unverified() -> None:
    result = onnxfde.optimize(custom_layer(), eps=0)
    assert result.report.layers[0].neurons_after == 3
    assert "N(0, I) is assumed" in (result.report.layers[0].remark or "")
    found = result.report.verification
    assert found is not None
    assert "not.known" in (found.unverified or "")


def test_bfloat16_falls_back_to_the_reference_implementation() -> None:
    w, _, v, _ = (a.astype(ml_dtypes.bfloat16) for a in twins(inputs=7))
    model = build(
        "h = MatMul(x, W) s = Mul(h, h) y = MatMul(s, V)",
        inputs="bfloat16[N,7] x",
        outputs="bfloat16[N,2] y",
        W=w.T,
        V=v.T,
    )
    found = onnxfde.optimize(model, eps=0).report.verification
    assert found is not None
    assert found.unverified is None
    assert found.engine == "onnx.reference"
    assert found.relative_l2 is not None
    assert found.relative_l2 < 0.1


def test_an_input_that_is_no_tensor_leaves_the_result_unverified() -> None:
    model = mlp(W, B, V, C)
    sequence = build("z = SequenceLength(q)", inputs="seq(float[3]) q", outputs="int64 z")
    model.graph.input.extend(sequence.graph.input)
    model.graph.node.extend(sequence.graph.node)
    found = onnxfde.optimize(model, eps=0).report.verification
    assert found is not None
    assert found.unverified == "input 'q' is not a tensor"


def test_the_reference_says_what_it_cannot_run() -> None:
    model = build("y = Identity(x)", inputs="bfloat16[N,3] x", outputs="bfloat16[N,3] y")
    run = reference_runner(model, None)
    with pytest.raises(RuntimeUnavailable, match="reference"):
        run({})


def test_verification_can_be_switched_off() -> None:
    found = onnxfde.optimize(mlp(W, B, V, C), eps=0, verify=False).report.verification
    assert found is not None
    assert found.unverified == "verification was switched off"


def test_a_difference_beyond_rounding_at_eps_zero_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wrong = Graph(mlp(W, B, V * np.float32(1.001), C))
    honest = side_by_side.loaded
    monkeypatch.setattr(side_by_side, "loaded", lambda _, engine: honest(wrong, engine))
    with pytest.raises(VerificationError, match="more than rounding explains; nothing was written"):
        onnxfde.optimize(mlp(W, B, V, C), eps=0)


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


def test_models_with_different_inputs_are_not_compared() -> None:
    other = build("y = Identity(z)", inputs="float[N,3] z", outputs="float[N,3] y")
    with pytest.raises(
        DataError, match=r"different inputs: x \(float32 N×3\) and z \(float32 N×3\)"
    ):
        onnxfde.verify(mlp(W, B, V, C), other)


def test_external_weights_are_found_by_the_reference(tmp_path: Path) -> None:
    w, v = (a.astype(ml_dtypes.bfloat16) for a in (W, V))
    model = build(
        "h = MatMul(x, W) s = Mul(h, h) y = MatMul(s, V)",
        inputs="bfloat16[N,3] x",
        outputs="bfloat16[N,2] y",
        W=w.T,
        V=v.T,
    )
    onnx.save(
        copy_of(model),
        tmp_path / "m.onnx",
        save_as_external_data=True,
        location="w",
        size_threshold=0,
    )
    assert onnxfde.verify(tmp_path / "m.onnx", model).max_abs_error == 0.0


def left(w: Any, v: Any, columns: str) -> ModelProto:
    """Features on the first axis."""
    return build(
        "h = MatMul(W, x) s = Mul(h, h) y = MatMul(V, s)",
        inputs=f"float[3,{columns}] x",
        outputs=f"float[3,{columns}] y",
        W=w,
        V=v,
    )


def test_the_error_of_a_model_with_features_first_is_that_of_its_layer() -> None:
    rng = np.random.default_rng(0)
    w = rng.normal(size=(8, 3)).astype(np.float32)
    v = rng.normal(size=(3, 8)).astype(np.float32)
    report = onnxfde.optimize(left(w, v, "N"), neurons=3).report
    assert report.verification is not None
    assert report.verification.relative_l2 == pytest.approx(report.layers[0].error, rel=0.2)


def test_one_run_of_many_columns_is_measured_too() -> None:
    rng = np.random.default_rng(0)
    w, v = (rng.normal(size=s).astype(np.float32) for s in ((8, 3), (3, 8)))
    data = {"x": rng.uniform(-1, 1, (3, 500)).astype(np.float32)}
    report = onnxfde.optimize(left(w, v, "N"), neurons=3, data=data).report
    assert report.verification is not None
    assert report.verification.relative_l2 == pytest.approx(report.layers[0].error, rel=0.5)


def test_features_first_layers_are_measured_along_the_right_axis() -> None:
    rng = np.random.default_rng(0)
    w, v = (rng.normal(size=s).astype(np.float32) for s in ((8, 3), (3, 8)))
    x = rng.uniform(-1, 1, (3, 400)) * np.array([[5.0], [1.0], [0.05]])
    report = onnxfde.optimize(left(w, v, "N"), neurons=2, data={"x": x}).report
    assert report.verification is not None
    assert (report.verification.relative_l2 or 1) < 0.02
    assert report.layers[0].error == pytest.approx(report.layers[0].measured_error, rel=0.35)


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
    assert 0 <= (report.verification.max_abs_error or 0) < 1e-2
    assert "NaN" not in report.to_json()
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


def test_weights_that_a_caller_may_override_later_on_do_not_matter_for_measuring() -> None:
    model = build(
        "g = Tanh(x) h = Gemm <transB = 1> (g, W, b) s = Mul(h, h) "
        "d = Gemm <transB = 1> (s, V, c) y = Add(d, late)",
        inputs="float[N,3] x, float[2] late",
        W=W,
        b=B,
        V=V,
        c=C,
        late=np.zeros(2, np.float32),
    )
    report = onnxfde.optimize(model, eps=0).report
    assert report.layers[0].remark is None
    assert report.layers[0].neurons_after == 3


def test_models_that_name_their_batch_differently_can_be_compared() -> None:
    model, other = mlp(W, B, V, C), mlp(W, B, V, C, batch="M")
    assert onnxfde.verify(model, other).max_abs_error == 0.0


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_eps_holds_in_half_precision_although_rounding_is_coarse(dtype: str) -> None:
    rng = np.random.default_rng(0)
    kind = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16}[dtype]
    shapes: dict[str, Any] = {"W": (64, 32), "b": (64,), "V": (5, 64), "c": (5,)}
    weights = {k: (rng.normal(size=s) / np.sqrt(s[-1])).astype(kind) for k, s in shapes.items()}
    model = build(
        "h = Gemm <transB = 1> (x, W, b) s = Mul(h, h) y = Gemm <transB = 1> (s, V, c)",
        inputs=f"{dtype}[N,32] x",
        outputs=f"{dtype}[N,5] y",
        **weights,
    )
    report = onnxfde.optimize(model, eps=0.1, verify=False).report
    assert report.layers[0].error <= 0.1
    assert report.layers[0].neurons_after > 40
    assert onnxfde.optimize(model, eps=0, verify=False).report.parameters.after > 0.9 * (
        64 * 38 + 5
    )


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
