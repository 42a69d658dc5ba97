"""What is refused, and what the quantizer of onnxruntime must not leave behind."""

from __future__ import annotations

import logging
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import onnxfde
from onnxfde.errors import ModelError, UsageError
from onnxfde.graph.input_specs import input_specs
from onnxfde.graph.model import Graph
from onnxfde.options import Int8
from onnxfde.running.int8 import CALIBRATION_ROWS, quantize
from onnxfde.running.samples import make_samples
from tests.models import build, mlp
from tests.running.int8_models import BIG, MODES, ROWS, weights


def test_calibration_takes_some_hundred_rows_and_whole_batches() -> None:
    model = mlp(*BIG, batch="4")
    samples = make_samples(
        {"x": np.repeat(ROWS["x"], 10, axis=0)}, input_specs(Graph(model)), "test"
    )
    seen = [len(feeds["x"]) for feeds in samples.some(CALIBRATION_ROWS).feeds()]
    assert set(seen) == {4}
    assert 100 <= sum(seen) <= CALIBRATION_ROWS
    assert quantize(Graph(model), "static", samples).graph.input[0].name == "x"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"int8": "static"}, "measures ranges on real inputs: give --data"),
        ({"int8": "dynamic", "certify": True}, "--certify cannot hold for --int8"),
        ({"int8": "dynamic", "max_certified_error": 1.0}, "--max-certified-error cannot hold"),
        ({"int8": "4bit"}, "--int8 '4bit' is not one of dynamic, static"),
    ],
)
def test_options_that_make_no_sense(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        onnxfde.optimize(mlp(*BIG), **options)


def test_a_certificate_may_be_declined() -> None:
    assert onnxfde.optimize(mlp(*BIG), 0, int8="dynamic", certify=False).report.int8


@pytest.mark.parametrize("kind", ["float16", "double"])
def test_other_types_are_refused(kind: str) -> None:
    dtype = np.float16 if kind == "float16" else np.float64
    model = build(
        "y = MatMul(x, W)",
        inputs=f"{kind}[N,3] x",
        outputs=f"{kind}[N,2] y",
        W=weights(3, 2, dtype=dtype),
    )
    with pytest.raises(ModelError, match=f"convert the model, which has {np.dtype(dtype).name}"):
        onnxfde.optimize(model, int8="dynamic")


def test_a_model_without_weights_is_refused() -> None:
    model = build("y = Relu(x)", outputs="float[N,3] y")
    with pytest.raises(ModelError, match="--int8 finds nothing to do: no Conv, Gemm or MatMul"):
        onnxfde.optimize(model, int8="dynamic")


def test_a_weight_that_is_an_input_is_refused() -> None:
    model = build("y = MatMul(x, W)", inputs="float[N,3] x, float[3,2] W", W=weights(3, 2))
    with pytest.raises(ModelError, match="'W' is an input of the model as well, remove it"):
        onnxfde.optimize(model, int8="dynamic")


def test_what_the_quantizer_cannot_do_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: object, **options: object) -> None:
        raise ValueError("first line\nsecond line")

    monkeypatch.setattr("onnxruntime.quantization.quantize_dynamic", broken)
    with pytest.raises(ModelError, match=r"^onnxruntime cannot quantize the model: first line$"):
        onnxfde.optimize(mlp(*BIG), 0, int8="dynamic")


@pytest.mark.parametrize("mode", MODES)
def test_nothing_is_printed_or_left_behind(
    mode: Int8,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    root = logging.getLogger()
    before = (list(root.handlers), list(root.filters), root.level)
    onnxfde.optimize(mlp(*BIG), 0, data=ROWS, int8=mode)
    assert capfd.readouterr() == ("", "")
    assert (root.handlers, root.filters, root.level) == before
    assert not list(tmp_path.iterdir())


def test_an_interruption_leaves_nothing_behind(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def interrupted(model: object, target: Path, **options: object) -> None:
        target.write_bytes(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr("onnxruntime.quantization.quantize_dynamic", interrupted)
    with pytest.raises(KeyboardInterrupt):
        onnxfde.optimize(mlp(*BIG), 0, int8="dynamic")
    assert not list(tmp_path.iterdir())


def test_logging_of_others_is_heard(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def talking(*args: object, **options: object) -> None:
        logging.getLogger().warning("not from onnxruntime")
        raise ValueError("stop")

    monkeypatch.setattr("onnxruntime.quantization.quantize_dynamic", talking)
    with pytest.raises(ModelError):
        onnxfde.optimize(mlp(*BIG), 0, int8="dynamic")
    assert caplog.messages == ["not from onnxruntime"]


def test_onnxruntime_writes_nothing_to_stderr_itself(capfd: pytest.CaptureFixture[str]) -> None:
    model = mlp(*BIG)
    model.graph.output[0].type.tensor_type.shape.dim.add(dim_value=1000)
    assert onnxfde.optimize(model, int8="static", data=ROWS).report.int8
    assert capfd.readouterr().err == ""
