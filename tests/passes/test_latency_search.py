"""A time that is allowed: shapes are timed, and the slowest that is quick enough is merged."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from onnxfde.errors import GoalMissed
from onnxfde.graph.cost import multiply_adds, one_sample
from onnxfde.graph.model import Graph
from onnxfde.graph.protos import ModelProto
from onnxfde.numbers import Indices
from onnxfde.passes.goal_merging import GoalMerging
from onnxfde.passes.goal_search import GoalSearch
from onnxfde.passes.latency_search import TIME_AIM, LatencySearch, Timed, next_share
from onnxfde.passes.merge_neurons import MergeNeurons
from onnxfde.passes.result import Context, PassResult
from onnxfde.running.input_source import InputSource
from onnxfde.running.open_files import open_data
from tests.conv_models import images, residual
from tests.models import Array


def test_shares_of_the_work_are_sought_where_times_have_a_fixed_part() -> None:
    timed = [(1.0, 1.0), (0.8, 0.9)]
    assert next_share(timed, 0.75) == pytest.approx((TIME_AIM * 0.75 - 0.5) / 0.5, abs=1e-9)
    assert next_share([(1.0, 1.0)], 0.6) == pytest.approx(TIME_AIM * 0.6, abs=1e-9)
    assert next_share(timed, 0.1) == pytest.approx(0.8 / 3, abs=1e-9)


def test_a_share_far_below_what_is_allowed_is_not_the_last_that_is_timed() -> None:
    """Less work hardly helped at first, so a large step was taken: the rest lies in between."""
    timed = [(1.0, 1.0), (0.74, 0.92), (0.25, 0.54)]
    between = next_share(timed, 0.75)
    assert between == pytest.approx(0.25 + (TIME_AIM * 0.75 - 0.54) / 0.38 * 0.49, abs=1e-9)
    assert next_share([*timed, (0.5, 0.73)], 0.75) is None
    assert next_share([*timed, (0.73, 0.6)], 0.75) is None


def test_a_step_between_two_shares_is_not_too_small() -> None:
    assert next_share([(1.0, 1.0), (0.5, 0.499)], 0.55) == pytest.approx(0.55, abs=1e-9)


def timed_by_work(
    share: float,
    model: ModelProto,
    data: Array,
    slow_once_merged: float = 1.0,
    time_of: Callable[[float], float] = float,
) -> tuple[Graph, float, int]:
    """A goal of latency on a machine whose time is that of the multiply-adds."""
    graph, timed = Graph(model), list[float]()

    def work(network: Graph) -> float:
        found = multiply_adds(network.model, one_sample(network))
        whole = multiply_adds(model, one_sample(graph))
        assert found is not None
        assert whole is not None
        again = (taken := time_of(found / whole)) in timed
        timed.append(taken)
        return timed[-1] * (slow_once_merged if again else 1.0)

    source, _ = open_data(graph, data, (-1, 1))
    context = replace(Context(InputSource(source.limits, source.data)), latency=work)
    goal = GoalMerging.of(MergeNeurons(max_latency=f"{100 * share:g}%", quotient="refit"))
    assert goal is not None
    result, outcome = goal.apply(graph, context)
    assert outcome.chosen_by is not None
    return result.graph, outcome.chosen_by, outcome.tries


def test_a_latency_is_searched_by_shapes() -> None:
    graph, taken, tries = timed_by_work(0.6, residual(), images(200))
    assert 0.5 < taken <= 0.6
    assert tries >= 1
    assert graph.model != residual()


def test_a_latency_that_nothing_reaches_is_missed() -> None:
    with pytest.raises(
        GoalMissed,
        match=r"--max-latency 1% was not met: with .* → 1.* of the time; nothing.* is not spent in",
    ):
        timed_by_work(0.01, residual(), images(200))


def test_a_latency_that_is_missed_once_merged_is_an_error() -> None:
    with pytest.raises(GoalMissed, match="--max-latency 60% was not met"):
        timed_by_work(0.6, residual(), images(200), slow_once_merged=100.0)


def test_the_least_network_is_not_taken_where_a_larger_one_may_do() -> None:
    """A large step led to one unit in each layer: the rest lies in between."""

    def time_of(share: float) -> float:
        return float(np.interp(share, [0.13, 0.39, 1.0], [0.1, 0.9, 1.0]))

    _, taken, _ = timed_by_work(0.4, residual(), images(200), time_of=time_of)
    assert 0.3 < taken <= 0.4


def test_the_same_numbers_are_merged_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two shares of the work can have the same: what was too slow once is not tried again."""
    merged = list[tuple[int, ...]]()
    as_before = GoalSearch.merged

    def recorded(search: GoalSearch, counts: Indices) -> PassResult:
        merged.append(tuple(counts))
        return as_before(search, counts)

    def narrowed(search: LatencySearch, timed: list[Timed]) -> None:
        if len(timed) == 1:
            counts = search.spending.under(0.5 * search.spending.cost(search.spending.whole))
            timed.extend(Timed(share, 0.0, counts) for share in (0.5, 0.51))

    monkeypatch.setattr(GoalSearch, "merged", recorded)
    monkeypatch.setattr(LatencySearch, "narrow", narrowed)
    with pytest.raises(GoalMissed):
        timed_by_work(0.2, residual(), images(200))
    assert len(merged) == 1
