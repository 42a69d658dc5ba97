"""Models that one runtime, or none, can run."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import helper

import onnxfde
from onnxfde.errors import RuntimeUnavailable, VerificationError
from onnxfde.graph.protos import ModelProto
from onnxfde.graph.reference import reference_runner
from onnxfde.graph.tensors import copy_of
from onnxfde.running.runtime import load
from tests.models import build, mlp, twins
from tests.running.comparing import B, C, V, W, X, compared


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


def test_rows_that_fill_no_batch_are_not_counted() -> None:
    model = build("y = Mul(x, x)", "float[4,3] x", "float[4,3] y")
    rows = np.arange(30, dtype=np.float32).reshape(10, 3)
    assert onnxfde.verify(model, model, data=rows).samples == 8
