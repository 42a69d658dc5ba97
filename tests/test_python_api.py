"""What Python callers may pass, and what they are told if it makes no sense."""

from __future__ import annotations

import inspect
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import onnxfde
from onnxfde.demo import demo_data, demo_model
from onnxfde.errors import DataError, ModelError, OnnxfdeError, OptionError, UsageError
from onnxfde.options import MoreOptions
from tests.models import build, mlp, twins

MODEL = mlp(*twins())
X = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
TWO_INPUTS = build(
    "s = Add(x, z) y = MatMul(s, W)",
    inputs="float[N,3] x, float[N,3] z",
    W=np.ones((3, 2), np.float32),
)


@pytest.mark.parametrize("data", [X, X.tolist(), {"x": X}, {"x": X.tolist()}])
def test_an_array_or_arrays_by_name_are_data_everywhere(data: Any) -> None:
    named = onnxfde.optimize(MODEL, eps=0.1, data={"x": X}).report
    report = onnxfde.optimize(MODEL, eps=0.1, data=data).report
    assert report.layers == named.layers
    assert report.verification is not None
    assert (report.verification.samples, report.verification.source) == (40, "the data")
    assert onnxfde.inspect(MODEL, data=data) == onnxfde.inspect(MODEL, data={"x": X})
    assert onnxfde.verify(MODEL, MODEL, data=data).samples == 40


def test_arrays_give_what_their_file_gives() -> None:
    with np.load(demo_data()) as file:
        arrays = dict(file)
    options: Any = {"eps": 0.1, "quotient": "refit"}
    from_file, from_arrays, from_one = (
        onnxfde.optimize(demo_model(), data=data, **options).report
        for data in (demo_data(), arrays, arrays["x"])
    )
    assert from_file.layers == from_arrays.layers == from_one.layers
    assert from_arrays.verification is not None
    assert from_one.verification is not None
    assert (from_arrays.verification.metric, from_one.verification.metric) == ("MSE", None)


def test_one_array_is_not_enough_for_two_inputs() -> None:
    for call in (onnxfde.inspect, onnxfde.optimize):
        with pytest.raises(DataError, match=r"the model has 2 inputs: .* names \(x, z\) to arrays"):
            call(TWO_INPUTS, data=X)


@pytest.mark.parametrize(
    "data",
    [
        3,
        b"x.npz",
        object(),
        ["a", "b"],
        [[1.0, 2.0], [3.0]],
        {"x": None},
        {"x": "abc"},
        {1: X, 2: X},
    ],
)
def test_what_is_no_data_is_a_data_error(data: Any) -> None:
    for call in (onnxfde.inspect, onnxfde.optimize):
        with pytest.raises(DataError):
            call(MODEL, data=data)


def test_inputs_and_labels_as_a_pair_are_told_how_they_are_given() -> None:
    pair: Any = (X, np.arange(len(X)))
    with pytest.raises(DataError, match="several arrays are given by their names"):
        onnxfde.optimize(MODEL, data=pair)


