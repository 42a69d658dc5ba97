"""What `inspect` finds besides layers."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from typer.testing import CliRunner

import onnxfde
from onnxfde.command.main import app
from onnxfde.graph.match import Refusal
from onnxfde.graph.model import Graph
from onnxfde.graph.protos import ModelProto
from onnxfde.inspection import SHOWN_EPS, Inspection, LayerView, why_nothing
from onnxfde.options import Int8
from onnxfde.passes.result import LayerChange, PassResult
from tests.conv_models import images, normal, residual
from tests.models import build


def test_inspect_shows_the_affine_maps_that_optimize_folds(tmp_path: Path) -> None:
    """The end of a LeNet-5 without activations between its Gemms."""
    rng = np.random.default_rng(0)
    shapes = {"A": (40, 12), "B": (12, 8), "C": (8, 5)}
    weights: dict[str, Any] = {n: rng.normal(size=s).astype(np.float32) for n, s in shapes.items()}
    model = build(
        "[one] a = MatMul(x, A) [two] b = MatMul(a, B) [three] y = MatMul(b, C)",
        inputs="float[N,40] x",
        outputs="float[N,5] y",
        **weights,
    )
    found = onnxfde.inspect(model)
    folded = onnxfde.optimize(model).report.folded
    assert found.folds == folded
    assert len(found.folds) == 2
    path = tmp_path / "in.onnx"
    onnx.save(model, path)
    shown = CliRunner().invoke(app, ["inspect", str(path)]).stdout
    assert shown.count("can fold") == len(found.folds)
    assert "No layer found" in shown


@pytest.mark.parametrize(
    ("useful", "hint"),
    [
        (1e-12, ""),
        (1.86e-6, "a larger ε merges some"),
        (0.0123, "something merges at ε = 0.0123"),
    ],
)
def test_an_eps_below_rounding_is_no_advice(useful: float, hint: str) -> None:
    model = Graph(build("y = Identity(x)", outputs="float[N,3] y"))
    layer = LayerChange(
        "fc", 3, 2, 6, 6, 6, 38, 38, (), eps=0.0, error=0.0, lower_bound=None, measured_error=0.0,
        dtype="float32", useful_eps=useful,
    )  # fmt: skip
    text = why_nothing(model, PassResult(model, layers=(layer,)))
    assert text == "; ".join(filter(None, ("no neurons merge at this setting", hint)))


def shown(model: ModelProto, folder: Path, *words: str) -> str:
    onnx.save(model, folder / "in.onnx")
    done = CliRunner().invoke(app, ["inspect", str(folder / "in.onnx"), *words])
    assert done.exit_code == 0, done.output
    return done.stdout


def test_channels_without_data(tmp_path: Path) -> None:
    """What goes without loss is known, and why other convolutions make no axis."""
    wide = normal(16, 8, 3, 3)
    wide[2] = wide[9]
    found = onnxfde.inspect(residual(W=wide, b=np.resize(np.float32(0.5), 16)))
    by_name = {layer.name: layer for layer in found.layers}
    assert {name: layer.lossless for name, layer in by_name.items()} == {"wide": 15, "last": 24}
    view = by_name["wide"]
    assert (view.kind, view.activation) == ("channels", "Relu")
    assert (view.inputs, view.neurons, view.outputs) == (72, 16, 8)
    assert view.neurons_at == {eps: 15 if eps == 0 else None for eps in SHOWN_EPS}
    assert found.nothing is None
    assert found.other_activations == {"Relu": 2}
    reasons = {refusal.node: refusal.reason for refusal in found.refused}
    assert "a residual stream" in reasons["stem"]
    assert found.multiply_adds == 64 * 9 * (8 * 3 + 16 * 8 * 2) + 9 * 9 * 24 * 8 + 4 * 24
    text = shown(residual(W=wide), tmp_path)
    assert "measured on real inputs: give --data" in text
    assert "ε 0.1" not in text
    assert f"work        {found.multiply_adds:,} multiply-adds" in text
    assert "left alone  stem: Add 'sum' adds the channels" in text


def test_channels_with_data_are_those_that_optimize_leaves(tmp_path: Path) -> None:
    x = images(300)
    np.savez(tmp_path / "data.npz", x=x)
    found = onnxfde.inspect(residual(), data=x)
    done = onnxfde.optimize(residual(), 0.2, data=x, quotient="refit", verify=False).report
    assert {v.name: v.neurons_at[0.2] for v in found.layers} == {
        layer.name: layer.neurons_after for layer in done.layers
    }
    assert [v.neurons_at[0.3] for v in found.layers] != [v.neurons for v in found.layers]
    text = shown(residual(), tmp_path, "--data", str(tmp_path / "data.npz"))
    assert "ε 0.1" in text
    assert "Channels left by ε" in text


def test_a_range_that_is_given_shows_more() -> None:
    bias = normal(16)
    bias[3] = -60.0
    counts = [
        {v.name: v.lossless for v in onnxfde.inspect(residual(b=bias), input_range=limits).layers}
        for limits in (None, (-1.0, 1.0))
    ]
    assert [found["wide"] for found in counts] == [16, 15]


def test_dense_layers_stand_beside_channels() -> None:
    model = residual(G=normal(12, 24))
    nodes = build(
        "q = Relu(y0) [end] y = Gemm <transB = 1> (q, H)", inputs="float[N,12] y0",
        outputs="float[N,2] y", H=normal(2, 12),
    ).graph  # fmt: skip
    model.graph.node[-1].output[0] = "y0"
    model.graph.node.extend(nodes.node)
    model.graph.initializer.extend(nodes.initializer)
    model.graph.output[0].CopyFrom(nodes.output[0])
    kinds = {v.name: v.kind for v in onnxfde.inspect(model).layers}
    assert kinds == {"wide": "channels", "last": "channels", "head": "dense"}


@pytest.mark.parametrize("mode", ["dynamic", "static"])
def test_a_quantized_model_is_told_to_begin_with_the_float_one(mode: Int8) -> None:
    small = onnxfde.optimize(residual(), 0, int8=mode, data=images(50)).model
    told = "the model is quantized already: optimize the float model, then quantize it (--int8)"
    assert onnxfde.inspect(small).nothing == told
    assert onnxfde.optimize(small).report.unchanged == told


def test_a_network_of_depthwise_convolutions_is_told_what_it_lacks() -> None:
    model = build(
        "h = Conv <group = 4> (x, W) y = Relu(h)",
        inputs="float[N,4,8,8] x",
        outputs="float[N,4,A,B] y",
        W=normal(4, 1, 3, 3),
    )
    nothing = onnxfde.inspect(model).nothing or ""
    assert nothing.startswith("the model has no channels between two convolutions")
    assert nothing.endswith("its activations are 1 × Relu")


def test_the_page_lists_every_field() -> None:
    page = (Path(onnxfde.__file__).parent / "REPORT.md").read_text(encoding="utf-8")
    text = page[page.index("`onnxfde inspect --json FILE` writes") : page.index("## verify")]
    fields = {*re.findall(r"`(\w+)(?:\[\])?`", text)}
    for kind in (Inspection, LayerView, Refusal):
        assert {f.name for f in dataclasses.fields(kind)} <= fields


def test_an_input_of_a_type_that_does_not_exist_is_shown() -> None:
    model = build("y = MatMul(x, W)", W=np.ones((3, 2), np.float32))
    model.graph.input[0].type.tensor_type.elem_type = -1
    assert [value.type for value in onnxfde.inspect(model).inputs] == ["unknown"]
