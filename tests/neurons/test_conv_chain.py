"""Operations on maps do what onnxruntime does, have the gradients they claim, can be cropped."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onnxfde.neurons.activation import Activation
from onnxfde.neurons.conv_chain import ConvChain, Numbered
from onnxfde.neurons.map_operations import (
    Activated,
    AveragePool,
    Convolution,
    Dense,
    Depthwise,
    GlobalAverage,
    MaxPool,
    Operation,
    ScaleShift,
)
from onnxfde.neurons.map_windows import MapWindow, part
from onnxfde.neurons.piecewise_activations import RELU
from onnxfde.numbers import Array
from tests.neurons.activation_rows import ROWS, unit_parameters

CHANNELS = 3
WINDOWED = ["Convolution", "Depthwise", "AveragePool", "inner AveragePool", "MaxPool"]
KINDS = [*WINDOWED, "ScaleShift", "Activated"]
seeds = st.integers(0, 2**32 - 1)


@st.composite
def windows(draw: st.DrawFn, pool: bool = False) -> MapWindow:
    """Any kernel, stride, dilation and padding; in a pool each window reaches the map."""
    pairs = st.tuples(st.integers(1, 3), st.integers(1, 3))
    kernel = draw(pairs)
    dilations = draw(st.tuples(st.integers(1, 2), st.integers(1, 2)))
    (rows, columns) = ((k - 1 if pool else 3) for k in kernel)
    pads = draw(
        st.tuples(*(st.tuples(st.integers(0, p), st.integers(0, p)) for p in (rows, columns)))
    )
    return MapWindow(kernel, draw(pairs), dilations, pads)


def operation(
    kind: str, window: MapWindow, rng: np.random.Generator, outputs: int = 2
) -> Operation:
    one = rng.normal(size=CHANNELS)
    match kind:
        case "Convolution":
            weight = rng.normal(size=(outputs, CHANNELS, *window.kernel))
            return Convolution(weight, rng.normal(size=outputs), window=window)
        case "Depthwise":
            return Depthwise(rng.normal(size=(CHANNELS, *window.kernel)), one, window=window)
        case "AveragePool":
            return AveragePool(window=window)
        case "inner AveragePool":
            return AveragePool(window=window, padding_counts=False)
        case "MaxPool":
            return MaxPool(window=window)
        case "ScaleShift":
            return ScaleShift(rng.normal(size=CHANNELS), one)
    return Activated(RELU)


@st.composite
def operations(draw: st.DrawFn, kinds: list[str] = KINDS) -> tuple[Operation, int]:
    """An operation with random numbers, and how large a map it needs at least."""
    kind = draw(st.sampled_from(kinds))
    window = draw(windows(pool="Pool" in kind))
    least = max(d * (k - 1) + 1 for d, k in zip(window.dilations, window.kernel, strict=True))
    return operation(kind, window, np.random.default_rng(draw(seeds)), CHANNELS), least


def slope_along(chain: ConvChain, x: Array, to: Array, factors: Array, step: float = 1e-6) -> float:
    up, down = (np.sum(chain(x + s * to) * factors) for s in (step, -step))
    return float((up - down) / (2 * step))


def check_gradients(found: Operation, x: Array, rng: np.random.Generator) -> None:
    """Directional derivatives of Σ factors · result, along random directions."""
    made, tape = found.forward(x)
    factors, to = rng.normal(size=made.shape), rng.normal(size=x.shape)
    expected = slope_along(ConvChain((found,)), x, to, factors)
    inside = float(np.sum(found.backward(tape, factors) * to))
    np.testing.assert_allclose(inside, expected, rtol=1e-6, atol=1e-6)
    slopes = found.gradients(tape, factors)
    assert slopes.keys() == found.parameters.keys()
    for name, at in found.parameters.items():
        to, step = rng.normal(size=at.shape), 1e-6
        up, down = (
            np.sum(replace(found, **{name: at + s * to}).forward(x)[0] * factors)  # type: ignore[type-var]
            for s in (step, -step)
        )
        np.testing.assert_allclose(
            np.sum(slopes[name] * to), (up - down) / (2 * step), rtol=1e-6, atol=1e-6
        )


@settings(max_examples=200)
@given(operations(), st.integers(0, 4), st.integers(0, 4), seeds)
def test_gradients_are_those_of_finite_differences(
    found: tuple[Operation, int], rows: int, columns: int, seed: int
) -> None:
    made, least = found
    rng = np.random.default_rng(seed)
    check_gradients(made, rng.normal(size=(2, CHANNELS, least + rows, least + columns)), rng)


@pytest.mark.parametrize("kind", ["GlobalAverage", "Dense"])
def test_gradients_of_what_reads_whole_maps(kind: str) -> None:
    rng = np.random.default_rng(0)
    dense = Dense(rng.normal(size=(4, CHANNELS * 6)), rng.normal(size=4))
    made: Operation = dense if kind == "Dense" else GlobalAverage()
    check_gradients(made, rng.normal(size=(5, CHANNELS, 2, 3)), rng)


@pytest.mark.parametrize("row", [ROWS[title] for title in ROWS], ids=str)
def test_gradients_of_every_activation(row: Activation) -> None:
    rng = np.random.default_rng(1)
    made = Activated(row, unit_parameters(row, CHANNELS))
    check_gradients(made, rng.normal(size=(2, CHANNELS, 2, 3)), rng)


@pytest.mark.parametrize("row", [ROWS[title] for title in ROWS], ids=str)
def test_activations_keep_the_type_of_the_maps(row: Activation) -> None:
    x = np.random.default_rng(1).normal(size=(2, CHANNELS, 2, 3)).astype(np.float32)
    made = Activated(row, unit_parameters(row, CHANNELS))
    y, tape = made.forward(x)
    assert y.dtype == made.backward(tape, y).dtype == np.float32


def test_a_missing_bias_is_no_parameter_and_adds_nothing() -> None:
    rng = np.random.default_rng(2)
    x, window = rng.normal(size=(2, CHANNELS, 4, 4)), MapWindow((3, 3))
    for kind in ("Convolution", "Depthwise"):
        made = operation(kind, window, rng)
        without = replace(made, bias=None)  # type: ignore[type-var]
        zero = replace(made, bias=np.zeros_like(made.parameters["bias"]))  # type: ignore[type-var]
        np.testing.assert_array_equal(without.forward(x)[0], zero.forward(x)[0])
        check_gradients(without, x, rng)
        assert without.parameters.keys() == {"weight"}


@settings(max_examples=200)
@given(
    st.lists(operations(), min_size=1, max_size=4), st.integers(0, 9), st.integers(0, 9), st.data()
)
def test_the_result_of_a_crop_is_the_crop_of_the_result(
    found: list[tuple[Operation, int]], rows: int, columns: int, data: st.DataObject
) -> None:
    chain = ConvChain(tuple(made for made, _ in found))
    size = _large_enough(found, rows, columns)
    x = np.random.default_rng(data.draw(seeds)).normal(size=(2, CHANNELS, *size))
    expected = chain(x)
    assert expected.shape[2:] == chain.sizes(size)[-1]
    spans = []
    for length in expected.shape[2:]:
        start = data.draw(st.integers(0, length - 1))
        spans.append((start, data.draw(st.integers(start + 1, length))))
    crop, needed = chain.cropped((spans[0], spans[1]), size)
    inside = part(x, needed)
    assert inside.size
    np.testing.assert_allclose(
        crop(inside), part(expected, (spans[0], spans[1])), rtol=0, atol=1e-10
    )
    made, tapes = crop.forward(inside)
    whole = _masked_gradients(chain, x, spans)
    for key, slope in crop.gradients(tapes, np.ones_like(made)).items():
        np.testing.assert_allclose(slope, whole[key], rtol=0, atol=1e-8)


def _masked_gradients(chain: ConvChain, x: Array, spans: list[tuple[int, int]]) -> Numbered:
    made, tapes = chain.forward(x)
    factors = np.zeros_like(made)
    part(factors, (spans[0], spans[1]))[...] = 1.0
    return chain.gradients(tapes, factors)


def _large_enough(found: list[tuple[Operation, int]], rows: int, columns: int) -> tuple[int, int]:
    """A size whose maps are at no operation smaller than it needs."""
    chain = ConvChain(tuple(made for made, _ in found))
    for length in range(1, 200):
        size = length + rows, length + columns
        sizes = chain.sizes(size)
        if all(min(s) >= need for s, (_, need) in zip(sizes, found, strict=False)):
            return size
    raise AssertionError("no size is large enough")


def test_what_reads_whole_maps_is_not_cropped() -> None:
    rng = np.random.default_rng(3)
    chain = ConvChain((operation("Convolution", MapWindow((2, 2)), rng, CHANNELS), GlobalAverage()))
    crop, needed = chain.cropped(((0, 1), (0, 1)), (5, 6))
    assert needed == ((0, 5), (0, 6))
    x = rng.normal(size=(2, CHANNELS, 5, 6))
    np.testing.assert_array_equal(crop(x), chain(x))


def node(made: Operation, x: Array) -> Array:
    """The same operation in onnxruntime."""
    window: MapWindow = made.window  # type: ignore[attr-defined]
    (top, bottom), (left, right) = window.pads
    attributes: dict[str, Any] = {"pads": [top, left, bottom, right], "strides": window.strides}
    attributes |= {"kernel_shape": window.kernel, "dilations": window.dilations}
    weights = dict(made.parameters)
    match made:
        case Depthwise():
            attributes["group"] = CHANNELS
            weights["weight"] = made.weight[:, None]
        case AveragePool():
            attributes["count_include_pad"] = int(made.padding_counts)
    convolution = isinstance(made, Convolution | Depthwise)
    kind = "Conv" if convolution else type(made).__name__
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node(kind, ["x", *weights], ["y"], **attributes)],
        "one",
        [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, x.shape)],
        [onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)],
        [onnx.numpy_helper.from_array(a.astype(np.float32), name) for name, a in weights.items()],
    )
    model = onnx.helper.make_model(
        graph, opset_imports=[onnx.helper.make_opsetid("", 19)], ir_version=9
    )
    session = onnxruntime.InferenceSession(model.SerializeToString())
    made_there: Array = session.run(None, {"x": np.float32(x)})[0]
    return made_there


@settings(max_examples=60, deadline=None)
@given(operations(WINDOWED), st.integers(0, 4), st.integers(0, 4), seeds)
def test_windows_are_those_of_onnxruntime(
    found: tuple[Operation, int], rows: int, columns: int, seed: int
) -> None:
    made, least = found
    x = np.random.default_rng(seed).normal(size=(2, CHANNELS, least + rows, least + columns))
    np.testing.assert_allclose(made.forward(x)[0], node(made, x), rtol=0, atol=1e-4)
