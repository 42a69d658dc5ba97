"""A smaller convolutional network as a file: in 8 bits, in onnxruntime's format, twice the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import onnxfde
from onnxfde.options import Int8
from tests.conv_models import images, normal, residual
from tests.models import outputs_of

X = images(300)
HALF: Any = {"max_macs": 0.5, "data": X, "quotient": "refit", "align": 4}


@pytest.mark.parametrize("mode", ["dynamic", "static"])
def test_in_8_bits(mode: Int8) -> None:
    report = onnxfde.optimize(residual(), int8=mode, **HALF).report
    assert report.int8 is not None
    assert report.int8.merged is not None
    assert report.verification is not None
    assert report.int8.weights == 5
    assert report.int8.bytes.after < report.int8.bytes.before < report.bytes.before
    merged, small = report.int8.merged.relative_l2, report.verification.relative_l2
    assert merged is not None
    assert small is not None
    assert small <= merged + 0.1


def test_in_the_format_of_onnxruntime(tmp_path: Path) -> None:
    import onnxruntime

    result = onnxfde.optimize(residual(), **HALF)
    report = result.save(tmp_path / "small.ort")
    assert report.output_sha256
    session = onnxruntime.InferenceSession(
        tmp_path / "small.ort", providers=["CPUExecutionProvider"]
    )
    (made,) = session.run(None, {"x": X[:8]})
    (expected,) = outputs_of(result.model, X[:8])
    np.testing.assert_allclose(made, expected, rtol=0, atol=1e-5)


def test_a_certificate_that_was_asked_for() -> None:
    certificate = onnxfde.optimize(residual(), certify=True, **HALF).report.certificate
    assert certificate is not None
    assert certificate.unavailable is None
    (output,) = certificate.outputs
    assert output.measured_max is not None
    assert output.measured_max <= output.bound
    assert not output.useful


def test_the_same_bytes_in_two_runs(tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("one.onnx", "two.onnx")]
    for file in files:
        onnxfde.optimize(residual(), keep=0.5, data=X).save(file)
    assert files[0].read_bytes() == files[1].read_bytes()


def test_what_was_made_with_these_settings_is_copied(tmp_path: Path) -> None:
    onnxfde.optimize(residual(), **HALF).save(tmp_path / "one.onnx")
    again = onnxfde.optimize(tmp_path / "one.onnx", **HALF)
    assert again.report.unchanged
    again.save(tmp_path / "two.onnx")
    assert (tmp_path / "one.onnx").read_bytes() == (tmp_path / "two.onnx").read_bytes()


def test_a_copy_byte_for_byte_if_nothing_merges(tmp_path: Path) -> None:
    model = residual(W=normal(16, 8, 3, 3), L=normal(24, 8, 3, 3))
    onnx.save(model, tmp_path / "in.onnx")
    report = onnxfde.optimize(tmp_path / "in.onnx", 0).save(tmp_path / "out.onnx")
    assert report.unchanged == "no channels merge at this setting"
    assert (tmp_path / "in.onnx").read_bytes() == (tmp_path / "out.onnx").read_bytes()


def test_both_files_are_measured(tmp_path: Path) -> None:
    onnx.save(residual(), tmp_path / "in.onnx")
    onnxfde.optimize(residual(), **HALF).save(tmp_path / "out.onnx")
    found = onnxfde.bench([tmp_path / "in.onnx", tmp_path / "out.onnx"], seconds=0)
    assert [model.error for model in found.models] == [None, None]
    before, after = (model.multiply_adds for model in found.models)
    assert before is not None
    assert after is not None
    assert after <= before / 2
