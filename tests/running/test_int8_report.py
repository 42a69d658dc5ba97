"""8 bits after merging: what is written, reported and printed."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.external_data_helper import convert_model_to_external_data
from typer.testing import CliRunner

import onnxfde
from onnxfde.command.main import app
from onnxfde.demo import demo_data, demo_model
from onnxfde.errors import ModelError
from onnxfde.options import Int8
from tests.models import mlp, twins
from tests.running.int8_models import BIAS, BIG, MODES, ROWS, dense, relative


@pytest.mark.parametrize("mode", MODES)
def test_the_report_tells_the_merged_model_from_the_one_in_8_bits(mode: Int8) -> None:
    report = onnxfde.optimize(demo_model(), 0.1, data=demo_data(), int8=mode).report
    found = report.int8
    assert found is not None
    assert (found.mode, found.weights, found.unmerged) == (mode, 2, None)
    assert found.bytes.after == report.bytes.after
    assert report.bytes.before == demo_model().stat().st_size
    assert relative(found.merged) < relative(report.verification) < 0.1
    assert report.parameters.after == report.layers[0].parameters_after
    assert report.certificate is None
    assert report.seconds["int8"] > 0
    assert report.to_dict()["int8"]["merged"]["metric"] == "MSE"


def test_a_model_without_data_can_be_dynamic() -> None:
    report = onnxfde.optimize(mlp(*BIG), 0, int8="dynamic").report
    assert report.int8 is not None
    assert relative(report.int8.merged) < 1e-5
    assert relative(report.verification) < 0.03


@pytest.mark.parametrize("mode", MODES)
def test_metadata_and_names_survive_and_the_same_again_is_a_copy(
    mode: Int8, tmp_path: Path
) -> None:
    model = mlp(*BIG)
    model.metadata_props.add(key="author", value="someone")
    model.producer_name, model.doc_string = "a tool", "a text"
    onnx.save(model, tmp_path / "in.onnx")
    out, again = tmp_path / "out.onnx", tmp_path / "again.onnx"
    onnxfde.optimize(tmp_path / "in.onnx", 0, data=ROWS, int8=mode).save(out)
    written = onnx.load(out)
    assert (written.producer_name, written.doc_string) == ("a tool", "a text")
    keys = {e.key for e in written.metadata_props}
    assert keys == {"author", "onnxfde.version", "onnxfde.settings", "onnxfde.weights"}
    assert written.graph.input == model.graph.input
    assert written.graph.output == model.graph.output
    report = onnxfde.optimize(out, 0, data=ROWS, int8=mode).save(again)
    assert report.unchanged == "onnxfde made it with these settings before"
    assert again.read_bytes() == out.read_bytes()
    edited = next(t for t in written.graph.initializer if t.data_type == t.INT8 and len(t.dims) > 1)
    edited.raw_data = bytes(reversed(edited.raw_data))
    with pytest.raises(ModelError, match="quantized already"):
        onnxfde.optimize(written, 0, data=ROWS, int8=mode)


def test_8_bits_alone_say_why_nothing_was_merged(tmp_path: Path) -> None:
    onnx.save(mlp(*BIG), tmp_path / "in.onnx")
    files = [str(tmp_path / "in.onnx"), str(tmp_path / "out.onnx")]
    done = CliRunner().invoke(app, ["optimize", *files, "--int8", "dynamic", "--skip", "*"])
    assert done.exit_code == 0
    assert "not merged  no layer is selected" in done.stdout
    assert "int8        dynamic, 2 weights; bytes" in done.stdout
    assert f"written to  {files[1]}" in done.stdout
    assert (tmp_path / "out.onnx").stat().st_size < (tmp_path / "in.onnx").stat().st_size


def test_the_printed_report_shows_both_errors(tmp_path: Path) -> None:
    args = ["optimize", str(demo_model()), str(tmp_path / "o.onnx"), "--data", str(demo_data())]
    done = CliRunner().invoke(app, [*args, "--int8", "dynamic"])
    lines = [line for line in done.stdout.splitlines() if line.startswith(("merged", "measured"))]
    assert [line.split()[:3] for line in lines] == [
        ["merged", "relative", "L2"],
        ["measured", "relative", "L2"],
    ]
    assert done.stdout.count("MSE  ") == 2


@pytest.mark.parametrize("mode", MODES)
def test_external_weights_stay_external(mode: Int8, tmp_path: Path) -> None:
    model = mlp(*twins(distinct=40, copies=2, inputs=8, outputs=50))
    convert_model_to_external_data(model, location="weights.bin", size_threshold=0)
    (tmp_path / "in").mkdir()
    onnx.save(model, tmp_path / "in" / "in.onnx")
    out = tmp_path / "out.onnx"
    report = onnxfde.optimize(tmp_path / "in" / "in.onnx", 0, data=ROWS, int8=mode).save(out)
    raw = onnx.load(out, load_external_data=False)
    outside = [t.name for t in raw.graph.initializer if t.data_location == t.EXTERNAL]
    assert any("quantized" in name for name in outside)
    found = onnxfde.verify(tmp_path / "in" / "in.onnx", out, data=ROWS)
    assert relative(found) == pytest.approx(relative(report.verification), rel=0.05)


def test_outputs_that_hardly_vary_may_change_by_more_than_that() -> None:
    model = dense("h = Gemm (x, W, b) g = Relu(h) y = Gemm (g, W, b)", b=BIAS * 0 + 1e4)
    report = onnxfde.optimize(model, data=ROWS, int8="dynamic").report
    assert relative(report.verification) > 1


def printed(model: onnx.ModelProto, tmp_path: Path, *options: str) -> str:
    onnx.save(model, tmp_path / "in.onnx")
    np.savez(tmp_path / "d.npz", **ROWS)  # type: ignore[arg-type]
    files = [str(tmp_path / name) for name in ("in.onnx", "out.onnx", "d.npz")]
    args = ["optimize", *files[:2], "--data", files[2], "--int8", "dynamic", *options]
    done = CliRunner().invoke(app, args)
    assert done.exit_code == 0
    return done.stdout


def test_the_cure_is_for_what_has_the_larger_part_in_the_error(tmp_path: Path) -> None:
    text = printed(mlp(*BIG), tmp_path, "--neurons", "6")
    assert (
        text.count("changed by more than 15 % of what they vary: optimize with a larger --neurons.")
        == 1
    )
    scales = np.float32(10.0) ** -np.arange(8, dtype=np.float32)
    uneven = dense(
        "h = Gemm (x, U) g = Relu(h) y = Gemm (g, V)", U=np.diag(scales), V=np.diag(1 / scales)
    )
    text = printed(uneven, tmp_path)
    assert text.count("further off than a constant would be: optimize without --int8.") == 1
    assert text.count("8 bits did not make the file smaller") == 1
    assert "grew" not in text


def test_neurons_merged_for_8_bits_keep_their_error_in_8_bits() -> None:
    """Without a view to it, weights of hundreds that cancel make the outputs useless."""
    options: dict[str, Any] = {"neurons": 8, "data": demo_data()}
    plain = onnxfde.optimize(demo_model(), **options).model
    later = onnxfde.optimize(plain, skip=("*",), data=demo_data(), int8="static").model
    naive = relative(onnxfde.verify(demo_model(), later, data=demo_data()))
    report = onnxfde.optimize(demo_model(), **options, int8="static").report
    assert report.int8 is not None
    assert relative(report.int8.merged) < 0.03
    assert relative(report.verification) < 0.05
    assert relative(report.verification) < naive / 10


def test_one_size_after_is_shown_for_each_format(tmp_path: Path) -> None:
    onnx.save(mlp(*BIG), tmp_path / "in.onnx")
    words = [str(tmp_path / "in.onnx"), str(tmp_path / "out.ort"), "--int8", "dynamic"]
    done = CliRunner().invoke(
        app, ["optimize", *words, "--skip", "*", "--json", f"{words[1]}.json"]
    )
    found = json.loads((tmp_path / "out.ort.json").read_text())
    assert found["onnx_bytes"] == found["int8"]["bytes"]["after"] != found["bytes"]["after"]
    assert found["bytes"]["after"] == (tmp_path / "out.ort").stat().st_size
    assert re.search(r"int8 +dynamic, 2 weights; bytes \S+ → \S+ as .onnx", done.stdout)
    assert found["bytes"]["after"] > found["bytes"]["before"]
    assert done.stdout.count("The file grew: small models are larger") == 1


def test_an_ort_file_larger_than_onnx_is_remarked_on(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    shapes = ((60, 40), (60,), (30, 60), (30,))
    onnx.save(mlp(*(rng.normal(size=s).astype(np.float32) for s in shapes)), tmp_path / "in.onnx")
    words = ["--neurons", "5", "--quotient", "refit", "--no-certify"]
    files = [str(tmp_path / "in.onnx"), str(tmp_path / "out.ort")]
    done = CliRunner().invoke(app, ["optimize", *files, *words])
    assert done.stdout.count("As .onnx it would take") == 1
    assert "grew" not in done.stdout
