"""Kinds of convolutional networks on the command line: found, without loss, and within ε."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from onnxfde.graph.find_axes import find_axes
from onnxfde.graph.model import Graph
from onnxfde.graph.protos import ModelProto
from tests.command.running import run
from tests.conv_models import (
    images,
    inverted_residual,
    of_signals,
    relative_change,
    vgg_like,
    with_idle_nodes,
    with_resize,
)
from tests.models import outputs_of

EPS, ROOM = 0.2, 1.25
"""The error that each axis may have, and how far that on unseen inputs may exceed it."""
SHAPES = {"1-D": (2, 32)}
MODELS = {
    "VGG": vgg_like(),
    "MobileNetV2": inverted_residual(),
    "1-D": of_signals(),
    "Resize": with_resize(),
    "idle": with_idle_nodes(),
}
UNITS = {
    "VGG": {"one": 12, "two": 14},
    "MobileNetV2": {"wide": 18, "last": 20},
    "1-D": {"wide": 16},
    "Resize": {"wide": 16},
    "idle": {"wide": 16},
}
PLANTED = {
    "VGG": ("A a", "B b"),
    "MobileNetV2": ("W W1 W0 W2 W3 D D0 D1 D2 D3", "L l"),
    "1-D": ("W b",),
    "Resize": ("W",),
    "idle": ("W",),
}
"""The weights of each axis: those that make it, what is added, and what else each channel has."""
ROUNDING = 2e-5
"""Values of about 1 in float32, summed over hundreds of products."""


def planted(model: ModelProto, axes: tuple[str, ...]) -> ModelProto:
    """A copy in which of each axis channel 1 is channel 0, and channel 2 is never above 0."""
    copy = ModelProto()
    copy.CopyFrom(model)
    tensors = {tensor.name: tensor for tensor in copy.graph.initializer}
    for axis in axes:
        for place, name in enumerate(axis.split()):
            values = numpy_helper.to_array(tensors[name]).copy()
            values[1] = values[0]
            if place < 2:
                values[2] = -1.0 if place else 0.0
            if place == 3:
                values[2] = 0.0  # the mean of a BatchNormalization
            tensors[name].CopyFrom(numpy_helper.from_array(values, name))
    return copy


def units(model: ModelProto) -> dict[str, int]:
    return {axis.name: axis.units for axis in find_axes(Graph(model))[0]}


@pytest.mark.parametrize("name", MODELS)
def test_inspect_finds_its_channels(name: str, tmp_path: Path) -> None:
    path = tmp_path / "in.onnx"
    onnx.save(MODELS[name], path)
    done = run("inspect", path)
    assert done.exit_code == 0
    rows = [line.split() for line in done.stdout.splitlines()]
    for axis, count in UNITS[name].items():
        assert any({axis, str(count)} <= set(row) for row in rows), (axis, done.stdout)


@pytest.mark.parametrize("name", MODELS)
def test_planted_channels_go_and_nothing_changes(name: str, tmp_path: Path) -> None:
    model = planted(MODELS[name], PLANTED[name])
    onnx.save(model, tmp_path / "in.onnx")
    assert run("optimize", tmp_path / "in.onnx", tmp_path / "out.onnx", "--eps", "0").exit_code == 0
    small = onnx.load(tmp_path / "out.onnx")
    assert units(small) == {axis: count - 2 for axis, count in UNITS[name].items()}
    x = images(50, seed=1, shape=SHAPES.get(name, (3, 8, 8)))
    (old,), (new,) = outputs_of(model, x), outputs_of(small, x)
    np.testing.assert_allclose(new, old, rtol=0, atol=ROUNDING)


@pytest.mark.parametrize("name", MODELS)
def test_within_eps_on_inputs_never_seen(name: str, tmp_path: Path) -> None:
    shape = SHAPES.get(name, (3, 8, 8))
    onnx.save(MODELS[name], tmp_path / "in.onnx")
    np.save(tmp_path / "x.npy", images(300, shape=shape))
    words = ["--eps", str(EPS), "--align", "1", "--quotient", "refit"]
    done = run(
        "optimize",
        tmp_path / "in.onnx",
        tmp_path / "out.onnx",
        "--data",
        tmp_path / "x.npy",
        *words,
    )
    assert done.exit_code == 0
    small, whole = onnx.load(tmp_path / "out.onnx"), UNITS[name]
    assert all(count < whole[axis] for axis, count in units(small).items())
    unseen = images(200, seed=1, shape=shape)
    change = relative_change(MODELS[name], small, unseen)
    assert 0 < change <= ROOM * EPS * np.sqrt(len(whole))
