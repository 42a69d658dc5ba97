"""The certificate of a whole model is never exceeded, and says so where there is none."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np
import onnx
import pytest

import onnxfde
from onnxfde.graph.match import LayerSize, find_layers, size_of
from onnxfde.graph.model import Graph
from onnxfde.graph.reference import reference_runner
from onnxfde.neurons.intervals import Box
from onnxfde.passes.fold_affine import FoldAffine
from onnxfde.proof.certificate import certificate_cost, certify, cheap_to_certify
from tests.models import build, mlp, outputs_of, twins
from tests.proof.certificates import (
    ROUNDING,
    TWO_LAYERS,
    bound,
    built,
    certificate,
    floats,
    in_float64,
    largest_change,
    perturbed,
    samples,
    two_layers,
    weights,
)

CONV_NET = Path(__file__).parents[3] / "shared" / "models" / "cryptonets_square.onnx"


def sizes_in(graph: Graph) -> list[LayerSize]:
    return [size_of(graph, match) for match in find_layers(graph)[0]]


def cost_of(graph: Graph) -> float:
    return certificate_cost(graph, sizes_in(graph))


def is_cheap(graph: Graph) -> bool:
    return cheap_to_certify(graph, sizes_in(graph))


def test_a_model_against_itself_does_not_change_at_all() -> None:
    model = two_layers(0)
    assert bound(model, model) == 0.0


def test_an_exact_merge_of_two_layers_is_certified_to_rounding() -> None:
    """Every neuron of both layers is there twice, scaled by a power of two."""
    found = weights(1, A=(6, 3), a=(6,), B=(5, 6), b=(5,), C=(2, 5), c=(2,))
    scale = floats(1, 2, 0.5, 4, 1, 2)
    double = dict(found)
    double["A"] = np.vstack([found["A"], found["A"] * scale[:, None]])
    double["a"] = np.concatenate([found["a"], found["a"] * scale])
    columns = np.hstack([found["B"] / 2, found["B"] / (2 * scale**2)])
    double["B"] = np.vstack([columns, 2 * columns])
    double["b"] = np.concatenate([found["b"], 2 * found["b"]])
    double["C"] = np.hstack([found["C"] / 2, found["C"] / 8])
    small, large = built(TWO_LAYERS, found), built(TWO_LAYERS, double)
    run = reference_runner(in_float64(small), None)
    spread = np.ptp(run({"x": np.concatenate(samples((500, 3), 1))})[0], axis=0).min()
    assert bound(large, small) <= 1e-11 * spread


def test_a_merge_that_adds_a_bias_is_followed() -> None:
    """A new Add follows the rewritten MatMul, and its readers read another name."""
    found = weights(2, A=(3, 8), B=(8, 4), C=(4, 2))
    body = "h = MatMul(x, A) s = Mul(h, h) k = MatMul(s, B) r = Relu(k) y = MatMul(r, C)"
    model = built(body, found)
    merged = onnxfde.optimize(model, neurons=4, quotient="refit", verify=False).model
    assert any(node.op_type == "Add" for node in merged.graph.node)
    x = np.concatenate(samples((300, 3), 1))
    most, _ = largest_change(model, merged, [x])
    assert most <= bound(model, merged) <= 20 * most


def test_a_narrow_value_between_two_layers_is_where_they_are_compared() -> None:
    body = (
        "h = MatMul(x, A) s = Mul(h, h) z = MatMul(s, B) "
        "k = MatMul(z, C) q = Mul(k, k) y = MatMul(q, D)"
    )
    model = built(body, weights(3, A=(3, 10), B=(10, 2), C=(2, 9), D=(9, 2)))
    merged = onnxfde.optimize(model, neurons=7, quotient="refit", verify=False).model
    x = np.concatenate(samples((500, 3), 1))
    most, size = largest_change(model, merged, [x])
    assert most <= bound(model, merged) + ROUNDING * size
    assert bound(model, merged) <= 10 * most + 1e-5 * size


FOLDS = {
    "alone": "[f] h = Gemm(x, A, a) [g] y = Gemm(h, B, b)",
    "dropout": "[f] h = Gemm(x, A, a) d = Dropout(h) [g] y = Gemm(d, B, b)",
    "before a layer": "h = Gemm(x, A, a) k = Gemm(h, B, b) s = Mul(k, k) y = MatMul(s, E)",
    "after a layer": "k = MatMul(x, D) s = Mul(k, k) h = Gemm(s, A, a) y = Gemm(h, B, b)",
    "constants": "h = MatMul(x, A) t = Mul(h, a) u = Add(t, a) y = MatMul(u, B)",
}


@pytest.mark.parametrize("body", FOLDS.values(), ids=FOLDS.keys())
def test_folded_affine_maps_are_certified_to_the_rounding_of_their_weights(body: str) -> None:
    found = weights(4, A=(3, 20), a=(20,), B=(20, 2), b=(2,), D=(3, 3), E=(2, 2))
    model = built(body, {k: v for k, v in found.items() if f" {k}" in body})
    folded = FoldAffine().apply(Graph(model)).model
    assert len(folded.graph.node) < len(model.graph.node)
    most, size = largest_change(model, folded, [np.concatenate(samples((300, 3), 1))])
    assert most <= bound(model, folded) <= 1e-5 * size


def test_the_conv_net_of_the_project_is_certified() -> None:
    if not CONV_NET.exists():
        pytest.skip(f"{CONV_NET} is not there")
    model = onnx.load(CONV_NET)
    assert bound(model, model) == 0.0
    assert is_cheap(Graph(model))
    merged = onnxfde.optimize(CONV_NET, keep=0.5, quotient="refit", verify=False).model
    most, _ = largest_change(model, merged, samples((1, 1, 32, 32), 30))
    assert most <= bound(model, merged) < np.inf


@pytest.mark.parametrize("shape", ["float[N,5,3] x", "float[2,3] x", "float[3] x"])
def test_leading_axes_of_any_number_are_followed(shape: str) -> None:
    body = "h = MatMul(x, W) t = Add(h, b) s = Mul(t, t) y = MatMul(s, V)"
    found = weights(1, W=(3, 6), b=(6,), V=(6, 2))
    model = built(body, found, inputs=shape, outputs="float y")
    other = perturbed(model)
    sizes = {"float[N,5,3] x": (1, 5, 3), "float[2,3] x": (2, 3), "float[3] x": (3,)}
    most, _ = largest_change(model, other, samples(sizes[shape], 50))
    assert most <= bound(model, other) <= 4 * most


@pytest.mark.parametrize(("shape", "size"), [("float[3,4] x", (3, 4)), ("float[3] x", (3,))])
def test_features_in_columns_are_followed(shape: str, size: tuple[int, ...]) -> None:
    body = "h = MatMul(W, x) s = Mul(h, h) y = MatMul(V, s)"
    model = built(body, weights(1, W=(6, 3), V=(2, 6)), inputs=shape, outputs="float y")
    other = perturbed(model)
    most, _ = largest_change(model, other, samples(size, 50))
    assert most <= bound(model, other) <= 4 * most


def test_constants_around_the_maps_belong_to_them() -> None:
    body = (
        "p = Mul(x, f) h = MatMul(p, W) t = Sub(a, h) u = Div(t, g) s = Mul(u, u) "
        "w = Add(s, g) v = MatMul(w, V) y = Mul(v, half)"
    )
    found = weights(2, f=(3,), W=(3, 6), a=(6,), g=(6,), V=(6, 2), half=())
    model = built(body, found)
    other = perturbed(model, ("W", "f"))
    most, _ = largest_change(model, other, [np.concatenate(samples((200, 3), 2))])
    assert most <= bound(model, other) <= 3 * most


def test_the_box_may_differ_by_input_and_element() -> None:
    body = "h = MatMul(x, W) s = Mul(h, h) t = Mul(s, z) y = MatMul(t, V)"
    inputs = "float[N,3] x, float[N,6] z"
    model = built(body, weights(3, W=(3, 6), V=(6, 2)), inputs=inputs)
    graphs = Graph(model), Graph(perturbed(model))
    narrow: Box = {"x": (np.zeros(3), np.asarray([1.0, 0.5, 0.0])), "z": (-1.0, 1.0)}
    wide: Box = {"x": (-1.0, 1.0), "z": (-1.0, 1.0)}
    small, large = (certify(*graphs, box) for box in (narrow, wide))
    assert small.outputs[0].bound < large.outputs[0].bound
    assert (small.box, large.box) == ("range of the data", "range [-1, 1]")


def test_execution_stays_within_the_certificate_and_the_stated_rounding() -> None:
    model = mlp(*twins(6, 3, 4, 3))
    merged = onnxfde.optimize(model, 0.0, quotient="refit", verify=False).model
    found = certificate(model, merged)
    x = np.concatenate(samples((500, 4), 1)).astype(np.float32)
    before, after = outputs_of(model, x)[0], outputs_of(merged, x)[0]
    assert found.rounding is not None
    assert np.abs(after - before).max() <= found.outputs[0].bound + found.rounding


def test_a_large_layer_is_not_cheap() -> None:
    small, large = (Graph(mlp(*twins(n, 2, d, m))) for n, d, m in ((10, 7, 7), (64, 200, 400)))
    assert cost_of(small) < cost_of(large)
    assert is_cheap(small)
    assert not is_cheap(large)


def test_one_feature_that_factors_make_more_of_is_followed() -> None:
    body = "h = MatMul(x, W) s = Mul(h, h) t = Mul(s, f) y = MatMul(t, V)"
    model = built(body, weights(1, W=(3, 1), f=(5,), V=(5, 2)))
    other = perturbed(model)
    most, _ = largest_change(model, other, [np.concatenate(samples((200, 3), 2))])
    assert most <= bound(model, other) <= 10 * most


@pytest.mark.parametrize(("inputs", "neurons"), [(0, 4), (3, 0), (3, 4)])
def test_layers_without_inputs_or_neurons_are_followed(inputs: int, neurons: int) -> None:
    full = weights(2, W=(inputs, 4), V=(4, 2), b=(2,))
    body, kind = "h = MatMul(x, W) s = Mul(h, h) z = MatMul(s, V) y = Add(z, b)", "float[N,{}] x"
    model = built(body, full, inputs=kind.format(inputs))
    fewer = {"W": full["W"][:, :neurons], "V": full["V"][:neurons], "b": full["b"]}
    other = built(body, fewer, inputs=kind.format(inputs))
    if inputs == 0:
        assert bound(model, other) == 0.0
        return
    most, _ = largest_change(model, other, [np.concatenate(samples((200, 3), 1))])
    assert most <= bound(model, other) <= 3 * most


def test_rows_and_pools_count_and_a_wide_layer_takes_little_memory() -> None:
    body = "h = MatMul(x, W) s = Mul(h, h) y = MatMul(s, V)"
    found = weights(0, W=(16, 8), V=(8, 8))
    few, many = (
        built(body, found, inputs=f"float[N,{rows},16] x", outputs=f"float[N,{rows},8] y")
        for rows in (1, 4096)
    )
    assert cost_of(Graph(many)) > 100 * cost_of(Graph(few))
    pool = build(
        "y = MaxPool <kernel_shape = [3, 3]> (x)", "float[1,8,64,64] x", "float[1,8,62,62] y"
    )
    assert cost_of(Graph(pool)) >= 8 * 62 * 62 * 9
    wide = built(body, weights(0, W=(5000, 4), V=(4, 1)), inputs="float[N,5000] x")
    tracemalloc.start()
    assert bound(wide, perturbed(wide)) > 0
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 20e6
    assert is_cheap(Graph(wide))
