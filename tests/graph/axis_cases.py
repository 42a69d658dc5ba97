"""Axes for tests: convolutional models as text, and models whose units are zeroed or removed."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from onnxfde.graph.axes import Axis
from onnxfde.graph.axis_readers import reader_bias, reader_matrix
from onnxfde.graph.edit_axes import keep_units, write_reader
from onnxfde.graph.find_axes import find_axes
from onnxfde.graph.model import Graph
from onnxfde.graph.onnx_calls import check
from onnxfde.graph.protos import ModelProto
from onnxfde.running.runtime import load
from tests.models import build, outputs_of

Array = npt.NDArray[Any]
UNITS, OUTPUTS = 6, 3
IMAGE = "float[N,2,8,8] x"


def normal(*shape: int, seed: int = 0, dtype: str = "float32") -> Array:
    """Random numbers; those of a weight are as small as it is wide."""
    wide = max(math.prod(shape[1:]), shape[0] / 6)
    drawn: Array = np.random.default_rng([seed, *shape]).normal(size=shape) / math.sqrt(wide)
    return drawn.astype(dtype)


def image(samples: int = 3) -> Array:
    """Random images."""
    return np.random.default_rng(7).normal(size=(samples, 2, 8, 8)).astype(np.float32)


WEIGHTS = {
    "W": normal(UNITS, 2, 3, 3),
    "b": normal(UNITS),
    "V": normal(OUTPUTS, UNITS, 3, 3),
    "c": normal(OUTPUTS),
}
"""A Conv that makes 6 units, and one that reads them."""


def between(body: str, reader: str = "y = Conv(r, V, c)", **weights: Any) -> ModelProto:
    """Conv → nodes that make r from h → a reader that makes y."""
    opset, outputs = weights.pop("opset", 17), weights.pop("outputs", "float[N,M,P,Q] y")
    text = f"[first] h = Conv <pads = [1, 1, 1, 1]> (x, W, b) {body} [second] {reader}"
    used = {n: a for n, a in {**WEIGHTS, **weights}.items() if names(text) & {n}}
    return build(text, inputs=IMAGE, outputs=outputs, opset=opset, **used)


def names(text: str) -> set[str]:
    """The words of a text."""
    for mark in "(),=":
        text = text.replace(mark, " ")
    return set(text.split())


def axes_of(model: ModelProto) -> list[Axis]:
    """The axes of a model."""
    return find_axes(Graph(model))[0]


def some(units: int, seed: int = 0) -> npt.NDArray[np.intp]:
    """Some of so many units, in rising order."""
    rng = np.random.default_rng([seed, units])
    return np.sort(rng.choice(units, max(1, (2 * units) // 3), replace=False))


def zeroed(model: ModelProto, seed: int = 0) -> ModelProto:
    """The model, whose readers ignore the units that `narrow` removes."""
    graph = Graph(model).copied()
    for axis in find_axes(graph)[0]:
        gone = np.setdiff1d(np.arange(axis.units), some(axis.units, seed))
        for reader in axis.readers:
            matrix = reader_matrix(graph, reader).copy()
            matrix[:, reader.columns[gone].ravel()] = 0
            write_reader(graph, reader, matrix, reader_bias(graph, reader))
    return graph.model


def narrow(model: ModelProto, seed: int = 0) -> ModelProto:
    """The model with some units of all axes."""
    graph = Graph(model).copied()
    for axis in find_axes(graph)[0]:
        keep_units(graph, axis, some(axis.units, seed))
    check(graph.model, "the narrow model")
    return graph.model


def assert_same_without_units(model: ModelProto, x: Array, atol: float = 1e-5) -> None:
    """Removing units does what ignoring them does, and is run by the same engine."""
    assert load(narrow(model), None).engine == load(model, None).engine
    expected, found = outputs_of(zeroed(model), x), outputs_of(narrow(model), x)
    original = outputs_of(model, x)
    for before, a, b in zip(original, expected, found, strict=True):
        np.testing.assert_allclose(b, a, rtol=0, atol=atol)
        assert before.shape == a.shape
        assert not np.allclose(before, a, rtol=0, atol=1e-3)
