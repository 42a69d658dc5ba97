"""A model as a network of affine maps and polynomials."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onnxfde.graph.encrypted_cost import depth_of
from onnxfde.graph.model import Graph
from onnxfde.graph.polynomial_network import PowerStep
from onnxfde.graph.read_polynomials import NotPolynomial, read_polynomials
from onnxfde.numbers import Array
from tests.models import build, outputs_of
from tests.polynomial_networks import NETWORKS, layers, squares_in_a_row, weights


def inputs_for(name: str) -> Array:
    shape = (7, 1, 5, 5) if name == "convolution" else (7, 3)
    return np.random.default_rng(0).uniform(-1, 1, shape).astype(np.float32)


@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_computes_what_the_model_does(name: str) -> None:
    x = inputs_for(name)
    (wanted,) = outputs_of(NETWORKS[name], x)
    found = read_polynomials(Graph(NETWORKS[name])).values(x.reshape(len(x), -1).astype(float))[-1]
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5 * np.abs(wanted).max())


@pytest.mark.parametrize("name", ["x²", "x² + x", "a·x² − x, a per neuron", "convolution"])
def test_polynomials_of_degree_2_cost_one_square(name: str) -> None:
    network = read_polynomials(Graph(NETWORKS[name]))
    (step,) = (step for step in network.steps if isinstance(step, PowerStep))
    assert step.is_monomial
    assert depth_of(network) == 3


def axis_options(low: int, high: int, count: int = 2) -> st.SearchStrategy[list[int]]:
    return st.lists(st.integers(low, high), min_size=count, max_size=count)


@settings(max_examples=80)
@given(
    axis_options(2, 3),
    axis_options(1, 3),
    axis_options(1, 2),
    st.one_of(
        axis_options(0, 1, 4).map(lambda pads: f"pads = {pads}"),
        st.sampled_from(["SAME_UPPER", "SAME_LOWER", "VALID"]).map('auto_pad = "{}"'.format),
    ),
    st.integers(0, 1),
)
def test_an_average_pool_is_a_matrix_or_engines_do_not_agree_on_it(
    kernel: list[int], strides: list[int], dilations: list[int], padding: str, count: int
) -> None:
    options = f"kernel_shape = {kernel}, strides = {strides}, dilations = {dilations}, {padding}"
    body = f"p = AveragePool <{options}, count_include_pad = {count}> (x) y = Mul(p, p)"
    model = build(body, inputs="float[N,2,7,6] x", outputs="float[N,2,A,B] y", opset=19)
    same, gaps = "SAME" in padding, max(dilations) > 1
    if same and (gaps or any(s > k for s, k in zip(strides, kernel, strict=True))):
        with pytest.raises(NotPolynomial, match="engines pad differently"):
            read_polynomials(Graph(model))
        return
    x = np.random.default_rng(0).uniform(-1, 1, (3, 2, 7, 6)).astype(np.float32)
    (wanted,) = outputs_of(model, x)
    network = read_polynomials(Graph(model))
    found = network.values(x.reshape(len(x), -1).astype(float))[-1]
    np.testing.assert_allclose(found, wanted.reshape(len(x), -1), rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ("kernel_shape = [3, 3], ceil_mode = 1", "cut off"),
        ("kernel_shape = [2, 2]", "too large"),
        ("kernel_shape = [97, 2], strides = [2, 2]", "do not fit into 96 × 96 positions"),
    ],
)
def test_large_pools_and_odd_windows_are_refused(options: str, reason: str) -> None:
    body = f"y = AveragePool <{options}> (x)"
    model = build(body, inputs="float[N,4,96,96] x", outputs="float[N,4,A,B] y")
    with pytest.raises(NotPolynomial, match=reason):
        read_polynomials(Graph(model))


def test_a_far_centre_is_not_completed() -> None:
    model = layers("q = Mul(h, h) r = Mul(q, tiny) s = Add(r, h)")
    model.graph.initializer.append(
        build("y = Identity(x)", tiny=np.float32(1e-6)).graph.initializer[0]
    )
    network = read_polynomials(Graph(model))
    (step,) = (step for step in network.steps if isinstance(step, PowerStep))
    assert step.powers == (1, 2)
    assert depth_of(network) == 4


def test_maps_and_squares_add_up_to_the_depth() -> None:
    assert depth_of(read_polynomials(Graph(squares_in_a_row(5)))) == 10


REFUSED = {
    "Conv 'h' does not treat samples one by one": build(
        "h = Conv <pads = [1, 1, 1, 1]> (x, x) y = Flatten(h)",
        inputs="float[N,2,4,4] x",
        outputs="float[N,M] y",
    ),
    "no affine maps or polynomials: MaxPool, Relu": build(
        "h = MatMul(x, W) r = Relu(h) y = MaxPool <kernel_shape = [1]> (r)", W=weights(3, 2)
    ),
    "reads a value from before the last map": build(
        "h = MatMul(x, W) y = Add(h, x)", outputs="float[N,3] y", W=weights(3, 3)
    ),
    "2 inputs and 1 outputs": build("y = Mul(x, z)", inputs="float[N,2] x, float[N,2] z"),
    "are not all known": build("y = Mul(x, x)", inputs="float[N,M] x", outputs="float[N,M] y"),
    "no exponent from 1 to 32": build("y = Pow(x, e)", outputs="float[N,3] y", e=np.float32(0.5)),
    "is no polynomial of what it reads": build("y = Div(e, x)", "float[N,2] x", e=np.float32(1)),
    "is NaN or infinite": build("y = MatMul(x, W)", W=np.full((3, 2), np.nan, np.float32)),
    "does not read all values of one sample": build(
        "y = MatMul(x, W)", "float[N,4,3] x", "float[N,4,2] y", W=weights(3, 2)
    ),
    "mixes samples": build(
        "y = Reshape(x, shape)", "float[N,4] x", "float[M,2] y", shape=np.array([-1, 2])
    ),
}


@pytest.mark.parametrize("reason", REFUSED)
def test_a_refusal_says_why(reason: str) -> None:
    with pytest.raises(NotPolynomial, match=reason):
        read_polynomials(Graph(REFUSED[reason]))
