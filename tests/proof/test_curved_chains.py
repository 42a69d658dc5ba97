"""Certificates of layers with any activation: exact merges, mixed chains, spellings, blocks."""

from __future__ import annotations

import numpy as np
import pytest

import onnxfde
from onnxfde.graph.match import LayerSize
from onnxfde.graph.model import Graph
from onnxfde.graph.protos import ModelProto
from onnxfde.neurons.activation import Activation
from onnxfde.neurons.intervals import Interval
from onnxfde.neurons.piecewise_activations import RELU
from onnxfde.neurons.polynomial_activations import SQUARE, polynomial
from onnxfde.neurons.smooth_activations import GELU
from onnxfde.numbers import Array, FloatArray
from onnxfde.proof.affine_bounds import Map
from onnxfde.proof.certificate import cheap_to_certify
from onnxfde.proof.curved_chains import ChainForms, CurvedChain, curved_change
from onnxfde.proof.hidden_functions import HiddenFunction
from onnxfde.proof.line_bounds import lines_around, parabolas_around
from onnxfde.proof.read_chain import read_chain
from tests.activation_spellings import (
    BIAS,
    NEURONS,
    SLOPES,
    WEIGHTS,
    Wanted,
    spelled_layer_model,
)
from tests.activation_spellings import SPELLINGS as EVERY_SPELLING
from tests.models import build
from tests.neurons.activation_rows import ALL_ROWS, ROWS, unit_parameters
from tests.proof.certificates import (
    ROUNDING,
    bound,
    built,
    certificate,
    floats,
    integers,
    largest_change,
    perturbed,
    samples,
    weights,
)

RNG = np.random.default_rng(0)
ROUNDED = 1e-11
"""What an exact merge of a few neurons may be certified to, for outputs of about 10."""
CONTINUOUS = {name: row for name, row in ROWS.items() if row.name != "ThresholdedRelu"}
FREE_SCALE = {name: row for name, row in ROWS.items() if row.degree is not None}
REFLECTED = {name: row for name, row in ROWS.items() if row.reflection is not None}


def box(inputs: int, rows: int = 1) -> Interval:
    return Interval(-np.ones((rows, inputs)), np.ones((rows, inputs)))


def nothing(inputs: int) -> Interval:
    return Interval.point(np.zeros((1, inputs)))


def chain(row: Activation, *maps: Map, parameters: tuple[FloatArray, ...] = ()) -> CurvedChain:
    return CurvedChain(maps, tuple(HiddenFunction(row, parameters) for _ in maps[1:]))


def change(old: CurvedChain, new: CurvedChain) -> FloatArray:
    same = (False,) * len(old.maps)
    inputs = old.maps[0].weight.shape[1]
    return curved_change(old, new, same, box(inputs), nothing(inputs))[1].size


@pytest.mark.parametrize("row", ALL_ROWS.values(), ids=ALL_ROWS.keys())
def test_parallel_lines_and_parabolas_hold_an_activation_between_them(row: Activation) -> None:
    rng, count = np.random.default_rng(1), 120
    ends = np.sort(rng.normal(size=(2, count)) * 10.0 ** rng.uniform(-3, 1, count), axis=0)
    ends[1, :10] = ends[0, :10]
    given = unit_parameters(row, count)
    found = lines_around(row.curve_of(*given), Interval(ends[0], ends[1]))
    places = np.clip(ends[0] + np.linspace(0, 1, 201)[:, None] * np.diff(ends, axis=0), *ends)
    above = row.value(places, *given) - found.slope * places
    assert np.all(found.rest.low <= above)
    assert np.all(above <= found.rest.high)
    closer = parabolas_around(row.curve_of(*given), Interval(ends[0], ends[1]))
    beside = row.value(places, *given) - closer.slope * places - closer.bend * places**2
    slack = 1e-14 * (np.abs(closer.slope * places) + np.abs(closer.bend) * places**2)
    assert np.all(closer.rest.low <= beside + slack)
    assert np.all(beside - slack <= closer.rest.high)
    if row.name != "ThresholdedRelu":
        wide, reached = found.rest.high - found.rest.low, np.ptp(above, axis=0)
        assert np.all(wide <= 1.3 * reached + 1e-9 * (1 + found.rest.size))


