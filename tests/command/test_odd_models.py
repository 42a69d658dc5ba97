"""Every command on models that nobody would write: an answer or one line, never a traceback."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from onnxfde.graph.protos import ModelProto
from tests.command.running import B, C, V, W, run
from tests.models import build, mlp

NETWORK = "h = Gemm <transB = 1> (x, W, b) {} y = Gemm <transB = 1> (s, V, c)"
WEIGHTS: dict[str, Any] = {"W": W, "b": B, "V": V, "c": C}


def edited(change: Callable[[ModelProto], None]) -> ModelProto:
    model = mlp(W, B, V, C)
    change(model)
    return model


def with_input_type(kind: int) -> ModelProto:
    return edited(lambda m: setattr(m.graph.input[0].type.tensor_type, "elem_type", kind))


def with_input_of_another_type(model: ModelProto) -> None:
    model.graph.input.append(helper.make_tensor_value_info("W", TensorProto.INT32, [6, 3]))


def with_scalar_constant_input(model: ModelProto) -> None:
    model.graph.initializer.append(helper.make_tensor("x", TensorProto.BOOL, [], [True]))


def with_too_many_bytes(model: ModelProto) -> None:
    model.graph.initializer[0].raw_data += b"1234"


ODD: dict[str, tuple[ModelProto, str]] = {
    "no inputs": (
        build(NETWORK.format("s = Mul(h, h)"), inputs="", outputs="float[4,2] y",
              x=np.ones((4, 3), np.float32), **WEIGHTS), ""),
    "complex input": (with_input_type(TensorProto.COMPLEX64), ""),
    "input without a type": (with_input_type(0), "'x' has the data type 0"),
    "input of an unknown type": (with_input_type(99), "'x' has the data type 99"),
    "unknown data type": (
        edited(lambda m: setattr(m.graph.initializer[0], "data_type", 77)),
        "'W' has the data type 77"),
    "too many bytes": (edited(with_too_many_bytes), "tensor 'W' (6×3, type 1) is damaged"),
    "constant input of another type": (edited(with_input_of_another_type), ""),
    "empty Constant": (
        build(NETWORK.format("k = Constant () g = Add(h, k) s = Mul(g, g)"), **WEIGHTS), ""),
    "complex exponent": (
        build(NETWORK.format("s = Pow(h, k)"), k=np.asarray(2, np.complex64), **WEIGHTS), ""),
    "constants inside a polynomial": (
        build(NETWORK.format("q = Mul(h, h) r = Mul(b, V) t = Sub(q, r) s = Sub(b, t)"),
              **WEIGHTS), ""),
    "input that is a scalar constant": (edited(with_scalar_constant_input), ""),
    "axis 10^18": (
        build(NETWORK.format(f"q = Mul(h, h) s = Flatten <axis = {10**18}> (q)"), **WEIGHTS), ""),
    "maps without any position": (
        build("h = Conv(x, W, b) s = Relu(h) y = Conv(s, V)", "float[N,2,2,2] x",
              "float[N,2,P,Q] y", W=np.zeros((6, 2, 3, 3), np.float32),
              V=np.ones((2, 6, 1, 1), np.float32), b=np.ones(6, np.float32)), ""),
    "layer that reads nothing": (
        build("z = Abs(x) h = MatMul(z, W) s = Relu(h) y = MatMul(s, V)", "float[N,0] x",
              "float[N,2] y", W=np.ones((0, 6), np.float32), V=np.ones((6, 2), np.float32)), ""),
    "opset 10^9": (edited(lambda m: setattr(m.opset_import[0], "version", 10**9)), ""),
    "IR 10^9": (
        edited(lambda m: setattr(m, "ir_version", 10**9)), "ir_version 1000000000 is higher"),
}  # fmt: skip
"""Models, and what `inspect` and `optimize` refuse them with, if they do."""


@pytest.mark.parametrize("name", ODD)
@pytest.mark.filterwarnings("error")
def test_an_odd_model_gets_an_answer_or_one_line(tmp_path: Path, name: str) -> None:
    model, message = ODD[name]
    path = tmp_path / "in.onnx"
    onnx.save(model, path)
    for command in (
        ("inspect", path),
        ("optimize", path, tmp_path / "out.onnx"),
        ("verify", path, path),
    ):
        done = run(*command)
        assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
        assert done.exit_code in (0, 1)
        assert "unexpected error" not in done.stderr
        if message and command[0] != "verify":
            assert done.exit_code == 1
            (line,) = done.stderr.splitlines()
            assert line.startswith("onnxfde: ")
            assert message in line
    assert (tmp_path / "out.onnx").exists() == (not message)


@pytest.mark.parametrize("words", [("inspect",), ("optimize", "--keep", "50%")])
def test_names_do_not_steer_the_terminal(words: tuple[str, ...], tmp_path: Path) -> None:
    """Escapes, line breaks, and marks that turn the direction of what follows."""
    odd, (command, *more) = "a\x1b[31m\r\nb\x07\N{RIGHT-TO-LEFT OVERRIDE}c", words
    model = tmp_path / "in.onnx"
    onnx.save(edited(lambda m: setattr(m.graph.node[0], "name", odd)), model)
    done = run(command, model, *([model] * (command == "optimize")), *more)
    assert done.exit_code == 0, done.stderr
    assert "a [31m  b  c" in done.stdout
    assert all(c.isprintable() for c in (done.stdout + done.stderr).replace("\n", ""))
