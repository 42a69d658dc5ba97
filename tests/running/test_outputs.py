"""Outputs of every kind are compared; where nothing was compared, nothing is verified."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.numpy_helper
import pytest

import onnxfde
from onnxfde.errors import VerificationError
from onnxfde.graph.protos import ModelProto
from onnxfde.running.label_scores import scaled
from onnxfde.running.outputs import is_floating, output_array
from onnxfde.running.verification import require_equal
from tests.command.running import run
from tests.models import build, mlp
from tests.running.comparing import B, C, V, W, X, compared

LAYER = "h = Gemm <transB = 1> (x, W, b) s = Mul(h, h) d = Gemm <transB = 1> (s, V, c) "


def layer_and(body: str, outputs: str, **changed: Any) -> ModelProto:
    """A layer with twins, and what is made of its result `d`."""
    return build(LAYER + body, outputs=outputs, **({"W": W, "b": B, "V": V, "c": C} | changed))


def verified(tmp_path: Path, a: ModelProto, b: ModelProto, *more: str) -> tuple[int, str, Any]:
    """The exit code, what is shown, and the report of `onnxfde verify`."""
    onnx.save(a, tmp_path / "a.onnx")
    onnx.save(b, tmp_path / "b.onnx")
    report = tmp_path / "r.json"
    done = run("verify", tmp_path / "a.onnx", tmp_path / "b.onnx", "--json", report, *more)
    assert done.exception is None or isinstance(done.exception, SystemExit)
    return done.exit_code, " ".join(done.output.split()), json.loads(report.read_text())


@pytest.mark.parametrize("more", [(), ("--tolerance", "0.5")])
def test_integer_outputs_must_be_equal(tmp_path: Path, more: tuple[str, ...]) -> None:
    first = layer_and("y = ArgMax <axis = 1> (d)", "int64[N,1] y")
    second = layer_and("e = Neg(d) y = ArgMax <axis = 1> (e)", "int64[N,1] y")
    code, text, found = verified(tmp_path, first, first, *more)
    assert (code, found["differing_share"], found["unverified"]) == (0, 0.0, None)
    assert "none of the integers, booleans and texts differ (1,024 samples" in text
    code, text, found = verified(tmp_path, first, second, *more)
    assert (code, found["differing_share"], found["max_abs_error"]) == (1, 1.0, None)
    assert "100.00% of the integers, booleans and texts differ" in text
    assert "output 'y': 100.00% of its entries differ" in text


def test_the_share_of_integers_that_differ_is_reported_beside_an_error() -> None:
    outputs = "float[N,2] d, int64[N,1] y, bool[N,2] z"
    more = "y = ArgMax <axis = 1> (d) k = Constant <value = float {0.0}> () z = Greater(d, k)"
    first, second = layer_and(more, outputs), layer_and(more, outputs, c=C + np.float32(0.3))
    found = compared(first, second, x=X)
    assert found.max_abs_error == pytest.approx(0.3, rel=1e-5)
    assert found.differing_share is not None
    assert 0 < found.differing_share < 0.5
    assert found.beyond(0.5) is None
    assert found.beyond(None) == "output 'z': 6.00% of its entries differ"


def test_optimize_reports_integers_that_differ_and_allows_none_at_eps_0() -> None:
    model = layer_and("y = ArgMax <axis = 1> (d)", "int64[N,1] y")
    found = onnxfde.optimize(model, eps=0).report.verification
    assert found is not None
    assert (found.differing_share, found.unverified) == (0.0, None)
    found = onnxfde.optimize(model, neurons=1).report.verification
    assert found is not None
    assert found.differing_share is not None
    assert 0 < found.differing_share < 1
    with pytest.raises(VerificationError, match=r"differs from the original in 50.00%"):
        require_equal([np.array([1, 2])], [np.array([1, 3])], None, 2.0**-24)


def test_texts_are_compared(tmp_path: Path) -> None:
    texts = onnx.numpy_helper.from_array(np.array(["cat", "dog"], object), "texts")
    models = []
    for order in ("0, 1", "1, 0"):
        body = f"k = Constant <value = int64[2] {{{order}}}> () y = Gather(texts, k)"
        model = build(body, outputs="string[2] y")
        model.graph.initializer.append(texts)
        models.append(model)
    assert verified(tmp_path, models[0], models[0])[0] == 0
    code, _, found = verified(tmp_path, models[0], models[1])
    assert (code, found["differing_share"]) == (1, 1.0)


def test_sequences_are_compared_element_by_element() -> None:
    first = layer_and("y = SequenceConstruct(d, s)", "seq(float[N,K]) y")
    second = layer_and("y = SequenceConstruct(d, s)", "seq(float[N,K]) y", c=C + np.float32(0.5))
    assert compared(first, first, x=X).max_abs_error == 0.0
    assert compared(first, second, x=X).max_abs_error == pytest.approx(0.5, rel=1e-5)


def test_an_output_of_any_structure_becomes_an_array() -> None:
    assert output_array(None).shape == (0,)
    assert output_array([]).shape == (0,)
    ragged = output_array([np.ones((2, 2)), np.zeros(3)])
    assert ragged.tolist() == [1, 1, 1, 1, 0, 0, 0]
    maps = output_array([{"b": 0.25, "a": 0.75}, {"a": 0.5, "b": 0.5}])
    assert maps.tolist() == [[0.75, 0.25], [0.5, 0.5]]
    assert output_array([[np.ones(2)], [np.ones(2)]]).shape == (2, 1, 2)


def test_half_precision_of_any_kind_is_floating() -> None:
    import ml_dtypes

    kinds = (np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn)
    assert all(is_floating(np.zeros(1, kind)) for kind in kinds)
    assert not any(is_floating(np.zeros(1, kind)) for kind in (np.int8, np.bool_, object))


def test_outputs_of_different_kinds_are_an_error() -> None:
    first = layer_and("y = Cast <to = 1> (d)", "float[N,2] y")
    second = layer_and("y = Cast <to = 7> (d)", "int64[N,2] y")
    with pytest.raises(VerificationError, match="different types: float32 and int64"):
        compared(first, second, x=X)


def test_outputs_without_values_verify_nothing(tmp_path: Path) -> None:
    body = "k = Constant <value = int64[1] {0}> () y = ConstantOfShape(k)"
    model = build(body, outputs="float[0] y")
    code, text, found = verified(tmp_path, model, model, "--tolerance", "1")
    assert (code, found["unverified"]) == (1, "the outputs hold no values on these inputs")
    assert "NOT VERIFIED" in text


def test_an_axis_below_0_is_open(tmp_path: Path) -> None:
    models = [mlp(W, B, V, C), mlp(W, B, V, C + np.float32(1))]
    for model in models:
        model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = -1
    code, _, found = verified(tmp_path, models[0], models[1], "--tolerance", "0.1")
    assert (code, found["samples"]) == (1, 1024)
    assert found["max_abs_error"] == pytest.approx(1.0, rel=1e-5)


def test_a_model_without_inputs_is_run_once(tmp_path: Path) -> None:
    models = [build("y = Mul(k, k)", "", "float[2] y", k=[k, 1.0]) for k in (2.0, 3.0)]
    assert verified(tmp_path, models[0], models[0], "--tolerance", "0")[0] == 0
    code, _, found = verified(tmp_path, models[0], models[1], "--tolerance", "0")
    assert (code, found["samples"], found["max_abs_error"]) == (1, 1, 5.0)


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("string[N]", "input 'q' holds texts, not numbers"),
        ("complex64[N]", "input 'q' holds complex numbers, not real ones"),
        ("seq(float[N])", "input 'q' is not a tensor"),
        ("optional(float[N])", "input 'q' is not a tensor"),
    ],
)
def test_inputs_that_cannot_be_made_are_named(kind: str, reason: str) -> None:
    model = layer_and("", "float[N,2] d")
    model.graph.input.extend(build("y = Identity(q)", f"{kind} q", "float y").graph.input)
    found = onnxfde.optimize(model, eps=0).report.verification
    assert found is not None
    assert found.unverified == reason


@pytest.mark.parametrize("kind", ["float8e4m3fn[N,3]", "int4[N,3]", "uint4[N,3]", "float16[N,3]"])
def test_inputs_of_a_few_bits_are_run_or_refused(kind: str) -> None:
    model = build("y = Identity(x)", f"{kind} x", f"{kind} y", opset=21, ir=10)
    found = onnxfde.verify(model, model)
    assert (found.unverified is None) == (found.beyond(None) is None)
    assert found.unverified or 0.0 in (found.max_abs_error, found.differing_share)


@pytest.mark.parametrize("size", [1e-300, 1e38, 1e160, 1e300])
def test_the_error_of_values_of_any_size_is_the_same(size: float) -> None:
    def model(scale: float) -> ModelProto:
        return build("y = Mul(x, k)", "double[N,3] x", "double[N,3] y", k=np.float64(scale))

    found = onnxfde.verify(model(size), model(1.5 * size))
    plain = onnxfde.verify(model(1.0), model(1.5))
    assert found.relative_l2 == pytest.approx(plain.relative_l2, rel=1e-12)
    assert found.max_abs_error == pytest.approx(size * (plain.max_abs_error or 0), rel=1e-12)


def test_an_error_beyond_all_numbers_is_infinite() -> None:
    models = [
        build("y = Mul(x, k)", "double[N,3] x", "double[N,3] y", k=np.float64(k))
        for k in (1e308, -1.7e308)
    ]
    found = onnxfde.verify(*models, input_range=(0.5, 1))
    assert found.max_abs_error == found.mse == np.inf
    assert found.relative_l2 is not None
    assert np.isfinite(found.relative_l2)


def test_dividing_by_a_power_of_two_changes_no_digit() -> None:
    values = np.random.default_rng(0).normal(size=(5, 3)) * 1e9
    old, new, scale = scaled(values, values[::-1])
    np.testing.assert_array_equal(old * scale, values)
    np.testing.assert_array_equal(new * scale, values[::-1])
    assert 1 <= np.abs(old).max() < 2


def test_values_that_are_not_finite_in_the_original_are_said_to_be_left_out(
    tmp_path: Path,
) -> None:
    model = mlp(W, B, V, C)
    broken = onnx.numpy_helper.from_array(np.array([np.nan, 1], np.float32), "c")
    model.graph.initializer[3].CopyFrom(broken)
    onnx.save(model, tmp_path / "m.onnx")
    done = run("verify", tmp_path / "m.onnx", tmp_path / "m.onnx")
    assert (done.exit_code, "50.00% of the original's values" in done.stdout) == (0, True)


@pytest.mark.parametrize(("names", "code"), [(["y"], 0), (["z"], 1), ([], 1)])
def test_outputs_must_have_the_same_names(names: list[str], code: int, tmp_path: Path) -> None:
    model = mlp(W, B, V, C)
    onnx.save(model, tmp_path / "a.onnx")
    model.graph.node[-1].output[0] = "".join(names) or "y"
    model.graph.output[0].name = "".join(names)
    if not names:
        del model.graph.output[:]
    onnx.save(model, tmp_path / "b.onnx")
    done = run("verify", tmp_path / "a.onnx", tmp_path / "b.onnx")
    assert done.exit_code == code
    assert ("different outputs: y and" in done.stderr) == bool(code)
    if not names:
        done = run("verify", tmp_path / "b.onnx", tmp_path / "b.onnx")
        assert (done.exit_code, "the model has no outputs" in done.stdout) == (1, True)