@pytest.mark.parametrize("row", FREE_SCALE.values(), ids=FREE_SCALE.keys())
def test_a_neuron_stands_for_others_of_any_scale(row: Activation) -> None:
    first = Map(RNG.normal(size=(4, 3)), RNG.normal(size=4))
    second = Map(RNG.normal(size=(2, 4)), RNG.normal(size=2))
    scale = RNG.uniform(0.3, 3.0, (3, 4))
    rows = np.tile(first.weight, (3, 1)) * scale.reshape(-1, 1)
    shares = np.tile(second.weight / 3, 3) / scale.ravel() ** (row.degree or 1)
    old = chain(
        row,
        Map(rows, np.tile(first.bias, 3) * scale.ravel()),
        Map(shares, second.bias),
        parameters=tuple(np.tile(a, 3) for a in unit_parameters(row, 4)),
    )
    new = chain(row, first, second, parameters=unit_parameters(row, 4))
    assert np.all(change(old, new) <= ROUNDED)


@pytest.mark.parametrize("row", REFLECTED.values(), ids=REFLECTED.keys())
def test_a_neuron_stands_for_its_opposite_if_what_is_left_over_cancels(row: Activation) -> None:
    """σ(−h) = sign·σ(h) + line·h + constant, and the three rows add up to 0."""
    assert row.reflection is not None
    sign, _, constant = row.reflection
    w, b = RNG.normal(size=(3, 2)), RNG.normal(size=3)
    w[2], b[2] = -w[:2].sum(axis=0), -b[:2].sum()
    v, u = RNG.normal(size=(2, 3)), RNG.normal(size=(2, 1)) * np.ones(3)
    old = chain(row, Map(np.vstack([w, -w]), np.r_[b, -b]), Map(np.hstack([v, u]), np.zeros(2)))
    new = chain(row, Map(w, b), Map(v + sign * u, constant * u.sum(axis=1)))
    assert np.all(change(old, new) <= ROUNDED)
    wrong = chain(row, Map(w, b), Map(v + sign * u, constant * u.sum(axis=1) + 0.01))
    assert np.all(change(old, wrong) >= 0.01)


@pytest.mark.parametrize("row", CONTINUOUS.values(), ids=CONTINUOUS.keys())
def test_a_perturbed_chain_is_followed_and_not_exceeded(row: Activation) -> None:
    """Two layers, an input that changes too, and several rows of inputs."""
    rng, given = np.random.default_rng(3), unit_parameters(row, 4)
    sizes = ((4, 2), (4, 4), (2, 4))
    maps = [Map(rng.normal(size=s) / 2, rng.normal(size=s[0]) / 2) for s in sizes]
    moved = [Map(f.weight + 1e-3 * rng.normal(size=f.weight.shape), f.bias) for f in maps]
    old, new = (chain(row, *fs, parameters=given) for fs in (maps, moved))
    shift = Interval(np.full((3, 2), -1e-3), np.full((3, 2), 2e-3))
    value, found = curved_change(old, new, (False,) * 3, box(2, 3), shift)
    x = np.vstack([rng.uniform(-1, 1, (300, 2)), rng.choice([-1.0, 1.0], (50, 2))])
    delta = rng.uniform(-1e-3, 2e-3, x.shape)
    before, after = run(old, x), run(new, x + delta)
    assert np.all((value.low[0] <= before) & (before <= value.high[0]))
    assert np.all((found.low[0] <= after - before) & (after - before <= found.high[0]))
    assert np.abs(after - before).max() >= found.size.max() / 60


def run(network: CurvedChain, x: FloatArray) -> FloatArray:
    for f, function in zip(network.maps, network.functions, strict=False):
        x = function.value(x @ f.weight.T + f.bias)
    return np.asarray(x @ network.maps[-1].weight.T + network.maps[-1].bias)


