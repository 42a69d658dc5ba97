"""A loss is searched for by what each try shows: of the whole network, and of each layer."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import onnxfde
from onnxfde.graph.model import Graph
from onnxfde.graph.protos import ModelProto
from onnxfde.numbers import Indices
from onnxfde.passes.goal_search import GoalSearch
from onnxfde.passes.loss_search import (
    AIMS,
    LARGEST_STEP,
    Attempt,
    LossChooser,
    LossSearch,
    next_budget,
)
from onnxfde.passes.merge_neurons import MergeNeurons
from onnxfde.passes.result import Context
from onnxfde.running.open_files import open_data
from tests.conv_models import images, residual
from tests.models import Array, build, outputs_of
from tests.passes.test_goal_merging import INPUTS, chain, change, rows


def search_of(model: ModelProto, data: Array, quotient: Any, limit: float = 0.2) -> LossSearch:
    graph = Graph(model)
    inputs = open_data(graph, data, (-1, 1))[0].parted(for_loss=True)
    chooser = LossChooser.of("error", limit, graph, inputs)
    merge, context = MergeNeurons(quotient=quotient, align=1), Context(inputs, memory={})
    search = GoalSearch(merge, graph, context, "--max-error")
    return LossSearch("error", limit, search, chooser)


def half(search: LossSearch) -> Indices:
    return np.maximum(search.spending.whole // 2, 1)


@pytest.mark.parametrize(("model", "data"), [(chain(), rows(800)), (residual(), images(400))])
def test_layers_tell_their_own_error_without_what_they_inherit(
    model: ModelProto, data: Array
) -> None:
    """The last layer, alone and behind smaller ones: its own error is about the same."""
    search = search_of(model, data, "refit")
    start, name = search.spending.whole, search.search.curves[-1].axis.name
    alone = start.copy()
    alone[-1] = half(search)[-1]
    every = half(search)
    every[-1] = alone[-1]
    errors = []
    for counts in (alone, every):
        merged = search.search.merged(counts)
        errors.append(search.search.own_errors(merged)[name])
        (layer,) = (layer for layer in merged.layers if layer.name == name)
    assert errors[1] == pytest.approx(errors[0], rel=0.5)
    assert layer.measured_error > 1.1 * errors[1]


def test_the_first_layer_inherits_nothing() -> None:
    merged = (search := search_of(chain(), rows(800), "refit")).search.merged(half(search))
    first = merged.layers[0]
    assert first.own_error_interval is not None
    low, high = first.own_error_interval
    assert low < first.measured_error < high  # on other rows


def test_curves_go_through_the_errors_that_a_try_found() -> None:
    search = search_of(chain(), rows(800), "minimal")
    attempt = search.attempt(half(search), 1)
    corrected = search.corrected([attempt])
    errors = search.search.own_errors(attempt.result)
    for curve, new, count in zip(
        search.search.curves, corrected.curves, attempt.counts, strict=True
    ):
        found = errors[curve.axis.name]
        assert new[count] == pytest.approx(np.interp(found, curve.local[::-1], curve.network[::-1]))
        assert new[count] < curve.network[count]


def test_the_first_try_is_by_errors_and_needs_fewer_neurons_than_the_curves_say() -> None:
    search = search_of(chain(), rows(800), "minimal")
    planned = search.spending.within(0.2)
    first = search.attempt(planned, 0)
    assert np.all(first.counts <= planned)
    assert first.counts.sum() < planned.sum()
    allowed = dict(search.search.allowed(planned))
    (layer,) = (layer for layer in first.result.layers if layer.name == "first")
    assert layer.own_error is not None
    assert layer.own_error <= 1.2 * allowed["first"]


def test_a_search_ends_where_nothing_smaller_is_expected_to_do() -> None:
    search = search_of(chain(), rows(800), "refit", limit=0.3)
    tried = list(search.attempts())
    best = search.best(tried)
    assert best.worst <= 0.3
    assert len({tuple(attempt.counts) for attempt in tried}) == len(tried)
    following = search.next_counts(tried)
    smaller = following is None or search.spending.cost(following) < search.spending.cost(
        best.counts
    )
    assert smaller


def test_minimal_uses_what_is_allowed() -> None:
    """With fewer parameters than what the errors of refit would need."""
    results = {
        quotient: onnxfde.optimize(chain(), max_error=0.2, data=rows(800), quotient=quotient)
        for quotient in ("refit", "minimal")
    }
    goal = results["minimal"].report.goal
    assert goal is not None
    assert goal.reached is not None
    assert 0.6 * 0.2 < goal.reached <= 0.2
    assert change(chain(), results["minimal"].model, rows(2000, seed=9)) <= 1.1 * 0.2
    left = {quotient: result.report.parameters.after for quotient, result in results.items()}
    assert left["minimal"] < left["refit"]


def test_rows_fitted_to_that_lose_more_than_others_are_believed() -> None:
    """A few rows far out are all among those fitted to: rows to choose by know nothing of them."""
    weights: Any = {"a": np.eye(6, 2, dtype=np.float32)}
    plain = build("y = MatMul(x, a)", INPUTS, "float[N,2] y", **weights)
    near = build(
        "[low] l = Constant<value = float {-6.0}>() [high] h = Constant<value = float {6.0}>() "
        "c = Clip(x, l, h) y = MatMul(c, a)",
        INPUTS,
        "float[N,2] y",
        **weights,
    )
    data = rows(800)
    inputs = open_data(Graph(plain), data, (-1, 1))[0].parted()
    fitted = inputs.parted().data
    assert fitted is not None
    fitted_rows = {row.tobytes() for row in fitted.arrays["x"]}
    data[[i for i, row in enumerate(data) if row.tobytes() in fitted_rows][:4]] *= 20
    inputs = open_data(Graph(plain), data, (-1, 1))[0].parted()
    chooser = LossChooser.of("error", 0.2, Graph(plain), inputs)
    loss, worst = chooser.judged(Graph(near))
    assert loss.value == loss.expected(chooser.verdict_rows) == 0
    (before,), (after,) = outputs_of(plain, data), outputs_of(near, data)
    assert (
        worst > np.linalg.norm(after - before) / np.linalg.norm(before - before.mean(axis=0)) > 0.1
    )


def test_budgets_fall_faster_where_the_loss_hardly_does() -> None:
    assert next_budget([0.1], [2.0], AIMS[0]) == pytest.approx(0.1 * AIMS[0] / 2, abs=1e-9)
    assert next_budget([0.1, 0.05], [2.0, 1.9], AIMS[0]) < 0.4 * 0.05


def test_budgets_rise_by_a_bounded_step_where_nothing_is_lost() -> None:
    assert next_budget([0.1], [0.0], 1.0) == pytest.approx(LARGEST_STEP * 0.1, abs=1e-9)


@given(
    st.lists(st.floats(1e-4, 1.0), min_size=2, max_size=5, unique=True),
    st.floats(0.3, 1.0),
    st.floats(0.0, 1.0),
)
def test_budgets_hit_losses_that_are_powers_of_them(
    errors: list[float], power: float, place: float
) -> None:
    losses = [error**power for error in errors]
    low, high = math.log(min(losses)), math.log(max(losses))
    wanted = math.exp(low + place * (high - low))
    assert next_budget(errors, losses, wanted) ** power == pytest.approx(wanted, rel=1e-6)


def test_losses_of_about_the_same_budget_do_not_tell_how_they_grow() -> None:
    """They scatter: the next budget falls in proportion."""
    errors, losses = [0.100, 0.101, 0.105], [0.104, 0.102, 0.103]
    assert next_budget(errors, losses, 0.085) == pytest.approx(0.1 * 0.085 / 0.104, rel=1e-6)


def test_a_search_near_the_limit_steps_further_away_after_each_try_in_vain() -> None:
    search = search_of(chain(), rows(800), "refit")
    attempt = replace(search.attempt(half(search), 1), worst=1.05 * search.limit)
    budgets = []
    for count in range(1, len(AIMS)):
        following = search.next_counts([attempt] * count)
        assert following is not None
        budgets.append(search.corrected([attempt]).error(following))
    assert budgets == sorted(budgets, reverse=True)
    assert budgets[-1] < 0.8 * budgets[0]


def test_tries_are_as_many_as_they_are_cheap_and_one_more_in_vain() -> None:
    tries = {}
    for name, model, data, quotient in (
        ("dense, refitted", chain(), rows(800), "refit"),
        ("dense, moved", chain(), rows(800), "minimal"),
        ("channels", residual(), images(400), "refit"),
    ):
        search = search_of(model, data, quotient)
        attempt = search.attempt(half(search), 1)
        good, bad = (replace(attempt, worst=share * search.limit) for share in (0.5, 1.5))
        tries[name] = search.most_tries([bad]), search.most_tries([bad, good])
    assert tries == {"dense, refitted": (8, 8), "dense, moved": (5, 4), "channels": (5, 4)}


def test_a_search_ends_where_the_curves_say_that_what_was_tried_in_vain_loses_nothing() -> None:
    """No budget is so small that they would ask for more units."""
    search = search_of(chain(), rows(800), "refit")
    curves = [
        replace(curve, network=np.zeros_like(curve.network)) for curve in search.search.curves
    ]
    search.search.__dict__["curves"] = curves
    least = np.ones_like(search.spending.whole)
    tried = [Attempt(least, search.search.lossless, worst=2 * search.limit)]
    assert search.next_counts(tried) is None


def test_looks_at_single_layers_are_no_tries() -> None:
    search = search_of(chain(), rows(800), "refit", limit=0.1)
    first = search.attempt(half(search), 0)
    bad = replace(first, worst=3 * search.limit)
    looks = [replace(bad, alone=place) for place in (0, 1)]
    good = replace(first, alone=0, worst=0.5 * search.limit)
    assert search.in_vain([bad, *looks]) == search.in_vain([bad, good]) == 1
    assert search.most_tries([bad, good]) == search.most_tries([bad])
    assert search.best([bad, good]) is good


def test_a_network_of_one_layer_is_searched_to_the_end() -> None:
    """Each try cuts one layer alone: all of them tell how a loss grows."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(3000, 10)).astype(np.float32)
    weights = {
        "W": rng.normal(size=(10, 64)),
        "b": rng.normal(size=64),
        "V": rng.normal(size=(64, 5)) * np.exp(-np.arange(64) / 12)[:, None],
    }
    model = build(
        "h = Gemm(x, W, b) r = Relu(h) y = MatMul(r, V)",
        inputs="float[N,10] x",
        outputs="float[N,5] y",
        W=weights["W"].astype(np.float32),
        b=weights["b"].astype(np.float32),
        V=weights["V"].astype(np.float32),
    )
    labels = outputs_of(model, x)[0].argmax(axis=1)
    labels[:300] = rng.integers(0, 5, 300)
    found = onnxfde.optimize(model, max_drop=15, data={"x": x, "y": labels}, quotient="refit")
    assert found.report.goal is not None
    assert found.report.goal.tries > 2
    assert found.report.parameters.after < 230


@pytest.mark.parametrize("liar", [0, 1])
def test_a_layer_that_does_more_harm_than_its_curve_says_is_found_out(liar: int) -> None:
    """At the outputs one layer seems to do nothing: the first try cuts it far too much."""
    left = []
    for lie in (1.0, 1e-3):
        search = search_of(chain(), rows(800), "refit", limit=0.1)
        curves = search.search.curves
        curves[liar] = replace(curves[liar], network=lie * curves[liar].network)
        found, outcome = search.result()
        assert outcome.chosen_by is not None
        assert 0 < outcome.chosen_by <= search.limit
        left.append(search.spending.cost(search.search.counts_of(found)))
    assert left[1] <= 1.15 * left[0]
