"""Results in onnxruntime's own format: one file that computes the same, or none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx.external_data_helper import convert_model_to_external_data
from typer.testing import CliRunner, Result

import onnxfde
from onnxfde.command.main import app
from onnxfde.demo import demo_data, demo_model
from onnxfde.errors import ModelError, RuntimeUnavailable, VerificationError
from onnxfde.graph import files
from onnxfde.running.ort_format import same_outputs
from tests.models import OLD_MODEL, Array, build, mlp, outputs_of, twins

WEIGHTS = twins(distinct=6, copies=2, inputs=8, outputs=4)
X = np.random.default_rng(0).uniform(-1, 1, (50, 8)).astype(np.float32)


def cli(*args: str | Path) -> Result:
    return CliRunner().invoke(app, [str(a) for a in args])


def run(path: Path, x: Array) -> Array:
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, {session.get_inputs()[0].name: x})[0])


def test_the_file_computes_what_the_model_does(tmp_path: Path) -> None:
    result = onnxfde.optimize(mlp(*WEIGHTS), 0)
    report = result.save(tmp_path / "o.ort")
    raw = (tmp_path / "o.ort").read_bytes()
    assert raw[4:8] == b"ORTM"
    assert report.bytes.after == len(raw)
    assert report.output_sha256 == files.sha256(tmp_path / "o.ort")
    (wanted,) = outputs_of(result.model, X)
    np.testing.assert_allclose(run(tmp_path / "o.ort", X), wanted, rtol=1e-6, atol=1e-6)
    assert [p.name for p in tmp_path.iterdir()] == ["o.ort"]


def test_nothing_that_only_one_processor_runs_is_stored(tmp_path: Path) -> None:
    model = build(
        "a = Conv (x, W) r = Relu(a) f = Flatten(r) y = Gemm (f, V)",
        inputs="float[N,3,8,8] x",
        W=np.ones((16, 3, 3, 3), np.float32),
        V=np.ones((576, 2), np.float32),
    )
    onnxfde.optimize(model).save(tmp_path / "o.ort")
    assert b"ReorderOutput" not in (tmp_path / "o.ort").read_bytes()
    x = np.random.default_rng(0).uniform(-1, 1, (3, 3, 8, 8)).astype(np.float32)
    np.testing.assert_allclose(
        run(tmp_path / "o.ort", x), outputs_of(model, x)[0], rtol=1e-4, atol=1e-3
    )


def test_external_weights_come_along(tmp_path: Path) -> None:
    model = mlp(*WEIGHTS)
    wanted = outputs_of(model, X)[0]
    convert_model_to_external_data(model, location="weights.bin", size_threshold=0)
    onnx.save(model, tmp_path / "in.onnx")
    for number, options in enumerate(({}, {"skip": ("*",)})):
        result = onnxfde.optimize(tmp_path / "in.onnx", 0, **options)  # type: ignore[arg-type]
        result.save(tmp_path / f"{number}.ort")
    for name in ("weights.bin", "in.onnx"):
        (tmp_path / name).unlink()
    for number in range(2):
        found = run(tmp_path / f"{number}.ort", X)
        np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-4 * np.abs(wanted).max())


@pytest.mark.parametrize("mode", ["dynamic", "static"])
def test_8_bits_are_kept(mode: Any, tmp_path: Path) -> None:
    result = onnxfde.optimize(mlp(*WEIGHTS), 0, data={"x": X}, int8=mode)
    result.save(tmp_path / "o.ort")
    found, wanted = run(tmp_path / "o.ort", X), outputs_of(result.model, X)[0]
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-6 * np.abs(wanted).max())


def test_an_unchanged_model_is_converted_and_says_so(tmp_path: Path) -> None:
    out = tmp_path / "o.ort"
    done = cli("optimize", demo_model(), out, "--skip", "*", "--data", demo_data())
    assert done.exit_code == 0
    assert f"{out} is the input, converted to onnxruntime's format." in done.stdout
    assert out.read_bytes()[4:8] == b"ORTM"
    assert not cli("optimize", demo_model(), tmp_path / "d.ort", "--dry-run").exit_code
    assert not (tmp_path / "d.ort").exists()


def test_a_file_in_that_format_is_no_input(tmp_path: Path) -> None:
    onnxfde.optimize(mlp(*WEIGHTS), 0).save(tmp_path / "o.ort")
    with pytest.raises(ModelError, match=r"o\.ort is in onnxruntime's own format; give the \.onnx"):
        onnxfde.optimize(tmp_path / "o.ort")
    done = cli("verify", demo_model(), tmp_path / "o.ort")
    assert (done.exit_code, done.stderr.count("\n")) == (1, 1)


def test_a_file_that_computes_something_else_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "o.ort"
    out.write_bytes(OLD_MODEL)
    monkeypatch.setattr("onnxfde.running.ort_format.same_outputs", lambda old, new: False)
    with pytest.raises(VerificationError, match=r"o\.ort does not compute what the model does"):
        onnxfde.optimize(mlp(*WEIGHTS), 0).save(out)
    assert out.read_bytes() == OLD_MODEL
    assert [p.name for p in tmp_path.iterdir()] == ["o.ort"]
    onnxfde.optimize(mlp(*WEIGHTS), 0, verify=False).save(out)
    assert out.read_bytes() != OLD_MODEL


def test_a_model_that_onnxruntime_cannot_load_cannot_be_converted(tmp_path: Path) -> None:
    model = build("y = test.Unknown (x)", outputs="float[N,3] y")
    model.opset_import.add(domain="test", version=1)
    with pytest.raises(RuntimeUnavailable, match=r"o\.ort: write an \.onnx file instead \(onnxr"):
        onnxfde.optimize(model).save(tmp_path / "o.ort")
    assert not list(tmp_path.iterdir())


def test_what_counts_as_the_same() -> None:
    assert same_outputs(np.array([1.0, np.nan]), np.array([1.0 + 1e-9, np.nan]))
    assert not same_outputs(np.array([1.0, 2.0]), np.array([1.0, 2.1]))
    assert same_outputs(np.array([1, 2]), np.array([1, 2]))
    assert not same_outputs(np.array(["a"]), np.array(["b"]))


def test_verify_takes_the_file_that_is_shipped(tmp_path: Path) -> None:
    onnx.save(mlp(*twins()), tmp_path / "a.onnx")
    onnxfde.optimize(tmp_path / "a.onnx", eps=0.0).save(tmp_path / "a.ort")
    found = onnxfde.verify(tmp_path / "a.onnx", tmp_path / "a.ort")
    assert found.relative_l2 is not None
    assert found.relative_l2 < 1e-6
    with pytest.raises(ModelError, match=r"no/a\.ort: no such file"):
        onnxfde.verify(tmp_path / "a.onnx", tmp_path / "no" / "a.ort")


def test_outputs_that_python_cannot_read_are_one_line(tmp_path: Path) -> None:
    model = build("y = Cast <to = 16> (x)", outputs="bfloat16[N,3] y")
    onnx.save(model, tmp_path / "a.onnx")
    done = cli("optimize", tmp_path / "a.onnx", tmp_path / "a.ort")
    assert (done.exit_code, done.stderr.count("\n")) == (1, 1)
    assert "a.ort: write an .onnx file instead (onnxruntime: No corresponding" in done.stderr
    assert not cli("optimize", tmp_path / "a.onnx", tmp_path / "a.ort", "--no-verify").exit_code


def test_a_larger_file_is_remarked_once(tmp_path: Path) -> None:
    onnx.save(mlp(*twins()), tmp_path / "a.onnx")
    for options in (["--eps", "0"], ["--skip", "*"]):
        done = cli("optimize", tmp_path / "a.onnx", tmp_path / "a.ort", *options)
        assert done.stdout.count("The file grew: small models are larger") == 1
    done = cli("optimize", tmp_path / "a.onnx", tmp_path / "b.ort", "--int8", "dynamic")
    assert done.stdout.count("8 bits did not make the file smaller") == 1
    assert "grew" not in done.stdout
    done = cli("optimize", tmp_path / "a.onnx", tmp_path / "b.onnx", "--eps", "0")
    assert done.stdout.count("The file grew: the metadata on how it was made") == 1
    done = cli("optimize", tmp_path / "a.onnx", tmp_path / "b.onnx", "--skip", "*")
    assert "grew" not in done.stdout
