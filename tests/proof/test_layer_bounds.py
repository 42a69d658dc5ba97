"""Bounds over a box hold for every input, and are not far from the true maximum."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onnxfde.neurons.intervals import Interval
from onnxfde.neurons.layer import Layer
from onnxfde.numbers import FloatArray
from onnxfde.proof import layer_bounds as bounds
from onnxfde.proof.affine_bounds import Map, squares
from onnxfde.proof.chain_bounds import chain_change
from onnxfde.proof.layer_bounds import layer_change
from tests.strategies import layers

ROUNDING = 1e-12
"""What evaluating these small networks in float64 may add, relative to the size of the output."""


def random_layer(rng: np.random.Generator, d: int, n: int, m: int) -> Layer:
    incoming, outgoing = rng.normal(size=(n, d + 1)), rng.normal(size=(m, n))
    return Layer(incoming, outgoing, rng.normal(size=m)).stored_as(np.float32)


def nearby(layer: Layer, rng: np.random.Generator, drop: int) -> Layer:
    """Fewer neurons, all moved a little."""
    kept = max(layer.neurons - drop, 1)
    moved = layer.incoming[:kept] * rng.normal(1, 0.05, size=(kept, layer.inputs + 1))
    return Layer(moved, layer.outgoing[:, :kept] * 1.1, layer.offset).stored_as(np.float32)


def random_box(rng: np.random.Generator, d: int) -> Interval:
    mid, rad = rng.normal(size=(1, d)), rng.uniform(0, 2, size=(1, d))
    return Interval(mid - rad, mid + rad)


def nothing(d: int) -> Interval:
    return Interval.point(np.zeros((1, d)))


def points(box: Interval, rng: np.random.Generator, count: int = 200) -> FloatArray:
    """Inputs in the box: anywhere, and its corners."""
    share = rng.random((count, box.shape[1]))
    share[count // 2 :] = np.round(share[count // 2 :])
    return np.clip(box.low + share * (box.high - box.low), box.low, box.high)


def climbed(before: Layer, after: Layer, box: Interval, x: FloatArray) -> FloatArray:
    """|o′ − o| at inputs improved coordinate by coordinate: on each line it is a parabola."""
    best = np.abs(after(x) - before(x)).max(axis=1)
    for _ in range(3):
        for j in range(x.shape[1]):
            tries = [box.low[0, j], box.high[0, j], *vertices(before, after, x, j)]
            for value in tries:
                y = x.copy()
                y[:, j] = np.clip(value, box.low[0, j], box.high[0, j])
                change = np.abs(after(y) - before(y)).max(axis=1)
                x, best = np.where((change > best)[:, None], y, x), np.maximum(best, change)
    return np.asarray(best)


def vertices(before: Layer, after: Layer, x: FloatArray, j: int) -> list[FloatArray]:
    """Where each output's change turns along coordinate j."""
    at = [x + step * np.eye(x.shape[1])[j] for step in (-1.0, 0.0, 1.0)]
    low, mid, high = (after(a) - before(a) for a in at)
    curve, slope = (high + low) / 2 - mid, (high - low) / 2
    turn = np.divide(-slope, 2 * curve, out=np.zeros_like(slope), where=np.abs(curve) > 1e-9)
    return list((x[:, j : j + 1] + turn).T)


@settings(max_examples=150, deadline=None)
@given(layers(), st.integers(0, 2**32 - 1))
def test_no_input_of_the_box_leaves_the_bounds(layer: Layer, seed: int) -> None:
    rng = np.random.default_rng(seed)
    other, box = nearby(layer, rng, 1), random_box(rng, layer.inputs)
    value, change = layer_change(squares(layer), squares(other), box, nothing(layer.inputs))
    x = points(box, rng)
    slack = ROUNDING * layer.magnitude(x).max()
    for found, interval in ((layer(x), value), (other(x) - layer(x), change)):
        assert np.all(found <= interval.high + slack)
        assert np.all(found >= interval.low - slack)


@settings(max_examples=150, deadline=None)
@given(layers(), st.integers(0, 2**32 - 1), st.booleans())
def test_no_changed_input_leaves_the_bounds(layer: Layer, seed: int, same: bool) -> None:
    rng = np.random.default_rng(seed)
    other = layer if same else nearby(layer, rng, 1)
    box, shift = random_box(rng, layer.inputs), random_box(rng, layer.inputs)
    _, change = layer_change(squares(layer), squares(other), box, shift, same)
    x, delta = points(box, rng), points(shift, rng)
    found = other(x + delta) - layer(x)
    slack = ROUNDING * (layer.magnitude(x) + other.magnitude(np.abs(x) + np.abs(delta))).max()
    assert np.all(found <= change.high + slack)
    assert np.all(found >= change.low - slack)