@pytest.mark.parametrize("row", [RELU, GELU])
def test_layers_that_were_fitted_to_each_other_are_closer_than_lines_show(row: Activation) -> None:
    """Where quadratic parts cancel: most neurons go, and the others make up for them."""
    rng = np.random.default_rng(5)
    w, b, v = rng.normal(size=(40, 2)), rng.normal(size=40), rng.normal(size=(2, 40))
    x = np.vstack([rng.uniform(-1, 1, (2000, 2)), rng.choice([-1.0, 1.0], (20, 2))])
    hidden = np.c_[row.value(x @ w[:25].T + b[:25]), np.ones(len(x))]
    old = chain(row, Map(w, b), Map(v, np.zeros(2)))
    fit = np.linalg.lstsq(hidden, run(old, x), rcond=1e-4)[0]
    new = chain(row, Map(w[:25], b[:25]), Map(np.ascontiguousarray(fit[:-1].T), fit[-1]))
    forms = ChainForms(old, new, (False,) * 2, Interval(-np.ones(2), np.ones(2)), flat(2))
    forms.follow_all()
    by_lines, by_both = forms.outputs()[1].size.max(), change(old, new).max()
    assert np.abs(run(new, x) - run(old, x)).max() <= by_both <= 0.8 * by_lines


def flat(inputs: int) -> Interval:
    return Interval.point(np.zeros(inputs))


def test_neurons_that_a_polynomial_can_do_without_need_no_partner() -> None:
    """30 cubic neurons of two inputs are linear combinations of 10."""
    row, rng = polynomial((0.5, -1.0, 0.2, 0.7)), np.random.default_rng(0)
    w, b, v = rng.normal(size=(30, 2)), rng.normal(size=30), rng.normal(size=(3, 30))
    x = rng.uniform(-1, 1, (400, 2))
    hidden = row.value(x @ w.T + b)
    fit = np.linalg.lstsq(hidden[:, :10], hidden @ v.T, rcond=None)[0]
    old = chain(row, Map(w, b), Map(v, np.zeros(3)))
    new = chain(row, Map(w[:10], b[:10]), Map(np.ascontiguousarray(fit.T), np.zeros(3)))
    spread = np.ptp(run(old, x))
    assert np.all(np.abs(run(new, x) - run(old, x)) <= change(old, new))
    assert np.all(change(old, new) <= 1e-4 * spread)


def test_a_neuron_with_another_bias_changes_by_what_its_steepest_slope_allows() -> None:
    one = np.ones((1, 1))
    old, new = (chain(RELU, Map(one, np.asarray([b])), Map(one, np.zeros(1))) for b in (0.0, 0.3))
    assert 0.3 <= change(old, new)[0] <= 0.3 + 1e-9


def test_layers_whose_neurons_all_went_are_followed() -> None:
    first = Map(RNG.normal(size=(3, 2)), RNG.normal(size=3))
    old = chain(RELU, first, Map(np.ones((1, 3)), np.zeros(1)))
    new = chain(RELU, Map(np.zeros((0, 2)), np.zeros(0)), Map(np.zeros((1, 0)), np.zeros(1)))
    x = np.vstack([RNG.uniform(-1, 1, (300, 2)), RNG.choice([-1.0, 1.0], (20, 2))])
    most = np.abs(run(old, x)).max()
    assert most <= change(old, new).max() <= 1.5 * most


def test_relus_that_are_always_on_are_lines() -> None:
    """Over the whole box, so that a layer of them is an affine map, with as many other neurons."""
    rng = np.random.default_rng(2)
    w, v = rng.uniform(-1, 1, (6, 2)), rng.normal(size=(2, 6))
    mixed = np.linalg.lstsq(
        np.c_[w[:3], np.full(3, 4.0)].T, np.c_[w, np.full(6, 4.0)].T, rcond=None
    )
    old = chain(RELU, Map(w, np.full(6, 4.0)), Map(v, np.zeros(2)))
    new = chain(RELU, Map(w[:3], np.full(3, 4.0)), Map(v @ mixed[0].T, np.zeros(2)))
    assert np.all(change(old, new) <= ROUNDED)


