"""Models of IR version 3, in which every initializer has to be an input as well."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from tests.command.running import run
from tests.models import Array, build

X = np.random.default_rng(3).normal(size=(200, 8, 5, 5)).astype(np.float32)
KINDS = {
    "Gemm": "h = Gemm(x, W, b) a = Relu(h) y = Gemm(a, V, c)",
    "MatMul": "g = MatMul(x, W) h = Add(g, b) a = Relu(h) z = MatMul(a, V) y = Add(z, c)",
    "Conv": "h = Conv(x, W, b) a = Relu(h) y = Conv(a, V, c)",
}


def weights(kind: str, copies: int) -> dict[str, Array]:
    """Those of 24 units, of which some do the same."""
    rng = np.random.default_rng(copies)
    rows, bias = rng.normal(size=(24 // copies, 8)), rng.normal(size=24 // copies)
    first, offset = (np.concatenate([a] * copies) for a in (rows, bias))
    second, last = rng.normal(size=(10, 24)), rng.normal(size=10)
    if kind == "Conv":
        first, second = first[:, :, None, None], second[:, :, None, None]
    else:
        first, second = first.T, second.T
    arrays = {"W": first, "b": offset, "V": second, "c": last}
    return {name: a.astype(np.float32) for name, a in arrays.items()}


def old_model(kind: str, opset: int, copies: int = 1) -> onnx.ModelProto:
    """One whose initializers are inputs."""
    axes = ("N,8,5,5", "N,10,5,5") if kind == "Conv" else ("N,8", "N,10")
    model = build(
        KINDS[kind], f"float[{axes[0]}] x", f"float[{axes[1]}] y", opset, 3, **weights(kind, copies)
    )
    with_inputs(model)
    onnx.checker.check_model(model)
    return model


def with_inputs(model: onnx.ModelProto) -> None:
    for tensor in model.graph.initializer:
        kind = onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
        model.graph.input.append(kind)


def rows(kind: str) -> Array:
    return X if kind == "Conv" else X[:, :, 0, 0]


def written(folder: Path, kind: str, model: onnx.ModelProto, *options: str) -> onnx.ModelProto:
    """What `optimize` writes, which has to hold as an old model."""
    onnx.save(model, folder / "in.onnx")
    np.savez(folder / "d.npz", x=rows(kind))
    words: list[str | Path] = ["--data", folder / "d.npz", *options]
    done = run("optimize", folder / "in.onnx", folder / "out.onnx", *words)
    assert done.exit_code == 0, done.output
    commands: list[list[str | Path]] = [["inspect"], ["verify", folder / "in.onnx"]]
    for command in commands:
        again = run(*command, folder / "out.onnx", *words[:2])
        assert again.exit_code == 0, again.output
    found = onnx.load(folder / "out.onnx")
    onnx.checker.check_model(found)
    assert found.ir_version == 3
    assert found.graph.input[0].name == "x"
    stored = [tensor.name for tensor in found.graph.initializer]
    assert sorted(value.name for value in found.graph.input[1:]) == sorted(stored)
    return found


def change(folder: Path, kind: str) -> float:
    """How far onnxruntime's outputs are from those of the original."""
    before, after = (
        ort.InferenceSession(folder / name, providers=["CPUExecutionProvider"]).run(
            None, {"x": rows(kind)}
        )[0]
        for name in ("in.onnx", "out.onnx")
    )
    return float(np.linalg.norm(after - before) / np.linalg.norm(before - before.mean(axis=0)))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("opset", range(8, 13))
