"""Windows by a node's attributes: what is computed in them is what onnxruntime makes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from onnxfde.graph.affine_maps import NoMatch
from onnxfde.graph.node_windows import NodeWindows, node_window
from onnxfde.graph.protos import ModelProto
from onnxfde.neurons.map_operations import Convolution, MaxPool
from tests.models import Array, build, outputs_of

CHANNELS, OUTPUTS = 2, 3


def windowed(call: str, lengths: list[int], options: dict[str, Any], **weights: Any) -> ModelProto:
    """One node with windows."""
    operator, _, inputs = call.partition("(")
    texts = ", ".join(f"{k} = {v!r}".replace("'", '"') for k, v in options.items())
    axes = "ABC"[: len(lengths)]
    return build(
        f"y = {operator} <{texts}> ({inputs}",
        inputs=f"float[N,{CHANNELS},{','.join(map(str, lengths))}] x",
        outputs=f"float[N,M,{','.join(axes)}] y",
        **weights,
    )


def as_maps(a: Array) -> Array:
    return a[:, :, None, :] if a.ndim == 3 else a


@st.composite
def window_options(draw: st.DrawFn, axes: int) -> dict[str, Any]:
    def each(low: int, high: int, count: int = axes) -> list[int]:
        return draw(st.lists(st.integers(low, high), min_size=count, max_size=count))

    options: dict[str, Any] = {"strides": each(1, 3), "dilations": each(1, 2)}
    kind = draw(st.sampled_from(["pads", "none", "VALID", "SAME_UPPER", "SAME_LOWER"]))
    if kind == "pads":
        return {**options, "pads": each(0, 1, 2 * axes)}
    if kind.startswith("SAME"):
        options["dilations"] = [1] * axes
    return options if kind == "none" else {**options, "auto_pad": kind}


@settings(max_examples=60)
@given(st.data(), st.integers(1, 2))
def test_a_convolution_in_these_windows_is_that_of_onnxruntime(
    data: st.DataObject, axes: int
) -> None:
    lengths = data.draw(st.lists(st.integers(5, 9), min_size=axes, max_size=axes))
    kernel = data.draw(st.lists(st.integers(1, 3), min_size=axes, max_size=axes))
    options = data.draw(window_options(axes))
    rng = np.random.default_rng(0)
    weight = rng.normal(size=(OUTPUTS, CHANNELS, *kernel)).astype(np.float32)
    bias = rng.normal(size=OUTPUTS).astype(np.float32)
    model = windowed("Conv(x, W, b)", lengths, options, W=weight, b=bias)
    x = rng.normal(size=(2, CHANNELS, *lengths)).astype(np.float32)
    (expected,) = outputs_of(model, x)
    size = (1, lengths[0]) if axes == 1 else (lengths[0], lengths[1])
    window = node_window(model.graph.node[0], tuple(kernel), size)
    made = Convolution(weight.reshape(OUTPUTS, CHANNELS, *window.kernel), bias, window=window)
    found, _ = made.forward(as_maps(x))
    np.testing.assert_allclose(found, as_maps(expected), rtol=0, atol=1e-5)


@settings(max_examples=40)
@given(st.data(), st.integers(1, 2))
def test_a_pool_in_these_windows_is_that_of_onnxruntime(data: st.DataObject, axes: int) -> None:
    lengths = data.draw(st.lists(st.integers(5, 9), min_size=axes, max_size=axes))
    kernel = data.draw(st.lists(st.integers(2, 3), min_size=axes, max_size=axes))
    options = data.draw(window_options(axes))
    assume(options["dilations"] == [1] * axes)
    if options.get("auto_pad", "VALID") != "VALID":
        options["strides"] = list(map(min, options["strides"], kernel))
    model = windowed(
        "MaxPool(x)",
        lengths,
        {**options, "kernel_shape": kernel},
    )
    x = np.random.default_rng(1).normal(size=(2, CHANNELS, *lengths)).astype(np.float32)
    (expected,) = outputs_of(model, x)
    size = (1, lengths[0]) if axes == 1 else (lengths[0], lengths[1])
    window = node_window(model.graph.node[0], tuple(kernel), size)
    found, _ = MaxPool(window=window).forward(as_maps(x))
    np.testing.assert_array_equal(found, as_maps(expected))


@pytest.mark.parametrize(
    ("auto_pad", "expected"), [("SAME_UPPER", (0, 1)), ("SAME_LOWER", (1, 0)), ("VALID", (0, 0))]
)
def test_an_odd_element_of_padding_is_where_auto_pad_says(
    auto_pad: str, expected: tuple[int, int]
) -> None:
    model = windowed(
        "Conv(x, W)", [8], {"auto_pad": auto_pad, "strides": [2]}, W=np.zeros((1, 2, 3))
    )
    assert NodeWindows.of(model.graph.node[0], (3,)).padding([8]) == [expected]


@pytest.mark.parametrize(
    ("options", "kernel", "reason"),
    [
        ({"ceil_mode": 1, "kernel_shape": [2, 2]}, (2, 2), "cut off"),
        ({"kernel_shape": [2, 2, 2]}, (2, 2, 2), "windows with 3 axes"),
        (
            {"kernel_shape": [2, 2], "strides": [3, 1], "auto_pad": "SAME_UPPER"},
            (2, 2),
            "engines pad differently",
        ),
    ],
)
def test_windows_that_maps_do_not_have_are_refused(
    options: dict[str, Any], kernel: tuple[int, ...], reason: str
) -> None:
    model = windowed("MaxPool(x)", [6] * len(kernel), options)
    with pytest.raises(NoMatch, match=reason):
        node_window(model.graph.node[0], kernel, (6, 6))
