"""Neurons merged by structure: the same function for all inputs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onnxfde.neurons.activation import Activation
from onnxfde.neurons.frontier import Reduced
from onnxfde.neurons.layer import Layer
from onnxfde.neurons.linear_pieces import straight_pieces
from onnxfde.neurons.piecewise_activations import (
    IDENTITY,
    PRELU,
    RELU,
    RELU_SQUARED,
    clip,
    leaky_relu,
    thresholded_relu,
)
from onnxfde.neurons.polynomial_activations import polynomial
from onnxfde.neurons.smooth_activations import GELU, SIN, TANH
from onnxfde.neurons.structural_merge import structural_merge
from onnxfde.numbers import ROUNDOFF, FloatArray
from tests.activation_models import planted_layer, planted_mlp, planted_weights
from tests.models import outputs_of
from tests.neurons.activation_rows import ROWS, SCALED
from tests.strategies import problem_of

FLOAT32 = ROUNDOFF["float32"]
TABLE = (*ROWS.values(), polynomial((1.0, 2.0)), *SCALED[::5])


def merged(layer: Layer, **more: Any) -> Reduced | None:
    return structural_merge(problem_of(layer, **more))


def left(layer: Layer, **more: Any) -> int:
    found = merged(layer, **more)
    return found.layer.neurons if found else layer.neurons


def assert_same_function(a: Layer, b: Layer, roundoff: float = FLOAT32) -> None:
    """On inputs near and far."""
    rng = np.random.default_rng(9)
    for scale in (1.0, 1e-3, 1e3):
        x = rng.normal(size=(50, a.inputs)) * scale
        with np.errstate(over="ignore", invalid="ignore"):
            before, after, size = a(x), b(x), a.magnitude(x)
            same = np.abs(before - after) <= 16 * roundoff * size
        assert np.all(same | ~np.isfinite(before))
        assert np.isfinite(before).any() or scale == 1e3


def most_left(activation: Activation, distinct: int, inputs: int, outputs: int) -> int:
    """How many neurons a planted layer may need."""
    if activation.power == 1:
        return min(inputs, outputs)
    if activation.name == "PRelu":
        return distinct + min(inputs, outputs)
    linear = activation.reflection is not None and activation.reflection.line != 0
    return distinct + (2 * min(inputs, outputs) if linear else 0)


@pytest.mark.parametrize("activation", TABLE, ids=lambda a: a.title)
@settings(max_examples=5)
@given(seed=st.integers(0, 2**32), copies=st.integers(2, 5), inputs=st.integers(1, 6))
def test_planted_copies_are_found_and_the_function_stays(
    activation: Activation, seed: int, copies: int, inputs: int
) -> None:
    layer = planted_layer(activation, np.random.default_rng(seed), 7, copies, inputs, 3)
    found = merged(layer)
    most = most_left(activation, 7, inputs, 3)
    if found is None:
        assert layer.neurons <= most
        return
    assert found.layer.neurons <= most
    assert_same_function(layer, found.layer)
    assert len(found.blocks) == found.layer.neurons
    members = sorted(i for block in found.blocks for i in block)
    assert members == sorted(set(members))
    assert found.error <= 1e-5


@pytest.mark.parametrize("activation", TABLE, ids=lambda a: a.title)
def test_merging_again_finds_nothing_more(activation: Activation) -> None:
    layer = planted_layer(activation, np.random.default_rng(3), 9, 4, 4, 2)
    found = merged(layer)
    assert found is not None
    assert merged(found.layer) is None


@pytest.mark.parametrize("activation", [a for a in TABLE if a.power != 1], ids=lambda a: a.title)
def test_rows_that_differ_by_more_than_rounding_stay(activation: Activation) -> None:
    rng = np.random.default_rng(4)
    layer = planted_layer(activation, rng, 6, 1, 5, 2)
    near = layer.incoming * (1 + 1e-4 * rng.normal(size=layer.incoming.shape))
    both = Layer(
        np.vstack([layer.incoming, near]),
        np.hstack([layer.outgoing, layer.outgoing]),
        layer.offset,
        activation,
        tuple(np.tile(p, 2) for p in layer.unit_parameters),
    ).stored_as(np.float32)
    assert merged(both) is None


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float64"])
def test_other_types_have_their_own_rounding(name: str) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    dtype = np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)
    layer = planted_layer(RELU, np.random.default_rng(5), 8, 3, 5, 4, dtype)
    layer = Layer(np.abs(layer.incoming), layer.outgoing, layer.offset, RELU)
    found = merged(layer, dtype=dtype)
    assert found is not None
    assert found.layer.neurons == 8
    assert_same_function(layer, found.layer, ROUNDOFF[name])


def layer_of(rows: FloatArray, after: FloatArray, activation: Activation) -> Layer:
    """A layer from (W, b) before and after its activation."""
    return Layer(rows, after[:, :-1], after[:, -1], activation)


@pytest.mark.parametrize(
    ("activation", "gated", "widths"),
    [
        (RELU, False, (64, 64)),
        (TANH, False, (64, 64)),
        (GELU, False, (64, 64)),
        (RELU, True, (74, 66)),
        (GELU, True, (74, 66)),
    ],
)
def test_every_neuron_four_times_in_two_layers(
    activation: Activation, gated: bool, widths: tuple[int, int]
) -> None:
    arrays = [a.astype(float) for a in planted_weights(activation, gated=gated)]
    assert sum(a.size for a in arrays) == 68_865
    maps = [np.column_stack(pair) for pair in zip(arrays[::2], arrays[1::2], strict=True)]
    first, second = layer_of(maps[0], maps[1], activation), layer_of(maps[1], maps[2], activation)
    one = merged(first)
    assert one is not None
    two = merged(
        layer_of(np.column_stack([one.layer.outgoing, one.layer.offset]), maps[2], activation)
    )
    assert two is not None
    assert (one.layer.neurons, two.layer.neurons) == widths
    if not gated:
        assert (
            one.layer.incoming.size + two.layer.incoming.size + two.layer.outgoing.size + 1 == 4_929
        )
    x = np.random.default_rng(0).normal(size=(100, 10))
    before, after = second(first.hidden(x)), two.layer(one.layer.hidden(x))
    assert np.abs(after - before).max() <= 1e-6 * np.abs(before).max()


def test_the_planted_network_is_a_model_with_these_weights() -> None:
    model = planted_mlp("LeakyRelu", (3, 8, 8, 2), 4, alpha=0.25)
    arrays = planted_weights(leaky_relu(0.25), (3, 8, 8, 2), 4)
    x = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    h = x
    for at in range(0, len(arrays), 2):
        h = h @ arrays[at].T + arrays[at + 1]
        h = np.where(h < 0, 0.25 * h, h) if at < len(arrays) - 2 else h
    np.testing.assert_allclose(outputs_of(model, x)[0], h, rtol=0, atol=1e-5)


def relu_layer(rows: Any, outgoing: Any, activation: Activation = RELU) -> Layer:
    rows, outgoing = np.array(rows, float), np.array(outgoing, float)
    return Layer(rows, outgoing, np.zeros(len(outgoing)), activation)


def test_constant_and_dead_neurons_go_into_the_offset() -> None:
    layer = relu_layer([[1, 2], [0, 3], [2, 1], [0, -1]], [[1, 2, 0, 1]])
    found = merged(layer)
    assert found is not None
    assert found.blocks == ((0,),)
    np.testing.assert_array_equal(found.layer.offset, [6.0])


def test_a_layer_of_constants_keeps_one_neuron_of_zeros_whatever_its_activation() -> None:
    layer = Layer(
        np.array([[0.0, 2.0], [0.0, -2.0]]), np.ones((1, 2)), np.ones(1), PRELU, (np.ones(2) / 2,)
    )
    found = merged(layer)
    assert found is not None
    assert found.layer.neurons == 1
    np.testing.assert_array_equal(found.layer(np.ones((1, 1))), [[2.0]])


def test_copies_that_cancel_vanish() -> None:
    layer = relu_layer([[1, 2], [2, 4], [1, -1]], [[2, -1, 1]])
    found = merged(layer)
    assert found is not None
    assert found.blocks == ((2,),)


def test_opposite_gates_that_are_a_line_share_one_line() -> None:
    rng = np.random.default_rng(0)
    rows, outgoing = rng.normal(size=(6, 3)), rng.normal(size=(2, 6))
    layer = relu_layer(np.vstack([rows, -rows]), np.hstack([outgoing, -outgoing])).stored_as(
        np.float32
    )
    found = merged(layer)
    assert found is not None
    assert found.layer.neurons == 4
    assert_same_function(layer, found.layer)


def test_one_output_needs_one_pair_for_all_lines() -> None:
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(20, 9))
    layer = relu_layer(np.vstack([rows, -rows]), rng.normal(size=(1, 40))).stored_as(np.float32)
    found = merged(layer)
    assert found is not None
    assert found.layer.neurons == 22
    assert_same_function(layer, found.layer)


def test_prelu_neurons_with_one_row_and_three_slopes_need_two() -> None:
    row = np.array([1.0, -2.0, 0.5])
    slopes = np.array([0.1, 0.3, -0.7])
    outgoing = np.random.default_rng(2).normal(size=(3, 3))
    layer = Layer(np.stack([row, 2 * row, -row]), outgoing, np.zeros(3), PRELU, (slopes,))
    found = merged(layer.stored_as(np.float32))
    assert found is not None
    assert found.layer.neurons == 2
    assert_same_function(layer.stored_as(np.float32), found.layer)


def test_identity_needs_no_more_neurons_than_inputs_or_outputs() -> None:
    rng = np.random.default_rng(3)
    for inputs, outputs, rank in ((4, 9, 4), (9, 4, 4)):
        rows = rng.normal(size=(20, inputs + 1))
        layer = relu_layer(rows, rng.normal(size=(outputs, 20)), IDENTITY).stored_as(np.float32)
        found = merged(layer)
        assert found is not None
        assert found.layer.neurons == rank
        assert_same_function(layer, found.layer)


def test_members_are_compared_with_their_representative_not_along_a_chain() -> None:
    step = np.float32(1) + np.float32(3 * 2**-23)
    rows = np.array([[1.0, 1.0, 1.0]]) * np.array([[1.0], [1.0], [1.0], [1.0]])
    for i in range(4):
        rows[i, 0] = float(step) ** i
    layer = relu_layer(rows, np.ones((1, 4)), TANH).stored_as(np.float32)
    found = merged(layer)
    kept = found.layer if found else layer
    blocks = found.blocks if found else tuple((i,) for i in range(4))
    for row, block in zip(kept.incoming, blocks, strict=True):
        assert np.all(np.abs(layer.incoming[list(block)] - row) <= 8 * FLOAT32 * np.abs(row))
    assert len(blocks) > 1


def test_a_small_weight_counts_as_much_as_a_large_one() -> None:
    layer = relu_layer([[1e-8, 1, 0], [3e-8, 1, 0]], [[1, 1]])
    assert merged(layer.stored_as(np.float32)) is None


@pytest.mark.parametrize("size", [1e3, 1e5])
@pytest.mark.parametrize("activation", [RELU_SQUARED, polynomial((0.0, 0.0, 0.0, 1.0))])
def test_a_large_neuron_does_not_hide_behind_the_rounding_of_others(
    activation: Activation, size: float
) -> None:
    weights = [20 * FLOAT32 * size, 34 * FLOAT32 * size, 1.0, 1.3, 0.7, 0.9, -1.1]
    incoming = np.column_stack([weights, [size, size, 0.0, 0.1, -0.1, 0.2, 0.3]])
    layer = Layer(incoming, np.array([[1.0, 1.0, *[size] * 5]]), np.zeros(1), activation)
    layer = layer.stored_as(np.float32)
    found = merged(layer)
    assert_same_function(layer, found.layer if found else layer)


def test_neurons_that_agree_on_all_samples_only_stay() -> None:
    for activation in (clip(-100.0, 100.0), clip(0.0, 6.0)):
        layer = relu_layer([[1, 0.5], [1.001, 0.5]], [[1, -1]], activation)
        assert merged(layer) is None
    assert merged(relu_layer([[1, 10], [2, 20.001]], [[1, 1]])) is None
    assert merged(relu_layer([[1, -1e6], [1, 0]], [[1, 1]])) is None


def test_waves_that_differ_far_away_stay() -> None:
    layer = relu_layer([[1.0, 0.0], [1.0 + 2e-6, 0.0]], [[1, 1]], SIN).stored_as(np.float32)
    assert merged(layer) is None


BOX = (np.array([-1.0, 0.0]), np.array([1.0, 2.0]))
ON_BOX: dict[str, Any] = {
    "box": BOX,
    "samples": np.random.default_rng(7).uniform(*BOX, size=(64, 2)),
}


def test_a_box_switches_neurons_off_or_on_and_on_ones_are_linear() -> None:
    rng = np.random.default_rng(6)
    rows = np.column_stack([rng.normal(size=(12, 2)), rng.normal(size=12)])
    rows[:4, -1], rows[4:10, -1] = -10.0, 10.0
    layer = relu_layer(rows, rng.normal(size=(3, 12))).stored_as(np.float32)
    assert merged(layer) is None
    found = merged(layer, **ON_BOX)
    assert found is not None
    assert found.layer.neurons == 4
    assert_same_on_box(layer, found.layer, BOX)


def test_a_box_is_not_used_where_as_few_are_left_without_it() -> None:
    """Two equal neurons that are off in the box."""
    layer = relu_layer([[1.0, 1.0, -10.0], [1.0, 1.0, -10.0]], [[1, 2]])
    found = merged(layer, **ON_BOX)
    assert found is not None
    assert found.layer.neurons == 1
    x = np.random.default_rng(12).uniform(-20, 20, size=(64, 2))
    np.testing.assert_allclose(found.layer(x), layer(x), rtol=0, atol=1e-6)


def assert_same_on_box(a: Layer, b: Layer, box: tuple[FloatArray, FloatArray]) -> None:
    rng = np.random.default_rng(8)
    x = rng.uniform(*box, size=(200, a.inputs))
    corners = np.where(rng.random((200, a.inputs)) < 0.5, *box)
    for points in (x, corners):
        assert np.all(np.abs(a(points) - b(points)) <= 16 * FLOAT32 * a.magnitude(points))


def test_touching_a_kink_at_the_border_counts_as_one_side() -> None:
    off, on = [-0.1, -0.7, -0.1], [0.1, 0.7, 0.1]
    rows = np.array([off, on, [0.3, -0.2, 0.05]], dtype=np.float32)
    layer = relu_layer(rows, [[1, 1, 1]])
    found = merged(layer, **ON_BOX)
    assert found is not None
    assert found.blocks == ((1,), (2,))
    rows[0, -1] += np.float32(1e-6)
    outside = relu_layer(rows, [[1, 1, 1]])
    assert merged(outside, **ON_BOX) is None


def test_a_jump_belongs_to_the_lower_side() -> None:
    layer = relu_layer([[1, 0, 2], [1, 0, 2.5]], [[1, 1]], thresholded_relu(1.0))
    assert merged(layer, **ON_BOX) is None
    layer = relu_layer([[1, 0, 0], [1, 0, 2.5]], [[1, 1]], thresholded_relu(1.0))
    found = merged(layer, **ON_BOX)
    assert found is not None
    assert found.blocks == ((1,),)


@pytest.mark.parametrize(
    "activation", [a for a in TABLE if straight_pieces(a)], ids=lambda a: a.title
)
@settings(max_examples=5)
@given(seed=st.integers(0, 2**32), bias=st.sampled_from([0.0, 1.0, 10.0]))
def test_with_a_box_the_function_stays_on_it(
    activation: Activation, seed: int, bias: float
) -> None:
    rng = np.random.default_rng(seed)
    layer = planted_layer(activation, rng, 24, 1, 2, 2)
    rows = layer.incoming * np.where(np.arange(24) % 3 == 0, 0.1, 1.0)[:, None]
    rows[:, -1] += rng.choice([-bias, bias], 24)
    layer = Layer(rows, layer.outgoing, layer.offset, activation, layer.unit_parameters)
    layer = layer.stored_as(np.float32)
    found = merged(layer, **ON_BOX)
    if bias == 10.0:
        assert found is not None
    if found is not None:
        assert found.layer.neurons <= left(layer)
        assert_same_on_box(layer, found.layer, BOX)


@pytest.mark.parametrize(
    ("coefficients", "inputs", "most"),
    [
        ((0.0, 0.0, 0.0, 1.0), 2, 9),
        ((0.5, -1.0, 0.0, 0.7), 1, 3),
        ((0.0, 0.3, 0.0, 0.0, 1.0), 2, 14),
    ],
)
def test_polynomials_need_no_more_neurons_than_there_are_monomials(
    coefficients: tuple[float, ...], inputs: int, most: int
) -> None:
    rng = np.random.default_rng(0)
    rows, outgoing = rng.normal(size=(60, inputs + 1)), rng.normal(size=(2, 60))
    activation = polynomial(coefficients)
    layer = Layer(rows, outgoing, rng.normal(size=2), activation).stored_as(np.float32)
    found = merged(layer)
    assert found is not None
    assert found.layer.neurons == most
    assert sorted(i for block in found.blocks for i in block) == list(range(60))
    assert_same_function(layer, found.layer)
    assert merged(found.layer) is None


def test_a_polynomial_of_many_monomials_is_left_alone() -> None:
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(20, 41))
    layer = Layer(rows, rng.normal(size=(2, 20)), np.zeros(2), polynomial((0.0, 0.0, 0.0, 1.0)))
    assert merged(layer.stored_as(np.float32)) is None
