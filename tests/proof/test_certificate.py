"""The certificate of a whole model is never exceeded, and says so where there is none."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import onnxfde
from onnxfde.graph.model import Graph
from onnxfde.graph.protos import ModelProto
from onnxfde.graph.reference import reference_runner
from onnxfde.neurons.intervals import Box
from onnxfde.neurons.layer import Layer
from onnxfde.numbers import FloatArray
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
    integers,
    largest_change,
    perturbed,
    samples,
    two_layers,
    weights,
)

CONV_NET = Path(__file__).parents[3] / "shared" / "models" / "cryptonets_square.onnx"


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([0.4, 0.7, 0.9]))
def test_no_input_exceeds_the_certificate_of_a_merged_layer(seed: int, keep: float) -> None:
    model = mlp(*twins(4, 2, 3, 2, seed))
    merged = onnxfde.optimize(model, keep=keep, quotient="refit", verify=False).model
    x = np.concatenate(samples((100, 3), 1, seed))
    most, size = largest_change(model, merged, [x])
    assert most <= bound(model, merged) + ROUNDING * size


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([0.5, 0.8]), st.sampled_from(["*", "a", "b"]))
def test_no_input_exceeds_the_certificate_of_two_merged_layers(
    seed: int, keep: float, which: str
) -> None:
    model = two_layers(seed)
    merged = onnxfde.optimize(
        model, keep=keep, layers=(which,), quotient="refit", verify=False
    ).model
    x = np.concatenate(samples((100, 3), 1, seed))
    most, size = largest_change(model, merged, [x])
    assert most <= bound(model, merged) + ROUNDING * size


def test_a_model_against_itself_does_not_change_at_all() -> None:
    model = two_layers(0)
    assert bound(model, model) == 0.0


def test_an_exact_merge_of_two_layers_is_certified_to_rounding() -> None:
    """Neurons twice, scaled by powers of two, in both layers."""
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


def test_a_merge_behind_which_a_bias_appears_is_followed() -> None:
    """The rewritten MatMul has an Add of its own, and what reads it another name to read."""
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
    "behind a layer": "k = MatMul(x, D) s = Mul(k, k) h = Gemm(s, A, a) y = Gemm(h, B, b)",
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
    assert cheap_to_certify(Graph(model))
    merged = onnxfde.optimize(CONV_NET, keep=0.5, quotient="refit", verify=False).model
    most, _ = largest_change(model, merged, samples((1, 1, 32, 32), 30))
    assert most <= bound(model, merged) < np.inf


def test_integer_inputs_and_unknown_shapes_are_named() -> None:
    model = build("y = Cast <to = 1> (x)", inputs="int64[N,3] x")
    assert certificate(model, model).unavailable == "not certified: input 'x' is int64"
    model = build("y = Relu(x)", inputs="float[N,M] x")
    found = certificate(model, model).unavailable
    assert found == "not certified: input 'x' has axes of unknown length"
    model = build("y = Relu(x)")
    found = certify(Graph(model), Graph(model), {}).unavailable
    assert found == "not certified: input 'x' has no range"


def test_old_opsets_and_weights_that_a_caller_may_replace_are_not_certified() -> None:
    model = build("y = Relu(x)", opset=6)
    assert certificate(model, model).unavailable == (
        "not certified: opset 6 broadcasts by other rules"
    )
    model = built("y = MatMul(x, W)", weights(0, W=(3, 2)), inputs="float[N,3] x, float[3,2] W")
    found = certify(Graph(model), Graph(model), {"x": (-1.0, 1.0)})
    assert found.unavailable == "not certified: 'W' is neither a constant nor computed"


def test_models_that_do_not_fit_together_are_not_certified() -> None:
    one, other = (built("y = MatMul(x, W)", weights(0, W=(3, n))) for n in (2, 4))
    found = certificate(one, other).unavailable
    assert found == "not certified: node y (MatMul): 'y' has a different shape in the result"
    one, other = (build("y = Relu(x)", opset=opset) for opset in (16, 17))
    found = certificate(one, other).unavailable
    assert found == "not certified: the two models have different opsets"
    one, other = (
        built("s = Identity(t) y = Reshape(x, s)", {"t": integers(*shape)})
        for shape in ((1, 3), (3, 1))
    )
    found = certificate(one, other).unavailable
    assert found == "not certified: node y (Reshape): 'y' has a different shape in the result"


def test_a_bound_that_overflows_is_none() -> None:
    constants = {"W": np.full((3, 2), 1e38, np.float32), "V": np.full((2, 2), 1e300)}
    model = built("t = MatMul(x, W) [n] y = MatMul(t, V)", constants)
    found = certificate(model, model).unavailable
    assert found is not None
    assert "overflow" in found
    model = two_layers(0)
    limits: Box = {"x": (-1e100, 1e100)}
    found = certify(Graph(model), Graph(perturbed(model, ("A", "B"))), limits).unavailable
    assert found is not None
    assert "overflow" in found


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
    assert certificate_cost(small) < certificate_cost(large)
    assert cheap_to_certify(small)
    assert not cheap_to_certify(large)


def test_an_input_without_a_shape_is_not_taken_for_a_number() -> None:
    for kind in ("float[] x", "float x"):
        model = built("y = Mul(x, c)", weights(0, c=(3,)), inputs=kind, outputs="float[] y")
        found = certificate(model, model).unavailable
        assert found == "not certified: input 'x' has no shape"


def test_outputs_without_a_bound_must_be_unchanged() -> None:
    for body, certified in (
        ("h = MatMul(x, W) y = Relu(h) i = ArgMax <axis = 1> (h)", False),
        ("h = MatMul(x, W) y = Relu(h) i = ArgMax <axis = 1> (x)", True),
    ):
        model = built(body, weights(0, W=(3, 2)), outputs="float[N,2] y, int64[N,1] i")
        found = certificate(model, perturbed(model))
        if certified:
            assert [output.name for output in found.outputs] == ["y"]
        else:
            assert found.unavailable == "not certified: output 'i' is int64"
            assert found.largest == np.inf


def test_other_kinds_of_inputs_are_not_certified() -> None:
    for kind, name in (("complex64", "complex64"), ("string", "object")):
        model = build("y = Cast <to = 1> (x)", inputs=f"{kind}[N,3] x")
        assert certificate(model, model).unavailable == f"not certified: input 'x' is {name}"


def test_ranges_that_are_none_are_named() -> None:
    model = build("y = Relu(x)")
    for limits in ((np.zeros(4), np.ones(4)), (1.0, -1.0), (0.0, np.inf), (np.nan, 1.0)):
        found = certify(Graph(model), Graph(model), {"x": limits}).unavailable
        assert found is not None
        assert "input 'x'" in found


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
    assert certificate_cost(Graph(many)) > 100 * certificate_cost(Graph(few))
    pool = build(
        "y = MaxPool <kernel_shape = [3, 3]> (x)", "float[1,8,64,64] x", "float[1,8,62,62] y"
    )
    assert certificate_cost(Graph(pool)) >= 8 * 62 * 62 * 9
    wide = built(body, weights(0, W=(5000, 4), V=(4, 1)), inputs="float[N,5000] x")
    tracemalloc.start()
    assert bound(wide, perturbed(wide)) > 0
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 20e6
    assert cheap_to_certify(Graph(wide))


def searched(chain: Chain, other: Chain, rng: np.random.Generator) -> float:
    """The largest change of any output that random inputs, corners and sign-gradient steps find."""
    width = chain[0].inputs
    x = np.vstack([rng.uniform(-1, 1, (24, width)), rng.choice([-1.0, 1.0], (24, width))])
    worst = 0.0
    for step in (0.0, 1.0, 0.5, 0.25, 0.1, 0.03):
        (before, up), (after, down) = followed(chain, x), followed(other, x)
        change = after - before
        worst = max(worst, float(np.abs(change).max()))
        k = np.abs(change).argmax(axis=1)
        rows = np.arange(len(x))
        slope = (down - up)[rows, k] * np.sign(change[rows, k])[:, None]
        x = np.clip(x + step * np.sign(slope), -1, 1)
    return worst


Chain = tuple[Layer, ...]


def followed(chain: Chain, x: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The outputs of square layers in a row, and their derivatives by the inputs."""
    slope = np.broadcast_to(np.eye(x.shape[1]), (len(x), x.shape[1], x.shape[1]))
    for layer in chain:
        weight = layer.incoming[:, :-1]
        hidden = x @ weight.T + layer.incoming[:, -1]
        slope = (layer.outgoing * (2 * hidden)[:, None, :]) @ (weight @ slope)
        x = layer(x)
    return x, slope


