"""Rows of windows: multiplied by a reader's matrix they are what onnxruntime makes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from onnxfde.errors import RuntimeUnavailable
from onnxfde.graph.axes import Port, Reader
from onnxfde.graph.axis_readers import reader_bias, reader_matrix
from onnxfde.graph.model import Graph
from onnxfde.graph.node_windows import NodeWindows
from onnxfde.graph.protos import ModelProto
from onnxfde.running.windows import Windows
from tests.models import Array, build, outputs_of

CHANNELS, OUTPUTS = 3, 2


def reader_in(model: ModelProto) -> Reader:
    """The only product of a model, as a reader of channels."""
    node = next(n for n in model.graph.node if n.op_type in ("Conv", "Gemm", "MatMul"))
    ones, zeros = np.ones(OUTPUTS), np.zeros(OUTPUTS)
    bias = Port(node, 2, 0) if len(node.input) > 2 else None
    columns = np.zeros((CHANNELS, 0), np.intp)
    return Reader(node, "x", Port(node, 1, 1), columns, "y", ones, zeros, bias)


def conv(
    lengths: list[int], kernel: list[int], options: dict[str, Any], seed: int = 0
) -> ModelProto:
    rng = np.random.default_rng(seed)
    texts = [f"{k} = {v!r}".replace("'", '"') for k, v in options.items()]
    shape = ",".join(map(str, ["N", CHANNELS, *lengths]))
    return build(
        f"y = Conv <{', '.join(texts)}> (x, W, b)",
        inputs=f"float[{shape}] x",
        outputs=f"float[{','.join(['N', str(OUTPUTS), *('ABC'[: len(lengths)])])}] y",
        W=rng.normal(size=(OUTPUTS, CHANNELS, *kernel)).astype(np.float32),
        b=rng.normal(size=OUTPUTS).astype(np.float32),
    )


def check_rows(model: ModelProto, x: Array, most: int = 7) -> None:
    """φ Wᵀ + b is the output at the same positions."""
    graph, reader = Graph(model), reader_in(model)
    (made,) = outputs_of(model, x)
    windows = Windows.of(graph, reader)
    drawn = windows.drawn(made, most, (0, 0))
    rows = windows.rows(x, drawn).astype(np.float64)
    found = rows @ reader_matrix(graph, reader).T + reader_bias(graph, reader)
    np.testing.assert_allclose(found, windows.outputs(made, drawn), rtol=0, atol=2e-4)


@st.composite
def convolutions(draw: st.DrawFn) -> tuple[list[int], list[int], dict[str, Any]]:
    axes = draw(st.integers(1, 2))

    def each(low: int, high: int, count: int = axes) -> list[int]:
        return draw(st.lists(st.integers(low, high), min_size=count, max_size=count))

    lengths, kernel = each(5, 9), each(1, 3)
    options: dict[str, Any] = {"strides": each(1, 3), "dilations": each(1, 2)}
    padding = draw(st.sampled_from(["pads", "none", "VALID", "SAME_UPPER", "SAME_LOWER"]))
    if padding == "pads":
        options["pads"] = each(0, 2, 2 * axes)
    elif padding != "none":
        options["auto_pad"] = padding
    if padding.startswith("SAME"):
        options["dilations"] = [1] * axes
    return lengths, kernel, options


@settings(max_examples=60)
@given(convolutions(), st.integers(0, 2**32 - 1))
def test_rows_of_a_convolution(
    shape: tuple[list[int], list[int], dict[str, Any]], seed: int
) -> None:
    lengths, kernel, options = shape
    x = np.random.default_rng(seed).normal(size=(4, CHANNELS, *lengths)).astype(np.float32)
    model = conv(lengths, kernel, options, seed % 1000)
    spans = [(k - 1) * d + 1 for k, d in zip(kernel, options["dilations"], strict=True)]
    assume(all(span <= length for span, length in zip(spans, lengths, strict=True)))
    check_rows(model, x)


@pytest.mark.parametrize(
    ("body", "between"),
    [
        ("Gemm <transB = 1, alpha = 0.5> (x, W, b)", ()),
        *(("MatMul (x, W)", between) for between in ((), (3,), (4, 5))),
    ],
)
def test_rows_of_a_dense_layer(body: str, between: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    weight = rng.normal(size=(OUTPUTS, CHANNELS) if "Gemm" in body else (CHANNELS, OUTPUTS))
    lengths = ",".join(map(str, ("N", *between)))
    model = build(
        f"y = {body}",
        inputs=f"float[{lengths},{CHANNELS}] x",
        outputs=f"float[{lengths},{OUTPUTS}] y",
        W=weight.astype(np.float32),
        b=rng.normal(size=OUTPUTS).astype(np.float32),
    )
    check_rows(model, rng.normal(size=(6, *between, CHANNELS)).astype(np.float32))


def test_positions_of_each_sample_are_drawn_once_and_reach_the_borders() -> None:
    made = np.zeros((200, OUTPUTS, 6, 6), np.float32)
    drawn = Windows(NodeWindows((1, 1), (1, 1), (1, 1), (0,) * 4, b"NOTSET")).drawn(made, 9, (0, 1))
    rows, columns = drawn.places
    places = np.stack([drawn.samples, rows, columns])
    assert len(np.unique(places, axis=1).T) == len(rows) == 200 * 9
    counts = np.bincount(rows * 6 + columns, minlength=36)
    assert counts.min() > 25
    assert counts.max() < 80


def test_the_same_seed_draws_the_same_positions() -> None:
    made = np.zeros((3, OUTPUTS, 8, 8), np.float32)
    windows = Windows(NodeWindows((1, 1), (1, 1), (1, 1), (0,) * 4, b"NOTSET"))
    first, again, other = (windows.drawn(made, 5, (0, n)) for n in (1, 1, 2))
    np.testing.assert_array_equal(first.places, again.places)
    assert not np.array_equal(first.places, other.places)


def test_windows_that_do_not_fit_the_output_are_refused() -> None:
    windows = Windows(NodeWindows((3,), (1,), (1,), (0, 0), b"NOTSET"))
    drawn = windows.drawn(np.zeros((2, OUTPUTS, 9)), 3, (0, 0))
    with pytest.raises(RuntimeUnavailable, match=r"9,. positions of .6,. windows"):
        windows.rows(np.zeros((2, CHANNELS, 8)), drawn)
