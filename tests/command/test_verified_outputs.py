"""`verify`, `optimize` and `sweep` judge each output of a model by itself."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tests.command.running import run
from tests.models import Array, build

X = np.random.default_rng(0).normal(size=(200, 3)).astype(np.float32)
ONE, NOTHING = np.ones(1, np.float32), np.zeros(1, np.float32)
SCORES = "float[N,3] s, int64[N] l"
LABEL = "s = Identity(x) l = {} <axis = 1, keepdims = 0> (x)"
BOTH = "float[N,3] y, float[N,3] w"
TEXTS = (
    "b = Greater(x, z) i = Cast <to = 7> (b) "
    'w = ai.onnx.ml.LabelEncoder <keys_int64s = [0, 1], values_strings = ["{}", "{}"]> (i)'
)


def verified(
    folder: Path, a: onnx.ModelProto, b: onnx.ModelProto, *words: str, x: Array = X
) -> tuple[int, str]:
    """The exit code of `verify`, and all that it says."""
    for name, model in (("a", a), ("b", b)):
        if any(node.domain == "ai.onnx.ml" for node in model.graph.node):
            model.opset_import.add(domain="ai.onnx.ml", version=3)
        onnx.save(model, folder / f"{name}.onnx")
    np.savez(folder / "d.npz", x=x)
    done = run("verify", folder / "a.onnx", folder / "b.onnx", "--data", folder / "d.npz", *words)
    assert done.exception is None or isinstance(done.exception, SystemExit)
    return done.exit_code, " ".join(done.output.split())


def numbers(value: float) -> Array:
    return np.full(1, value, np.float32)


def labels(rule: str) -> onnx.ModelProto:
    return build(LABEL.format(rule), outputs=SCORES)


def signs(rule: str, limit: float = 0.0) -> onnx.ModelProto:
    return build(f"w = {rule}(x, z)", outputs="bool[N,3] w", z=numbers(limit))


def texts(*words: str) -> onnx.ModelProto:
    return build(TEXTS.format(*words), outputs="string[N,3] w", z=NOTHING)


def constant(value: float) -> onnx.ModelProto:
    body = "y = Identity(x) q = Mul(x, z) w = Add(q, c)"
    return build(body, outputs=BOTH, z=NOTHING, c=numbers(value))


def shifted_log(shift: float) -> onnx.ModelProto:
    return build("q = Add(x, c) w = Log(q)", outputs="float[N,3] w", c=numbers(shift))


def large_as(value: float) -> onnx.ModelProto:
    body = "p = Greater(x, k) w = Where(p, i, x)"
    return build(body, outputs="float[N,3] w", k=ONE, i=numbers(value))


def heads(second: float) -> onnx.ModelProto:
    return build("y = Identity(x) w = Mul(x, k)", outputs=BOTH, k=numbers(second))


def of_type(kind: str, factor: float) -> onnx.ModelProto:
    code = getattr(TensorProto, kind.upper())
    body = f"q = Mul(x, k) w = Cast <to = {code}> (q)"
    return build(body, outputs=f"{kind}[N,3] w", opset=20, ir=10, k=numbers(factor))


def with_output(body: str, kind: onnx.TypeProto, **parts: Any) -> onnx.ModelProto:
    """A model whose output has a type that the text of a model cannot say."""
    model = build(body, outputs="float[N,3] w", **parts)
    model.graph.output[0].CopyFrom(helper.make_value_info("w", kind))
    return model


def sequence(second: float) -> onnx.ModelProto:
    kind = helper.make_sequence_type_proto(helper.make_tensor_type_proto(1, None))
    body = "u = Identity(x) v = Mul(x, k) w = SequenceConstruct(u, v)"
    return with_output(body, kind, k=numbers(second))


def zip_map(second: float, last: int = 3) -> onnx.ModelProto:
    number = helper.make_tensor_type_proto(1, None)
    kind = helper.make_sequence_type_proto(helper.make_map_type_proto(7, number))
    body = f"p = Mul(x, k) w = ai.onnx.ml.ZipMap <classlabels_int64s = [1, 2, {last}]> (p)"
    return with_output(body, kind, k=np.array([1, second, 1], np.float32))


def no_columns() -> onnx.ModelProto:
    body = "y = Identity(x) w = Gather <axis = 1> (x, i)"
    return build(body, outputs="float[N,3] y, float[N,K] w", i=np.zeros(0, np.int64))


def all_infinite() -> onnx.ModelProto:
    body = "y = Identity(x) m = Mul(x, z) q = Div(o, z) w = Add(m, q)"
    return build(body, outputs=BOTH, z=NOTHING, o=ONE)


DIFFERENT = {
    "labels": (labels("ArgMax"), labels("ArgMin"), "output 'l': 100.00% of its entries differ"),
    "booleans": (signs("Greater"), signs("Less"), "output 'w': 100.00% of its entries"),
    "texts": (texts("a", "b"), texts("b", "a"), "output 'w': 100.00% of its entries"),
    "constant": (constant(3), constant(3.001), "output 'w': is the same for all rows"),
    "zero": (constant(0), constant(1e-6), "output 'w': is the same for all rows"),
    "less NaN": (shifted_log(0), shifted_log(0.2), "NaN or infinity stand at other places"),
    "more NaN": (shifted_log(0), shifted_log(-0.2), "NaN or infinity in output 'w'"),
    "sign": (large_as(np.inf), large_as(-np.inf), "NaN or infinity stand at other places"),
    "NaN": (large_as(np.inf), large_as(np.nan), "NaN or infinity stand at other places"),
    "small": (heads(1e-3), heads(-1e-3), "output 'w': the error 2 exceeds"),
    "tiny": (heads(1e-30), heads(-1e-30), "output 'w': the error 2 exceeds"),
    "element": (sequence(1e-3), sequence(-1e-3), "output 'w[1]': the error 2 exceeds"),
    "key": (zip_map(1e-3), zip_map(-1e-3), "output 'w[2]': the error 2 exceeds"),
    "other key": (zip_map(1), zip_map(1, last=4), "has other keys or lengths"),
    "float16": (of_type("float16", 1), of_type("float16", 1.3), "'w': the error 0.3 exceeds"),
    "8 bits": (of_type("float8e4m3fn", 1), of_type("float8e4m3fn", 1.3), "'w': the error 0.2"),
}  # fmt: skip


@pytest.mark.parametrize("kind", DIFFERENT)
def test_models_of_which_one_output_differs_are_not_within(kind: str, tmp_path: Path) -> None:
    model, other, reason = DIFFERENT[kind]
    code, said = verified(tmp_path, model, other, "--tolerance", "5%")
    assert code == 1
    assert reason in said
    assert "within the tolerance" not in said
    assert verified(tmp_path, model, model, "--tolerance", "5%")[0] == 0


@pytest.mark.parametrize("kind", ["labels", "booleans", "texts", "constant", "less NaN", "sign"])
def test_what_has_no_relative_error_has_to_be_equal_without_a_tolerance(
    kind: str, tmp_path: Path
) -> None:
    model, other, _ = DIFFERENT[kind]
    assert verified(tmp_path, model, other)[0] == 1
    assert verified(tmp_path, model, model)[0] == 0


@pytest.mark.parametrize(
    ("model", "other"),
    [
        (signs("Greater"), signs("Greater", 0.02)),
        (constant(3), constant(float(np.nextafter(np.float32(3), np.float32(4))))),
        (heads(1e-3), heads(1.01e-3)),
        (sequence(1), sequence(1.01)),
        (zip_map(1e-3), zip_map(1.01e-3)),
        (of_type("float8e4m3fn", 1), of_type("float8e4m3fn", 1.001)),
    ],
    ids=("share", "rounding", "small", "element", "key", "8 bits"),
)
def test_a_small_change_is_within_a_tolerance(
    model: onnx.ModelProto, other: onnx.ModelProto, tmp_path: Path
) -> None:
    code, said = verified(tmp_path, model, other, "--tolerance", "5%")
    assert (code, said.endswith("within the tolerance 0.05")) == (0, True)


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (no_columns(), "output 'w': could not be compared: it holds no values on these inputs"),
        (all_infinite(), "output 'w': could not be compared: it is not finite on these inputs"),
        (of_type("bfloat16", 1), "NOT VERIFIED: onnxruntime: No corresponding Numpy type"),
    ],
    ids=("empty", "infinite", "bfloat16"),
)
def test_what_could_not_be_compared_is_named_and_not_within(
    model: onnx.ModelProto, reason: str, tmp_path: Path
) -> None:
    for words in ((), ("--tolerance", "5%")):
        code, said = verified(tmp_path, model, model, *words)
        assert code == 1
        assert reason in said
        assert "within" not in said
    code, said = verified(tmp_path, model, model, "--json", "-", "-q")
    assert (code, '"passed": false' in said) == (1, True)


def test_outputs_of_other_shapes_and_no_rows_are_one_line(tmp_path: Path) -> None:
    same = build("y = Identity(x)", outputs="float[N,K] y")
    wide = build("y = Concat <axis = 1> (x, x)", outputs="float[N,K] y")
    code, said = verified(tmp_path, same, wide, "--tolerance", "5%")
    assert (code, said) == (
        1, "onnxfde: the outputs have different shapes: (200, 3) and (200, 6)",
    )  # fmt: skip
    code, said = verified(tmp_path, same, same, x=X[:0])
    assert (code, "has 0 rows" in said) == (1, True)


def test_a_single_row_is_compared_with_its_own_spread(tmp_path: Path) -> None:
    for factor, code in ((1.2, 1), (1.001, 0)):
        other = build("y = Mul(x, k)", outputs="float[N,3] y", k=numbers(factor))
        model = build("y = Identity(x)", outputs="float[N,3] y")
        found = verified(tmp_path, model, other, "--tolerance", "5%", x=X[:1])
        assert found[0] == code
        assert "(0" not in found[1], "one row has no interval"


def two_heads(scale: float, offset: float = 0.0) -> onnx.ModelProto:
    """The second of two outputs is `scale` times as large."""
    rng = np.random.default_rng(1)
    shapes = {"W": (8, 40), "b": (40,), "V": (40, 3), "c": (3,), "P": (40, 3), "q": (3,)}
    parts = {name: rng.normal(size=shape) / np.sqrt(shape[0]) for name, shape in shapes.items()}
    parts |= {"P": scale * parts["P"], "q": scale * (parts["q"] + offset)}
    return build(
        "h = Gemm(x, W, b) a = Relu(h) y = Gemm(a, V, c) z = Gemm(a, P, q)",
        inputs="float[N,8] x",
        outputs="float[N,3] y, float[N,3] z",
        **{name: a.astype(np.float32) for name, a in parts.items()},
    )


def eight_inputs(folder: Path) -> Path:
    rng = np.random.default_rng(2)
    mix = rng.normal(size=(8, 8)) * np.logspace(0, -1.5, 8)[:, None]
    np.savez(folder / "d.npz", x=(rng.normal(size=(1000, 8)) @ mix).astype(np.float32))
    return folder / "d.npz"


def errors_left(folder: Path, model: onnx.ModelProto, *words: str) -> tuple[int, list[float]]:
    """How many parameters `optimize` leaves, and the errors of the outputs."""
    onnx.save(model, folder / "in.onnx")
    files = (folder / "in.onnx", folder / "out.onnx", "--data", eight_inputs(folder))
    done = run("optimize", *files, "--force", "--json", folder / "r.json", *words)
    assert done.exit_code == 0, done.output
    report = json.loads((folder / "r.json").read_text())
    outputs = report["verification"]["outputs"]
    return report["parameters"]["after"], [one["relative_l2"] for one in outputs]


@pytest.mark.parametrize("asked", ["--max-error 5%", "--max-params 50%", "--eps 0.1"])
def test_how_large_an_output_is_and_around_what_makes_no_difference(
    asked: str, tmp_path: Path
) -> None:
    """The scale is a power of two, so that only the rounding of the offset differs."""
    words = asked.split()
    left, errors = errors_left(tmp_path, two_heads(1), *words)
    assert left < 0.9 * 606
    for scale, offset in ((2.0**-10, 0.0), (1.0, 30.0)):
        again, others = errors_left(tmp_path, two_heads(scale, offset), *words)
        assert again == left
        assert others == pytest.approx(errors, rel=0.02)
    if words[0] == "--max-error":
        assert max(errors) <= 0.05


def test_a_sweep_shows_the_error_of_the_output_that_changed_most(tmp_path: Path) -> None:
    data = eight_inputs(tmp_path)
    onnx.save(two_heads(1e-3), tmp_path / "net.onnx")
    words = ("--sizes", "50%", "--quotient", "refit", "--no-latency", "-q")
    out = tmp_path / "sweep"
    done = run("sweep", tmp_path / "net.onnx", "--out", out, "--data", data, *words)
    assert done.exit_code == 0, done.output
    with (out / "sweep.csv").open(newline="", encoding="utf-8") as stream:
        row = list(csv.DictReader(stream))[-1]
    _, errors = errors_left(tmp_path, two_heads(1e-3), "--max-params", "50%", "--quotient", "refit")
    assert float(row["relative_l2"]) == pytest.approx(max(errors), rel=1e-6)
