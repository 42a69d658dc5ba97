"""Models for tests: a graph as text, weights as arrays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from onnx import numpy_helper

from onnxfde.errors import RuntimeUnavailable
from onnxfde.graph.input_specs import input_specs
from onnxfde.graph.model import Graph
from onnxfde.graph.protos import ModelProto
from onnxfde.running.runtime import load, run_all
from onnxfde.running.samples import Samples

Array = npt.NDArray[Any]
OLD_MODEL = ModelProto(ir_version=1, graph={}).SerializeToString()
"""A file that OUT may replace: the smallest one with a version and a graph."""


def build(
    body: str,
    inputs: str = "float[N,3] x",
    outputs: str = "float[N,2] y",
    opset: int = 17,
    ir: int = 9,
    **weights: Any,
) -> ModelProto:
    """A model from the text of its nodes and its initializers."""
    text = (
        f'<ir_version: {ir}, opset_import: ["": {opset}]> g ({inputs}) => ({outputs}) {{ {body} }}'
    )
    model = onnx.parser.parse_model(text)
    for name, values in weights.items():
        model.graph.initializer.append(numpy_helper.from_array(np.asarray(values, order="C"), name))
    return model


def outputs_of(model: ModelProto, x: Array, **others: Array) -> list[Array]:
    """What onnxruntime (or onnx.reference) makes of inputs.

    Skips a test of an operator of onnxruntime's own domain for a type that this version of it has
    no kernel for: nothing else can run it.
    """
    specs = input_specs(Graph(model))
    arrays = {specs[0].name: x, **others}
    try:
        found = run_all(load(model, None), Samples(specs, arrays, "test"))
        return [output.values for output in found]
    except RuntimeUnavailable as reason:
        if "com.microsoft" in str(reason) and "types are incompatible" in str(reason):
            pytest.skip("this onnxruntime has no kernel for the type")
        raise


def twins(
    distinct: int = 3, copies: int = 2, inputs: int = 3, outputs: int = 2, seed: int = 0
) -> tuple[Array, Array, Array, Array]:
    """W, b, V, c of a layer in which each neuron is present several times, scaled and flipped."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(distinct, inputs + 1))
    scale = rng.choice([-4.0, -0.5, 0.25, 2.0], size=(distinct * copies, 1))
    incoming = np.tile(rows, (copies, 1)) * scale
    outgoing = rng.normal(size=(outputs, distinct * copies)) / scale.T**2
    offset = rng.normal(size=outputs)
    arrays = (incoming[:, :-1], incoming[:, -1], outgoing, offset)
    w, b, v, c = (a.astype(np.float32) for a in arrays)
    return w, b, v, c


def mlp(w: Array, b: Array, v: Array, c: Array, *, batch: str = "N") -> ModelProto:
    """Gemm → Mul(h, h) → Gemm."""
    return build(
        "[first] h = Gemm <transB = 1> (x, W, b) [square] s = Mul(h, h) "
        "[second] y = Gemm <transB = 1> (s, V, c)",
        inputs=f"float[{batch},{w.shape[1]}] x",
        outputs=f"float[{batch},{v.shape[0]}] y",
        W=w,
        b=b,
        V=v,
        c=c,
    )


def shapes(model: ModelProto) -> dict[str, list[int]]:
    """The shape of every initializer."""
    return {tensor.name: list(tensor.dims) for tensor in model.graph.initializer}


def contents(folder: Path) -> dict[str, bytes]:
    """All files below a folder."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}
