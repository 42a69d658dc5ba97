"""8 bits: integer kernels, nothing lost around them, and neurons merged with a view to it."""

from __future__ import annotations

import logging
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx.external_data_helper import convert_model_to_external_data
from typer.testing import CliRunner

import onnxfde
from onnxfde.command.main import app
from onnxfde.demo import demo_data, demo_model
from onnxfde.errors import ModelError, UsageError, VerificationError
from onnxfde.graph.input_specs import input_specs
from onnxfde.graph.model import Graph
from onnxfde.options import Int8
from onnxfde.running.int8 import CALIBRATION_ROWS, quantize
from onnxfde.running.samples import make_samples, random_samples
from tests.models import Array, build, mlp, twins

MODES: tuple[Int8, ...] = ("dynamic", "static")
RNG = np.random.default_rng(0)
ROWS = {"x": RNG.uniform(-1, 1, (600, 8)).astype(np.float32)}
BIG = twins(distinct=20, copies=2, inputs=8, outputs=30)


def weights(*shape: int, dtype: Any = np.float32) -> Array:
    return np.random.default_rng(sum(shape)).normal(size=shape).astype(dtype)


def kernels(model: onnx.ModelProto, tmp_path: Path) -> Counter[str]:
    """The operators that onnxruntime runs."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.optimized_model_filepath = str(tmp_path / "optimized.onnx")
    onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    nodes = onnx.load(tmp_path / "optimized.onnx").graph.node
    return Counter(node.op_type for node in nodes)


def relative(found: onnxfde.Verification | None) -> float:
    assert found is not None
    assert found.relative_l2 is not None
    return found.relative_l2


@pytest.mark.parametrize(
    ("mode", "kernel"), [("dynamic", "DynamicQuantizeMatMul"), ("static", "QGemm")]
)
def test_onnxruntime_runs_integer_kernels(mode: Int8, kernel: str, tmp_path: Path) -> None:
    result = onnxfde.optimize(mlp(*BIG), 0, data=ROWS, int8=mode)
    found = kernels(result.model, tmp_path)
    assert found[kernel] == 2
    assert not {"Gemm", "MatMul"} & found.keys()
    assert relative(result.report.verification) < 0.03


def test_convolutions_become_integer_convolutions(tmp_path: Path) -> None:
    model = build(
        "a = Conv (x, W, b) s = Mul(a, a) f = Flatten(s) y = Gemm <transB = 1> (f, V, c)",
        inputs="float[2,3,6,6] x",
        outputs="float[2,2] y",
        W=weights(8, 3, 3, 3),
        b=weights(8),
        V=weights(2, 128),
        c=weights(2),
    )
    data = {"x": RNG.uniform(0, 1, (64, 3, 6, 6)).astype(np.float32)}
    for mode, kernel in (("dynamic", "ConvInteger"), ("static", "QLinearConv")):
        result = onnxfde.optimize(model, data=data, int8=mode)  # type: ignore[arg-type]
        assert kernels(result.model, tmp_path)[kernel] == 1
        assert relative(result.report.verification) < 0.05


def test_weights_do_not_saturate_on_any_processor() -> None:
    """The kernels for AVX2 add 255·127 + 255·127 in 16 bits; 255·64 + 255·64 fits."""
    ones = np.full((4, 8), 1.0, np.float32)
    model = build(
        "y = Gemm <transB = 1> (x, W)", inputs="float[N,8] x", outputs="float[N,4] y", W=ones
    )
    result = onnxfde.optimize(
        model, data={"x": np.ones((4, 8)) * [[1], [0], [1], [1]]}, int8="static"
    )
    assert relative(result.report.verification) < 0.01


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
    assert relative(found) == pytest.approx(relative(report.verification), rel=1e-5)


def test_weights_in_constants_and_behind_a_transpose_are_found() -> None:
    text = (
        "T = Transpose <perm = [1, 0]> (W) h = MatMul(x, T) s = Mul(h, h) "
        "V = Constant <value = float[4,2] {1,2,3,4,5,6,7,8}> () y = MatMul(s, V)"
    )
    model = build(text, inputs="float[N,8] x", W=weights(4, 8))
    report = onnxfde.optimize(model, data=ROWS, skip=("*",), int8="static").report
    assert report.int8 is not None
    assert report.int8.weights == 2
    assert relative(report.verification) < 0.03


@pytest.mark.parametrize("mode", MODES)
def test_a_weight_on_the_left_stays_in_float32(mode: Int8) -> None:
    text = "h = MatMul(W, x) s = Mul(h, h) g = MatMul(V, s) "
    parts: dict[str, Any] = {"W": weights(6, 8), "V": weights(4, 6), "inputs": "float[8,5] x"}
    model = build(text + "y = MatMul(g, U)", outputs="float[4,3] y", U=weights(5, 3), **parts)
    data = {"x": RNG.uniform(-1, 1, (100, 8, 5)).astype(np.float32)}
    report = onnxfde.optimize(model, 0, data=data, int8=mode).report
    assert report.int8 is not None
    assert report.int8.weights == 1
    assert relative(report.verification) < 0.03
    plain = build(text + "y = Identity(g)", outputs="float[4,5] y", **parts)
    with pytest.raises(ModelError, match="finds nothing to do"):
        onnxfde.optimize(plain, 0, data=data, int8=mode)


@pytest.mark.parametrize("opset", [7, 10, 11, 21])
@pytest.mark.parametrize("mode", MODES)
def test_any_opset_will_do(mode: Int8, opset: int) -> None:
    w, b, v, c = BIG
    model = build(
        "h = Gemm <transB = 1> (x, W, b) s = Mul(h, h) y = Gemm <transB = 1> (s, V, c)",
        inputs="float[N,8] x",
        outputs="float[N,30] y",
        opset=opset,
        ir=10,
        W=w,
        b=b,
        V=v,
        c=c,
    )
    report = onnxfde.optimize(model, 0, data=ROWS, int8=mode).report
    assert relative(report.verification) < 0.03


def test_calibration_takes_some_hundred_rows_and_whole_batches() -> None:
    seen = []
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


def dense(text: str, inputs: str = "float[N,8] x", **parts: Any) -> onnx.ModelProto:
    outputs = parts.pop("outputs", "float[N,8] y")
    return build(text, inputs=inputs, outputs=outputs, **{"W": weights(8, 8), **parts})


BIAS = np.arange(8, dtype=np.float32)
ODD: dict[str, tuple[onnx.ModelProto, tuple[int, int]]] = {
    "weight's scale": (dense("h = MatMul(x, W) y = Add(h, W_scale)", W_scale=BIAS), (1, 1)),
    "input's scale": (dense("h = MatMul(x, W) y = Add(h, x_scale)", x_scale=BIAS), (1, 1)),
    "value's scale": (
        dense("h_scale = Relu(x) h = Tanh(x) g = MatMul(h, W) y = Add(g, h_scale)"),
        (1, 1),
    ),
    "input called so": (
        dense("h = MatMul(x, W) y = Add(h, x_scale)", "float[N,8] x, float[N,8] x_scale"),
        (1, 1),
    ),
    "output called so": (
        dense("x_quantized = MatMul(x, W) y = Add(x_quantized, x)", outputs="float[N,8] y"),
        (1, 1),
    ),
    "node names": (dense("[n] h = MatMul(x, W) [n] g = Tanh(h) [n] y = MatMul(g, W)"), (1, 1)),
    "alpha": (dense("y = Gemm <alpha = 0.5> (x, W, b)", b=BIAS), (1, 1)),
    "beta": (dense("y = Gemm <beta = 2.0> (x, W, b)", b=BIAS), (1, 1)),
    "both": (dense("y = Gemm <alpha = 2.0, beta = 0.5, transB = 1> (x, W, b)", b=BIAS), (1, 1)),
    "no bias": (dense("y = Gemm <beta = 0.5> (x, W, )"), (1, 1)),
    "beta of an input": (
        dense("h = Gemm <beta = 0.5> (x, W, x) y = MatMul(h, V)", V=weights(8, 8)),
        (1, 1),
    ),
    "bias of one": (dense("y = Gemm (x, W, b)", b=BIAS[3:4]), (1, 1)),
    "scalar bias": (dense("y = Gemm (x, W, b)", b=np.float32(3)), (1, 1)),
    "bias in a row": (dense("y = Gemm <beta = 3.0> (x, W, b)", b=BIAS[None]), (1, 1)),
    "bias in a constant": (
        dense("b = Constant <value = float[1] {5}> () y = Gemm <beta = 3.0> (x, W, b)"),
        (1, 1),
    ),
    "bias for each row": (
        dense(
            "h = Gemm <beta = 2.0> (x, W, b) y = MatMul(h, V)",
            "float[3,8] x",
            outputs="float[3,8] y",
            b=weights(3, 8),
            V=weights(8, 8),
        ),
        (2, 1),
    ),
    "transposed input": (
        dense(
            "h = Gemm <transA = 1> (x, W) y = MatMul(h, V)",
            "float[8,3] x",
            outputs="float[3,8] y",
            V=weights(8, 8),
        ),
        (1, 2),
    ),
    "stack of weights": (
        dense("h = MatMul(x, U) y = MatMul(h, W)", "float[N,4,8,8] x", U=weights(4, 8, 8)),
        (1, 1),
    ),
    "vector": (
        dense("h = MatMul(x, W) y = MatMul(h, u)", outputs="float[N] y", u=weights(8)),
        (1, 1),
    ),
    "read both ways": (
        dense("h = Gemm (x, W) g = Tanh(h) y = Gemm <transB = 1> (g, W)"),
        (2, 2),
    ),
    "read twice": (
        dense("h = Gemm <transB = 1> (x, W) g = Tanh(h) y = Gemm <transB = 1> (g, W)"),
        (1, 1),
    ),
    "added too": (
        dense(
            "h = Gemm <transB = 1> (x, W) g = MatMul(h, V) y = Add(g, W)",
            "float[8,8] x",
            outputs="float[8,8] y",
            V=weights(8, 8),
        ),
        (2, 2),
    ),
    "float16": (
        dense(
            "h = MatMul(x, W) k = Cast <to = 10> (h) y = Gemm (k, V)",
            outputs="float16[N,8] y",
            V=weights(8, 8, dtype=np.float16),
        ),
        (1, 1),
    ),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("case", ODD)
def test_odd_products_are_rounded_right_or_left_alone(case: str, mode: Int8) -> None:
    model, counts = ODD[case]
    specs = input_specs(Graph(model))
    data = dict(random_samples(specs, (-1, 1), 96).arrays)
    result = onnxfde.optimize(model, data=data, skip=("*",), int8=mode)
    report = result.report
    assert report.int8 is not None
    assert report.int8.weights == counts[MODES.index(mode)]
    assert report.verification is not None
    assert report.verification.engine == "onnxruntime"
    assert relative(report.verification) < 0.05
    assert result.model.graph.input == model.graph.input
    assert result.model.graph.output == model.graph.output
    kept = {t.name for t in model.graph.initializer} - {"W", "V", "b"}
    names = [t.name for t in result.model.graph.initializer]
    assert len({*names}) == len(names)
    assert all(any(name.startswith(old) for name in names) for old in kept)


@pytest.mark.parametrize("mode", MODES)
def test_an_embedding_may_be_the_output_layer_too(mode: Int8) -> None:
    model = build(
        "e = Gather(E, i) y = Gemm <transB = 1> (e, E)",
        inputs="int64[N] i",
        outputs="float[N,50] y",
        E=weights(50, 16),
    )
    report = onnxfde.optimize(model, data={"i": np.arange(50)}, int8=mode).report
    assert relative(report.verification) < 0.05
    assert report.bytes.after < report.bytes.before


def test_names_come_back() -> None:
    model = ODD["weight's scale"][0]
    found = onnxfde.optimize(model, data=ROWS, int8="dynamic").model.graph
    assert {"W_scale", "W_scale_1", "W_quantized"} <= {t.name for t in found.initializer}
    assert {"x_QuantizeLinear", "MatMul_0_quant", "Add_1"} <= {node.name for node in found.node}
    for mode in MODES:
        branches = build(
            "c = Constant <value = bool {1}> () z = If (c) <"
            "then_branch = t () => (float[N,8] a) { a = Gemm <transB = 1> (x, W, x_scale) }, "
            "else_branch = e () => (float[N,8] b) { b = Gemm <transB = 1> (x, W) }> "
            "y = MatMul(z, V)",
            inputs="float[N,8] x",
            outputs="float[N,8] y",
            W=weights(8, 8),
            V=weights(8, 8),
            x_scale=BIAS,
        )
        report = onnxfde.optimize(branches, data=ROWS, int8=mode).report
        assert relative(report.verification) < 0.05


@pytest.mark.parametrize(
    ("text", "parts", "mode", "message"),
    [
        ("[m] y = MatMul(x, U)", {"U": weights(2, 8, 8)}, "static", "m: its weight has 3 axes"),
        ("[m] y = Gemm <transA = 1> (x, W)", {}, "dynamic", "m: transA has no integer kernel"),
        ("[m] y = Gemm (x, W, x)", {}, "static", "m: its bias is not a constant vector"),
        ("[m] y = Gemm <beta = 2.0> (x, W, x)", {}, "dynamic", "m: alpha or beta multiplies what"),
        ("[m] y = MatMul(W, x)", {}, "dynamic", "m: its weight is the first factor"),
        (
            "k = Cast <to = 10> (x) [m] y = MatMul(k, V)",
            {"V": weights(8, 8, dtype=np.float16)},
            "dynamic",
            "m: its weight is in float16",
        ),
    ],
)
def test_the_reason_why_nothing_is_rounded_names_the_node(
    text: str, parts: dict[str, Array], mode: Int8, message: str
) -> None:
    kind = "float16" if "V" in parts else "float"
    model = dense(text, "float[8,8] x", outputs=f"{kind}[N,M] y", **parts)
    data = {"x": RNG.uniform(-1, 1, (40, 8, 8)).astype(np.float32)}
    with pytest.raises(ModelError, match=f"--int8 finds nothing to do: {message}"):
        onnxfde.optimize(model, data=data, int8=mode)


def test_a_graph_that_8_bits_cannot_explain_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onnxfde.running.int8.settle", lambda model: None)
    monkeypatch.setattr("onnxfde.running.int8.unfit_nodes", lambda graph, mode: {})
    options: dict[str, Any] = {"data": ROWS, "int8": "static"}
    with pytest.raises(VerificationError, match="worse than a constant; nothing was written"):
        onnxfde.optimize(ODD["beta"][0], **options)
    assert onnxfde.optimize(ODD["beta"][0], **options, verify=False).report.int8


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
    assert text.count("changed by more than 10%: optimize with a smaller --eps.") == 1
    scales = np.float32(10.0) ** -np.arange(8, dtype=np.float32)
    uneven = dense(
        "h = Gemm (x, U) g = Relu(h) y = Gemm (g, V)", U=np.diag(scales), V=np.diag(1 / scales)
    )
    text = printed(uneven, tmp_path)
    assert text.count("changed by more than 10%: optimize without --int8.") == 1
    assert text.count("8 bits did not make the file smaller") == 1
    assert "grew" not in text


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


@pytest.mark.parametrize("mode", ["dynamic", "static"])
def test_bodies_may_read_what_a_quantized_node_makes(mode: Any) -> None:
    rng = np.random.default_rng(0)
    model = build(
        "h = Gemm <transB = 1> (x, W) c = ReduceSum <keepdims = 0> (x) b = Cast <to = 9> (c) "
        "y = If (b) <then_branch = t () => (a) { a = Add(h, h) }, "
        "else_branch = e () => (a) { a = Neg(h) }>",
        inputs="float[N,8] x",
        outputs="float[N,4] y",
        W=rng.normal(size=(4, 8)).astype(np.float32),
    )
    x = rng.uniform(0, 1, (64, 8)).astype(np.float32)
    found = onnxfde.optimize(model, data={"x": x}, int8=mode).report.verification
    assert found is not None
    assert found.relative_l2 is not None
    assert found.relative_l2 < 0.1
