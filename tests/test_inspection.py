"""What `inspect` finds besides layers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from typer.testing import CliRunner

import onnxfde
from onnxfde.command.main import app
from onnxfde.graph.model import Graph
from onnxfde.inspection import why_nothing
from onnxfde.passes.result import LayerChange, PassResult
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
    ("useful", "hint"), [(1e-12, ""), (0.0123, "something merges at ε = 0.0123")]
)
def test_an_eps_below_rounding_is_no_advice(useful: float, hint: str) -> None:
    model = Graph(build("y = Identity(x)", outputs="float[N,3] y"))
    layer = LayerChange(
        "fc", 3, 2, 6, 6, 6, 38, 38, (), eps=0.0, error=0.0, lower_bound=None, measured_error=0.0,
        dtype="float32", useful_eps=useful,
    )  # fmt: skip
    text = why_nothing(model, PassResult(model, layers=(layer,)))
    assert text == "; ".join(filter(None, ("no neurons merge at this setting", hint)))