def exactly(layer: Layer, x: list[Fraction]) -> list[Fraction]:
    """The layer in rational arithmetic."""
    rows = [[Fraction(w) for w in row] for row in layer.incoming.tolist()]
    hidden = [sum((w * a for w, a in zip(r, x, strict=False)), r[-1]) ** 2 for r in rows]
    weights = [[Fraction(v) for v in row] for row in layer.outgoing.tolist()]
    return [
        sum((v * h for v, h in zip(row, hidden, strict=True)), Fraction(c))
        for row, c in zip(weights, layer.offset.tolist(), strict=True)
    ]


@settings(max_examples=100, deadline=None)
@given(layers(most=5), st.integers(0, 2**32 - 1))
def test_the_bounds_hold_to_the_last_digit(layer: Layer, seed: int) -> None:
    """Without any slack, in rational arithmetic, where a box is a point or nearly so."""
    rng = np.random.default_rng(seed)
    middle = rng.normal(size=(1, layer.inputs)) * rng.choice([1e-3, 1.0, 1e3])
    width = rng.choice([0.0, 1e-15, 1e-8])
    box = Interval(middle, middle + width * np.abs(middle))
    scale = rng.normal(size=(layer.neurons, 1))
    other = Layer(layer.incoming * scale, layer.outgoing / scale.T**2, layer.offset)
    value, change = layer_change(squares(layer), squares(other), box, nothing(layer.inputs))
    for end in (box.low, box.high):
        x = [Fraction(a) for a in end[0].tolist()]
        old, new = exactly(layer, x), exactly(other, x)
        for k, (a, b) in enumerate(zip(old, new, strict=True)):
            assert Fraction(value.low[0, k]) <= a <= Fraction(value.high[0, k])
            assert Fraction(change.low[0, k]) <= b - a <= Fraction(change.high[0, k])