LAYER = "h = Gemm <transB = 1> (x, W, b) {} y = Gemm <transB = 1> (s, V, c)"
SPELLINGS = {
    "√2 in four digits": "q = Div(h, root) e = Erf(q) f = Add(e, one) g = Mul(h, f) s = Mul(g, u)",
    "Clip as Max and Min": "q = Max(h, one) s = Min(q, root)",
    "x·clip": "q = Add(h, three) e = Clip(q, zero, six) f = Mul(h, e) s = Mul(f, sixth)",
    "a bias of its own": "q = Add(h, B) s = Tanh(q)",
    "a cube": "q = Mul(h, h) s = Mul(q, h)",
    "BatchNormalization": "q = BatchNormalization(h, B, B, B, P) s = Sigmoid(q)",
}
NUMBERS = {"root": 1.4142, "one": 1, "u": 0.5, "three": 3, "zero": 0, "six": 6, "sixth": 1 / 6}


def spelled(body: str, neurons: Array, share: float) -> ModelProto:
    """A layer 3-6-2 with some of its neurons, whose outgoing weights get a share."""
    found = weights(3, W=(6, 3), b=(6,), V=(2, 6), c=(2,), B=(6,))
    text = LAYER.format(body)
    constants: dict[str, Array] = {
        "W": found["W"][neurons],
        "b": found["b"][neurons],
        "V": (found["V"][:, neurons] * share).astype("f"),
        "c": found["c"],
        "B": found["B"][neurons],
        "P": np.abs(found["B"][neurons]) + 1,
        **{name: np.asarray(a, "f") for name, a in NUMBERS.items()},
    }
    used = {name: a for name, a in constants.items() if f"{name}," in text or f"{name})" in text}
    return built(text, used)


@pytest.mark.parametrize("body", SPELLINGS.values(), ids=SPELLINGS.keys())
def test_functions_of_several_nodes_are_followed_as_exactly_as_they_are_written(body: str) -> None:
    every = np.arange(6)
    twice = spelled(body, np.tile(every, 2), 0.5)
    once, fewer = spelled(body, every, 1.0), spelled(body, every[:4], 1.0)
    x = [np.concatenate(samples((200, 3), 1))]
    _, size = largest_change(once, fewer, x)
    assert bound(twice, once) <= 1e-11 * size
    most, _ = largest_change(once, fewer, x)
    assert most <= bound(once, fewer) <= 4 * most


@pytest.mark.parametrize("wanted", EVERY_SPELLING.values(), ids=EVERY_SPELLING.keys())
def test_an_exact_merge_is_certified_in_every_spelling(wanted: Wanted) -> None:
    every = np.arange(NEURONS)

    def with_neurons(neurons: Array, share: float) -> ModelProto:
        arrays = {"W": WEIGHTS["W"][neurons], "b": WEIGHTS["b"][neurons]}
        arrays |= {"V": WEIGHTS["V"][:, neurons] * share, "added": BIAS[neurons]}
        slopes = {"slopes": SLOPES[neurons], "slope_row": SLOPES[None, neurons]}
        slopes["minus_slopes"] = -SLOPES[neurons]
        return spelled_layer_model(wanted, "float", **arrays, **slopes)

    assert bound(with_neurons(np.tile(every, 2), 0.5), with_neurons(every, 1.0)) <= 1e-10


@pytest.mark.parametrize("reach", [1.0, 1e4])
@pytest.mark.parametrize("name", ["√2 in four digits", "x·clip"])
def test_what_a_spelling_differs_by_from_the_table_is_counted(name: str, reach: float) -> None:
    graph = Graph(spelled(SPELLINGS[name], np.arange(6), 1.0))
    read = read_chain(graph, "y", curved=True)
    assert read is not None
    (function,) = read.functions
    assert function.spelled is not None
    places = np.sort(np.random.default_rng(0).uniform(-4, 5, 300))
    wide = Interval(reach * places[:1], reach * places[-1:])
    found, expected = function.spelled(places), function.activation.value(places)
    assert 0 < np.abs(found - expected).max() <= function.deviation(wide) <= reach * 1e-4
    here = function.range(Interval.point(places))
    assert np.all((here.low <= found) & (found <= here.high))
    steps = Interval(np.zeros(299), np.diff(places))
    moved = np.diff(found - expected)
    assert np.all(np.abs(moved) <= function.change_of_deviation(wide, steps) + 1e-15)