def as_model(chain: Chain) -> ModelProto:
    """The layers as Gemm → Mul → Gemm, one after the other."""
    weights: dict[str, Any] = {}
    body, value = "", "x"
    for i, layer in enumerate(chain):
        last = "y" if i == len(chain) - 1 else f"o{i}"
        body += (
            f"[a{i}] h{i} = Gemm <transB = 1> ({value}, W{i}, b{i}) s{i} = Mul(h{i}, h{i}) "
            f"[z{i}] {last} = Gemm <transB = 1> (s{i}, V{i}, c{i}) "
        )
        arrays = (layer.incoming[:, :-1], layer.incoming[:, -1], layer.outgoing, layer.offset)
        weights |= {f"{n}{i}": a.astype(np.float32) for n, a in zip("WbVc", arrays, strict=True)}
        value = last
    return build(
        body,
        inputs=f"float[N,{chain[0].inputs}] x",
        outputs=f"float[N,{chain[-1].outputs}] y",
        **weights,
    )


def shaken(layer: Layer, rng: np.random.Generator) -> Layer:
    """The layer with fewer neurons or other weights."""
    kept = np.sort(rng.permutation(layer.neurons)[: rng.integers(1, layer.neurons + 1)])
    noise = rng.choice([0.0, 0.01, 0.3]) * rng.normal(size=(len(kept), layer.inputs + 1))
    return Layer(layer.incoming[kept] + noise, layer.outgoing[:, kept], layer.offset).stored_as(
        np.float32
    )


@pytest.mark.parametrize("depth", [1, 2])
def test_no_searched_input_exceeds_the_certificate_of_a_thousand_models(depth: int) -> None:
    for seed in range(1000):
        rng = np.random.default_rng((depth, seed))
        widths = rng.integers(1, 5, depth + 1)
        chain = tuple(
            Layer(
                rng.normal(size=(n, d + 1)), rng.normal(size=(m, n)), rng.normal(size=m)
            ).stored_as(np.float32)
            for d, m, n in zip(widths, widths[1:], rng.integers(1, 7, depth), strict=False)
        )
        other = tuple(shaken(layer, rng) for layer in chain)
        found = certify(Graph(as_model(chain)), Graph(as_model(other)), {"x": (-1.0, 1.0)})
        assert found.unavailable is None
        worst = searched(chain, other, rng)
        assert worst <= found.largest * (1 + 1e-9) + 1e-12, seed