def test_the_bounds_are_close_to_the_true_maximum() -> None:
    """A multi-start search over corners and coordinates finds at least half of what is allowed."""
    ratios = []
    for seed in range(120):
        rng = np.random.default_rng(seed)
        d, n, m = (int(rng.integers(*ends)) for ends in ((1, 8), (2, 25), (1, 4)))
        layer = random_layer(rng, d, n, m)
        other = nearby(layer, rng, int(rng.integers(0, n // 2 + 1)))
        box = random_box(rng, d)
        _, change = layer_change(squares(layer), squares(other), box, nothing(d))
        most = climbed(layer, other, box, points(box, rng, 40)).max()
        ratios.append(change.size.max() / most)
    assert min(ratios) >= 1 - ROUNDING
    assert np.median(ratios) <= 2.0
    assert max(ratios) <= 4.0


@pytest.mark.parametrize(("d", "n", "m"), [(1, 2, 1), (3, 10, 2), (7, 60, 7), (20, 200, 5)])
def test_an_exact_merge_is_certified_to_rounding(d: int, n: int, m: int) -> None:
    rng = np.random.default_rng(d)
    layer = random_layer(rng, d, n, m)
    scale = rng.choice([-4.0, -0.5, 0.25, 2.0], size=(n, 1))
    incoming = np.vstack([layer.incoming, layer.incoming * scale])
    outgoing = np.hstack([layer.outgoing, layer.outgoing / scale.T**2])
    twice = Layer(incoming, outgoing, layer.offset)
    once = Layer(layer.incoming, 2 * layer.outgoing, layer.offset)
    box = Interval(np.full((1, d), -1.0), np.full((1, d), 1.0))
    value, change = layer_change(squares(twice), squares(once), box, nothing(d))
    assert np.all(change.size <= 1e-12 * (value.high - value.low))


def test_the_same_layer_on_the_same_input_does_not_change_at_all() -> None:
    layer = random_layer(np.random.default_rng(0), 4, 9, 3)
    box = Interval(np.full((2, 4), -1.0), np.full((2, 4), 1.0))
    still = Interval.point(np.zeros((2, 4)))
    _, change = layer_change(squares(layer), squares(layer), box, still, same=True)
    assert change.is_zero


@pytest.mark.parametrize(("limit", "most"), [("MOST_FORM_WORK", 2.0), ("MOST_GRAM_WORK", 10.0)])
def test_layers_too_large_for_their_forms_get_a_cheaper_bound(
    limit: str, most: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(3)
    layer = random_layer(rng, 12, 60, 4)
    other, box, shift = nearby(layer, rng, 20), random_box(rng, 12), random_box(rng, 12)
    args = squares(layer), squares(other), box
    full = layer_change(*args, nothing(12))[1].size.max()
    monkeypatch.setattr(bounds, "MOST_FORM_WORK", 0.0)
    monkeypatch.setattr(bounds, limit, 0.0)
    cheap = layer_change(*args, nothing(12))[1]
    x, delta = points(box, rng), points(shift, rng)
    assert np.all(np.abs(other(x) - layer(x)) <= cheap.size * (1 + ROUNDING))
    assert full < cheap.size.max() <= most * full
    moved = layer_change(*args, shift)[1]
    assert np.all(np.abs(other(x + delta) - layer(x)) <= moved.size * (1 + ROUNDING))


def test_forms_are_written_out_a_few_outputs_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(4)
    layer, box, shift = random_layer(rng, 5, 8, 6), random_box(rng, 5), random_box(rng, 5)
    other = nearby(layer, rng, 2)
    whole = layer_change(squares(layer), squares(other), box, shift)
    monkeypatch.setattr(bounds, "MOST_CHUNK_ENTRIES", 1)
    parts = layer_change(squares(layer), squares(other), box, shift)
    for a, b in zip(whole, parts, strict=True):
        np.testing.assert_allclose(a.high, b.high, rtol=1e-12, atol=0)
        np.testing.assert_allclose(a.low, b.low, rtol=1e-12, atol=0)


def run_chain(maps: tuple[Map, ...], x: FloatArray) -> FloatArray:
    for i, f in enumerate(maps):
        x = (x if i == 0 else x**2) @ f.weight.T + f.bias
    return x


def random_chain(rng: np.random.Generator, widths: list[int]) -> tuple[Map, ...]:
    sizes = pairwise(widths)
    return tuple(Map(rng.normal(size=(n, d)) / d, rng.normal(size=n)) for d, n in sizes)


def other_chain(rng: np.random.Generator, before: tuple[Map, ...]) -> tuple[Map, ...]:
    """A chain with fewer neurons here and there, some of its maps changed."""
    width, found = before[0].weight.shape[1], []
    for i, f in enumerate(before):
        n = len(f.weight) - (0 if i + 1 == len(before) else int(rng.integers(0, 3)))
        n, d = max(n, 1), width
        changed = (n, d) != f.weight.shape or rng.random() < 0.4
        noise = rng.normal(1, rng.choice([0.2, 2]) if changed else 0, size=(n, d))
        found.append(Map(f.weight[:n, :d] * noise, f.bias[:n]))
        width = n
    return tuple(found)


def highest(
    function: Callable[[FloatArray], FloatArray], k: int, box: Interval, z: FloatArray
) -> float:
    """The largest output k at inputs improved coordinate by coordinate: the ends and in between."""
    best = function(z)[:, k]
    for j in [*range(z.shape[1])] * 2:
        for share in (0.0, 1.0, 0.37):
            y = z.copy()
            y[:, j] = (1 - share) * box.low[0, j] + share * box.high[0, j]
            found = function(y)[:, k]
            z, best = np.where((found > best)[:, None], y, z), np.maximum(best, found)
    return float(best.max())


@settings(max_examples=80, deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.lists(st.integers(1, 5), min_size=2, max_size=5),
    st.booleans(),
)
def test_no_input_leaves_the_bounds_of_a_chain(seed: int, widths: list[int], moved: bool) -> None:
    """Any number of layers in a row, some changed and some with fewer neurons."""
    rng = np.random.default_rng(seed)
    before = random_chain(rng, widths)
    after = other_chain(rng, before)
    same = tuple(
        np.array_equal(a.weight, b.weight) and np.array_equal(a.bias, b.bias)
        for a, b in zip(before, after, strict=True)
    )
    box = random_box(rng, widths[0])
    shift = random_box(rng, widths[0]) if moved else nothing(widths[0])
    value, change = chain_change(before, after, same, box, shift)
    both = Interval(np.hstack([box.low, shift.low]), np.hstack([box.high, shift.high]))
    d = widths[0]
    old, z = run_chain(before, points(box, rng)), points(both, rng, 40)
    slack = ROUNDING * (value.size.max() + change.size.max())
    assert np.all((value.low - slack <= old) & (old <= value.high + slack))

    def moves(z: FloatArray) -> FloatArray:
        return run_chain(after, z[:, :d] + z[:, d:]) - run_chain(before, z[:, :d])

    for k in range(widths[-1]):
        assert highest(moves, k, both, z) <= change.high[0, k] + slack
        assert highest(lambda z: -moves(z), k, both, z) <= slack - change.low[0, k]


@pytest.mark.parametrize("depth", [1, 2, 3, 4])
def test_the_same_chain_on_the_same_input_does_not_change_at_all(depth: int) -> None:
    chain = random_chain(np.random.default_rng(depth), [4, 6, 3, 5, 2][: depth + 1])
    box = random_box(np.random.default_rng(0), 4)
    _, change = chain_change(chain, chain, (True,) * depth, box, nothing(4))
    assert change.is_zero


def test_the_cheaper_bound_is_reached_by_a_form_that_is_the_same_everywhere() -> None:
    """(x_1 + … + x_d)² appears: d² in the corner, and the Frobenius norm wastes nothing."""
    d = 9
    empty = Layer(np.zeros((1, d + 1)), np.ones((1, 1)), np.zeros(1))
    full = Layer(np.column_stack([np.ones((1, d)), [0.0]]), np.ones((1, 1)), np.zeros(1))
    box = Interval(np.full((1, d), -1.0), np.full((1, d), 1.0))
    found = bounds.gram_change(squares(empty), squares(full), box)
    assert d**2 <= found.high[0] <= 1.01 * d**2