@pytest.mark.parametrize("model", [3, b"x.onnx", None, [MODEL]])
def test_what_is_no_model_is_a_model_error(model: Any) -> None:
    for call in (onnxfde.inspect, onnxfde.optimize):
        with pytest.raises(ModelError, match="give a path or a ModelProto"):
            call(model)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"eps": 0.1, "neurons": 3},
            "--eps cannot be combined with --neurons, --keep or a goal of the whole model",
        ),
        (
            {"eps": 0.1, "keep": 0.5},
            "--eps cannot be combined with --neurons, --keep or a goal of the whole model",
        ),
        ({"layer_eps": {"first": 0.1}, "keep": 0.5}, "--eps cannot be combined"),
        ({"neurons": 3, "keep": 0.5}, "--neurons and --keep cannot be combined"),
        (
            {"keep": 25},
            "--keep 25 is not a fraction .* for 25 % give 25% or 0.25",
        ),
        ({"keep": 0}, "--keep 0 is not a fraction"),
        ({"keep": "25%"}, "--keep '25%' is not a number; a share is 0.5"),
        ({"eps": "0.1"}, "--eps '0.1' is not a number"),
        ({"eps": True}, "--eps True is not a number"),
        ({"eps": np.zeros(2)}, "is not a number"),
        ({"eps": -1}, "--eps -1 is not a number ≥ 0"),
        ({"neurons": 2.5}, "--neurons 2.5 is not a whole number"),
        ({"seed": "a"}, "--seed 'a' is not a whole number"),
        ({"max_certified_error": "a"}, "--max-certified-error 'a' is not a number"),
        ({"layer_eps": {"first": "a"}}, "--eps first='a' is not a number"),
        ({"layer_eps": 0.1}, "layer_eps 0.1 is not a mapping"),
        ({"layers": 3}, "--layers 3 is not a list"),
        ({"skip": [3]}, r"--skip \[3\] is not a list"),
        ({"verify": "no"}, "--verify 'no' is not true or false"),
        ({"semantics": "other"}, "--semantics 'other' is not one of budget, paper, erode"),
        ({"data": X, "preprocess": 3}, "--preprocess 3 is not a list of texts"),
        ({"data": X, "preprocess": ["mean"]}, "--preprocess mean: 'mean' is not WORD=VALUE"),
        ({"data": X, "inputs": "x=a"}, "inputs 'x=a' is not a mapping from inputs to arrays"),
        ({"data": X, "inputs": {"x": 3}}, "inputs {'x': 3} is not a mapping"),
        ({"preprocess": "scale=2"}, "--preprocess says how data becomes inputs: give --data"),
        ({"input_range": 5}, "--input-range must be two numbers"),
        ({"input_range": (0,)}, "--input-range must be two numbers"),
        ({"input_range": "01"}, "--input-range must be two numbers"),
        ({"input_range": (1, 0)}, "--input-range needs finite LO < HI, not 1:0"),
    ],
)
def test_options_are_refused_as_on_the_command_line(options: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        onnxfde.optimize(MODEL, **options)


def test_an_unknown_layer_is_an_option_error() -> None:
    with pytest.raises(OptionError, match="no layer is called 'other'"):
        onnxfde.optimize(MODEL, layers="other")


def test_numbers_of_numpy_are_numbers() -> None:
    plain = onnxfde.optimize(MODEL, eps=0.25, seed=1, layer_eps={"first": 0.5}).report
    options: Any = {
        "eps": np.float32(0.25),
        "seed": np.int64(1),
        "layer_eps": {"first": np.float32(0.5)},
        "input_range": np.array([-1, 1]),
    }
    found = onnxfde.optimize(MODEL, **options).report
    assert json.loads(found.to_json())["settings"] == json.loads(plain.to_json())["settings"]


def test_a_count_needs_no_eps() -> None:
    assert onnxfde.optimize(MODEL, neurons=2).report.layers[0].neurons_after == 2


def test_every_option_is_documented() -> None:
    for function, more in ((onnxfde.optimize, MoreOptions.__annotations__), (onnxfde.bench, {})):
        parameters = {*inspect.signature(function).parameters, *more} - {"options"}
        text = (function.__doc__ or "").partition("Raises:")[0]
        documented = set(re.findall(r"^ {8}(\w+): ", text, re.MULTILINE))
        assert documented == parameters


def test_bench_takes_models_from_memory_and_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    onnx.save(MODEL, tmp_path / "a.onnx")
    broken = build("y = Identity(x)", "string[N] x", "string[N] y")
    found = onnxfde.bench([tmp_path / "a.onnx", MODEL, broken], seconds=0, data=X, batches=2)
    assert [model.file for model in found.models] == [
        str(tmp_path / "a.onnx"), "model 2", "model 3",
    ]  # fmt: skip
    first, second, third = found.targets[0].lines
    assert first.latencies[0].p50
    assert second.latencies[0].p50
    assert third.latencies == ()
    assert str(tmp_path) not in (found.models[2].error or "")
    assert found.settings["data"] == "arrays"
    assert [path.name for path in tmp_path.iterdir()] == ["a.onnx"]


def test_bench_takes_a_single_model_and_a_single_target() -> None:
    found = onnxfde.bench(MODEL, targets="cpu", seconds=0)
    assert [model.file for model in found.models] == ["model 1"]
    assert found.targets[0].lines[0].latencies[0].p50


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"models": 3}, "a model is a int"),
        ({"models": [b"a"]}, "a model is a bytes"),
        ({"batches": "1"}, "--batch '1'"),
        ({"batches": [1.5]}, r"--batch \[1.5\]"),
        ({"threads": "2"}, "--threads '2' is not a number"),
        ({"threads": 1.5}, "--threads 1.5 is not a number from 1"),
        ({"seconds": "x"}, "--seconds 'x' is not a number"),
        ({"timeout": None}, "--timeout None is not a number"),
        ({"targets": "gpu"}, "--target gpu: unknown target"),
        ({"targets": 3}, "targets 3"),
        ({"shapes": 3}, "shapes 3"),
        ({"shapes": {"x": 3}}, "shapes"),
        ({"input_range": 3}, "--input-range must be two numbers"),
    ],
)
def test_bench_refuses_what_makes_no_sense(options: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        onnxfde.bench(**{"models": MODEL, "seconds": 0, **options})


def test_the_types_of_arguments_can_be_imported_and_all_errors_caught() -> None:
    assert {"Data", "Model", "Range", "Progress", "OnnxfdeError"} <= set(onnxfde.__all__)
    for kind in (DataError, ModelError, OptionError, UsageError):
        assert issubclass(kind, OnnxfdeError)
    for name in ("Data", "Range"):
        assert name in (onnxfde.__doc__ or "")