def test_a_layer_behind_merged_squares_is_followed_through_them() -> None:
    """Both layers have fewer neurons, so there is no value between them to compare."""
    body = (
        "h = Gemm <transB = 1> (x, A) s = Mul(h, h) k = Gemm <transB = 1> (s, B) "
        "t = Tanh(k) y = Gemm <transB = 1> (t, C)"
    )
    found = weights(4, A=(5, 3), B=(4, 5), C=(2, 4))
    small = built(body, found)
    double = {
        "A": np.tile(found["A"], (2, 1)),
        "B": np.tile(found["B"] / 2, (2, 2)),
        "C": np.tile(found["C"] / 2, (1, 2)),
    }
    assert bound(built(body, double), small) <= 1e-10
    fewer = built(body, {"A": found["A"][:4], "B": found["B"][:3, :4], "C": found["C"][:, :3]})
    most, size = largest_change(small, fewer, [np.concatenate(samples((300, 3), 1))])
    assert most <= bound(small, fewer) + ROUNDING * size


def test_a_transformer_block_is_certified() -> None:
    body = (
        "n = LayerNormalization <axis = -1, epsilon = 0.01> (x, g, d) h = MatMul(n, W) "
        "a = Add(h, b) s = Gelu(a) k = MatMul(s, V) o = Add(k, c) y = Add(x, o)"
    )
    found = weights(6, W=(8, 12), b=(12,), V=(12, 8), c=(8,), g=(8,), d=(8,))

    def block(neurons: Array, share: float) -> ModelProto:
        arrays = {**found, "W": found["W"][:, neurons], "b": found["b"][neurons]}
        arrays["V"] = (found["V"][neurons] * share).astype(np.float32)
        return built(body, arrays, inputs="float[N,5,8] x", outputs="float[N,5,8] y", opset=20)

    every = np.arange(12)
    assert bound(block(np.tile(every, 2), 0.5), block(every, 1.0)) <= 1e-10
    old, new = block(every, 1.0), block(every[:11], 1.0)
    most, _ = largest_change(old, new, samples((1, 5, 8), 30))
    assert most <= bound(old, new) <= 20 * most


def test_attention_behind_a_merged_layer_is_bounded_sample_by_sample() -> None:
    body = (
        "h = MatMul(x, W) s = Relu(h) q = MatMul(s, V) t = Transpose <perm = [0, 2, 1]> (q) "
        "a = MatMul(q, t) p = Softmax(a) y = MatMul(p, q)"
    )
    found = weights(2, W=(3, 6), V=(6, 4))
    fewer = {"W": found["W"][:, :5], "V": found["V"][:5] / 4}
    interface = {"inputs": "float[N,2,3] x", "outputs": "float[N,2,4] y"}
    found["V"] = found["V"] / 4
    old, new = (built(body, arrays, **interface) for arrays in (found, fewer))
    most, _ = largest_change(old, new, samples((1, 2, 3), 50))
    assert most <= bound(old, new) <= 30 * most
    mixed = built("t = Transpose(x) y = MatMul(x, t)", {}, inputs="float[N,3] x")
    assert "mixes the samples" in (certificate(mixed, mixed).unavailable or "")