@pytest.mark.parametrize("mode", ["dynamic", "static"])
@pytest.mark.parametrize("copies", [1, 2])
def test_constants_of_an_old_model_in_8_bits_are_inputs_as_well(
    kind: str, opset: int, mode: str, copies: int, tmp_path: Path
) -> None:
    model = old_model(kind, opset, copies)
    found = written(tmp_path, kind, model, "--eps", "0", "--int8", mode)
    small = [t for t in found.graph.initializer if t.data_type == onnx.TensorProto.INT8]
    units = {length for t in small if len(t.dims) > 1 for length in t.dims}
    assert units >= {24 // copies, 10}
    assert 0 < change(tmp_path, kind) < 0.1


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_merged_in_an_old_model_keeps_its_inputs_true(kind: str, tmp_path: Path) -> None:
    found = written(tmp_path, kind, old_model(kind, 9, copies=2), "--eps", "0")
    for value in found.graph.input[1:]:
        (tensor,) = (t for t in found.graph.initializer if t.name == value.name)
        lengths = [d.dim_value for d in value.type.tensor_type.shape.dim]
        assert lengths == list(tensor.dims)
        assert 24 not in lengths
    assert change(tmp_path, kind) < 1e-5


def test_a_weight_that_something_else_reads_and_its_new_version_are_inputs(tmp_path: Path) -> None:
    body = f"{KINDS['Gemm']} q = Identity(W)"
    parts = weights("Gemm", 2)
    model = build(body, "float[N,8] x", "float[N,10] y, float[8,24] q", 11, 3, **parts)
    with_inputs(model)
    found = written(tmp_path, "Gemm", model, "--eps", "0")
    assert {"W", "W_merged"} <= {value.name for value in found.graph.input}
    for mode in ("dynamic", "static"):
        folder = tmp_path / mode
        folder.mkdir()
        found = written(folder, "Gemm", model, "--eps", "0", "--int8", mode)
        assert "W_merged_scale" in {value.name for value in found.graph.input}


@pytest.mark.parametrize("mode", ["dynamic", "static"])
def test_constants_that_were_no_inputs_become_some_in_8_bits(mode: str, tmp_path: Path) -> None:
    """onnxruntime takes such models, which onnx's checker refuses."""
    model = old_model("Gemm", 11)
    del model.graph.input[1:]
    with pytest.raises(onnx.checker.ValidationError):
        onnx.checker.check_model(model)
    written(tmp_path, "Gemm", model, "--eps", "0", "--int8", mode)


def test_inputs_with_defaults_stay_replaceable_since_version_4(tmp_path: Path) -> None:
    model = old_model("Gemm", 9, copies=2)
    model.ir_version = 4
    onnx.save(model, tmp_path / "in.onnx")
    words: Any = ("optimize", tmp_path / "in.onnx", tmp_path / "out.onnx", "--eps", "0")
    done = run(*words, "--int8", "dynamic")
    assert done.exit_code == 1
    assert "'V' is an input of the model as well, remove it from the inputs" in done.stderr


@pytest.mark.parametrize(
    ("opset", "line", "reason"),
    [
        (1, "a = Pad <paddings = [0, 0, 0, 0]> (h)", "No Adapter From Version $1 for Pad"),
        (8, "a = BatchNormalization <spatial = 0> (h, b, b, b, b)", "spatial must have value 1"),
    ],
)
def test_what_cannot_be_brought_to_a_newer_opset_is_one_line(
    opset: int, line: str, reason: str, tmp_path: Path
) -> None:
    body = f"h = MatMul(x, W) {line} y = MatMul(a, V)"
    parts = weights("MatMul", 1)
    del parts["c"]
    model = build(body, "float[N,8] x", "float[N,10] y", opset, 3, **parts)
    with_inputs(model)
    onnx.save(model, tmp_path / "in.onnx")
    done = run("optimize", tmp_path / "in.onnx", tmp_path / "out.onnx", "--int8", "dynamic", "-q")
    assert done.exit_code == 1
    (said,) = done.stderr.splitlines()
    assert said.startswith("onnxfde: the model cannot be brought to opset 13: ")
    assert said.endswith(reason)
    assert "Assertion" not in said
    assert not (tmp_path / "out.onnx").exists()