@pytest.mark.parametrize("last", ["outer", "whole", "longer"])
def test_reshapes_that_keep_the_features_are_followed(last: str) -> None:
    """keras writes Dense on sequences so; the last Reshape may leave any number of axes."""
    body = (
        "q = Reshape(x, flat) a = MatMul(q, W) k = Reshape(a, inner) h = Add(k, b) s = Tanh(h) "
        f"t = Reshape(s, {last}) y = MatMul(t, V)"
    )
    found = weights(2, W=(3, 6), b=(6,), V=(6, 2))

    def dense(neurons: Array, share: float) -> ModelProto:
        n = len(neurons)
        arrays = {"W": found["W"][:, neurons], "b": found["b"][neurons]}
        arrays["V"] = (found["V"][neurons] * share).astype("f")
        shapes = {"outer": (-1, n), "whole": (-1, 5, n), "longer": (-1, 5, 1, n)}
        arrays |= {
            "flat": integers(-1, 3),
            "inner": integers(-1, 5, n),
            last: integers(*shapes[last]),
        }
        return built(body, arrays, inputs="float[N,5,3] x", outputs="float y")

    every = np.arange(6)
    old, new = dense(np.tile(every, 2), 0.5), dense(every, 1.0)
    assert bound(old, new) <= 1e-11
    fewer = dense(every[:5], 1.0)
    most, _ = largest_change(new, fewer, samples((1, 5, 3), 30))
    assert most <= bound(new, fewer) <= 5 * most


@pytest.mark.parametrize("middle", ["k = Relu(h) s = Reshape(k, half)", "s = Reshape(h, half)"])
def test_a_reshape_that_mixes_features_ends_a_chain(middle: str) -> None:
    body = f"h = MatMul(x, W) {middle} y = MatMul(s, V)"
    arrays = {**weights(2, W=(3, 6), V=(3, 2)), "half": integers(-1, 3)}
    old = built(body, arrays, inputs="float[1,3] x", outputs="float y")
    new = perturbed(old, ("W", "V"))
    most, _ = largest_change(old, new, samples((1, 3), 50))
    assert most <= bound(old, new) <= 5 * most


def test_a_normalization_does_not_enlarge_a_change_beyond_its_smallest_spread() -> None:
    body = "h = Mul(x, f) y = LayerNormalization <epsilon = 0.01> (h, g)"
    old, new = (
        built(body, {"f": floats(a, 1, 1), "g": floats(1, 2, 3)}, inputs="float[1,3] x")
        for a in (1.0, 1.01)
    )
    most, _ = largest_change(old, new, samples((1, 3), 100))
    assert most <= bound(old, new) <= 60 * most


def test_layers_of_other_activations_are_cheap_to_certify() -> None:
    body = "h = MatMul(x, W) s = Relu(h) y = MatMul(s, V)"
    graph = Graph(build(body, "float[N,8] x", W=np.zeros((8, 8), "f"), V=np.zeros((8, 2), "f")))
    size = LayerSize(784, 300, 100, 1)
    assert not cheap_to_certify(graph, [size])
    assert cheap_to_certify(graph, [size._replace(squares=False)])


def test_a_limit_on_the_certified_error_is_kept_by_other_activations_too() -> None:
    model = built(LAYER.format("s = Tanh(h)"), weights(0, W=(12, 3), b=(12,), V=(2, 12), c=(2,)))
    free = onnxfde.optimize(model, 0.3, quotient="refit").report
    assert free.certificate is not None
    limit = free.certificate.largest / 3
    kept = onnxfde.optimize(model, 0.3, quotient="refit", max_certified_error=limit).report
    assert kept.certificate is not None
    assert kept.certificate.largest <= limit
    assert free.layers[0].neurons_after < kept.layers[0].neurons_after < 12


def test_a_model_of_other_activations_does_not_change_against_itself() -> None:
    body = LAYER.format("s = Gelu(h)").replace("y =", "k =") + " t = Relu(k) y = Neg(t)"
    found = weights(1, W=(5, 3), b=(5,), V=(2, 5), c=(2,))
    model = built(body, found, opset=20)
    assert certificate(model, model).largest == 0.0


def test_a_function_knows_whether_another_is_the_same() -> None:
    gelu, square = HiddenFunction(GELU), HiddenFunction(SQUARE)
    assert gelu.fits(HiddenFunction(GELU))
    assert not gelu.fits(square)
    assert not gelu.fits(HiddenFunction(GELU, made_of=("Mul",)))
    assert square.is_square
