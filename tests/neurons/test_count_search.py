"""Which counts are tried, when descents end, and what is left when the time is over."""

from __future__ import annotations

import itertools
import math
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnxfde.deadline import Deadline
from onnxfde.neurons.block_search import BlockSearch
from onnxfde.neurons.chase import Chase
from onnxfde.neurons.count_search import BISECTIONS, FIRST_SHARE
from onnxfde.neurons.count_trials import FULL_TRIALS, SEARCH_WORK, CountTrials
from onnxfde.neurons.free_layers import FreeLayers
from onnxfde.neurons.free_search import FreeSearch
from onnxfde.neurons.layer import Layer
from onnxfde.neurons.lbfgs import lbfgs
from onnxfde.neurons.search_meter import SearchMeter
from onnxfde.numbers import FloatArray
from onnxfde.progress import Progress
from tests.neurons.test_free_search import left, random_layer
from tests.strategies import problem_of


def search_of(
    layer: Layer, progress: Progress | None = None, deadline: Deadline | None = None
) -> FreeSearch:
    problem = problem_of(layer)
    blocks = BlockSearch(problem)
    return FreeSearch(problem, blocks, progress or Progress(), deadline or Deadline())


def ticking(ticks: int) -> Deadline:
    """A deadline that passes when the clock was read so often."""
    return Deadline.after(float(ticks), map(float, itertools.count()).__next__)


def wide_layer() -> Layer:
    """Its neurons can be reduced by a fifth at ε = 0.3, and merging removes fewer."""
    return random_layer(8, 40, 12)


def test_it_tries_few_counts_and_never_more_than_planned() -> None:
    told: list[str] = []
    search = search_of(wide_layer(), Progress(found=told.append))
    found = search.within(0.3)
    assert found is not None
    counts = [int(text.split()[0]) for text in told]
    assert counts == list(range(1, len(counts) + 1))
    assert len(counts) <= 1 + BISECTIONS + math.log(40) / -math.log(0.7)
    assert told[-1].endswith(f"best {found.layer.neurons} of 40 neurons")
    assert search.remark is None


def test_progress_never_runs_backwards_and_its_total_is_fixed() -> None:
    told: list[tuple[int, int]] = []
    search_of(wide_layer(), Progress(at=lambda a, b: told.append((a, b)))).within(0.3)
    done = [at for at, _ in told]
    assert done == sorted(done)
    assert len({total for _, total in told}) == 1
    assert done[-1] <= told[-1][1]
    assert len(set(done)) > 20


def test_a_layer_that_needs_all_its_neurons_is_given_up_after_one_trial() -> None:
    layer, told = random_layer(40, 50, 40), list[str]()
    search = search_of(layer, Progress(found=told.append))
    found = search.within(0.01)
    assert left(layer, found) == left(layer, search.blocks.within(0.01))
    assert len(told) == 1
    count = math.ceil(FIRST_SHARE * 50)
    assert search.remark is not None
    assert re.search(rf"not worth it: even 98 % of the neurons \({count}\)", search.remark)
    assert not search.cut


@pytest.mark.parametrize("ticks", [1, 40, 200])
def test_when_the_time_is_over_the_best_so_far_is_taken(ticks: int) -> None:
    layer = wide_layer()
    search = search_of(layer, deadline=ticking(ticks))
    found, merged = search.within(0.3), search.blocks.within(0.3)
    assert search.cut
    assert search.remark is not None
    assert re.fullmatch(r"the time limit ended the search: \d+ of \d+ counts tried", search.remark)
    assert left(layer, found) <= left(layer, merged)
    assert found is None or found.error <= 0.3


def test_more_time_never_leaves_more_neurons_and_enough_is_as_good_as_no_limit() -> None:
    layer = wide_layer()
    counts = [left(layer, search_of(layer, deadline=ticking(t)).within(0.3)) for t in (1, 60, 300)]
    assert counts == sorted(counts, reverse=True)
    free, calm = search_of(layer), search_of(layer, deadline=ticking(10**9))
    first, second = free.within(0.3), calm.within(0.3)
    assert first is not None
    assert second is not None
    assert not calm.cut
    np.testing.assert_array_equal(first.layer.incoming, second.layer.incoming)
    assert counts[0] > first.layer.neurons


def test_without_time_a_wanted_count_is_the_refitted_merge() -> None:
    layer = wide_layer()
    search = search_of(layer, deadline=ticking(1))
    found, merged = search.at_most(20), search.blocks.at_most(20)
    assert found is not None
    assert merged is not None
    assert search.cut
    np.testing.assert_array_equal(found.layer.incoming, merged.layer.incoming)


@pytest.mark.parametrize(
    ("inputs", "neurons", "outputs"), [(64, 256, 10), (512, 1024, 512), (2048, 8192, 2048)]
)
def test_the_work_of_a_search_is_bounded(inputs: int, neurons: int, outputs: int) -> None:
    small = random_layer(3, 4, 2)
    layer = Layer(np.empty((neurons, inputs + 1)), np.empty((outputs, neurons)), np.empty(outputs))
    layers = FreeLayers(problem_of(small))
    work = layers.step_work(1) / (4 * 5) * neurons * (layer.inputs + layer.outputs)

    class Sized(FreeLayers):
        def step_work(self, count: int) -> float:
            return work * count

    trials = CountTrials.planned(
        Sized(layers.problem), BlockSearch(layers.problem), SearchMeter(), neurons
    )
    most = min(neurons, trials.most_neurons)
    assert FULL_TRIALS * trials.steps * most * work <= SEARCH_WORK * (1 + 1e-12)
    assert trials.steps >= 10


def test_a_descent_is_followed_until_it_is_there_or_hopeless() -> None:
    slow, fast = Chase(0.01, 300), Chase(0.01, 300)
    for step in range(1, 41):
        slow.follow(0.5 + 0.1 / step)
        fast.follow(1.0 / step)
    assert slow.hopeless
    assert not fast.hopeless
    assert fast.follow(0.009)
    assert not fast.follow(0.009)


@given(st.lists(st.floats(1e-6, 1.0), min_size=2, max_size=60), st.floats(1e-4, 1.0))
def test_a_higher_goal_looks_wherever_a_lower_one_does(values: list[float], goal: float) -> None:
    low, high = Chase(goal / 2, 100), Chase(goal, 100)
    for value in sorted(values, reverse=True):
        looks = low.follow(value), high.follow(value)
        assert looks[1] or not looks[0]
        assert low.hopeless or not high.hopeless


def test_lbfgs_goes_down_to_the_minimum_of_a_stretched_bowl_and_of_a_bent_valley() -> None:
    stretch = np.geomspace(1, 100, 30)

    def bowl(x: FloatArray) -> tuple[float, FloatArray]:
        return float(stretch @ x**2), 2 * stretch * x

    def valley(x: FloatArray) -> tuple[float, FloatArray]:
        a, b = x
        slope = np.array([-2 * (1 - a) - 400 * a * (b - a * a), 200 * (b - a * a)])
        return float((1 - a) ** 2 + 100 * (b - a * a) ** 2), slope

    for f, start, least in ((bowl, np.ones(30), np.zeros(30)), (valley, [-1.2, 1.0], [1.0, 1.0])):
        points = list(itertools.islice(lbfgs(f, np.asarray(start)), 300))
        values = [point.value for point in points]
        assert values == sorted(values, reverse=True)
        np.testing.assert_allclose(points[-1].x, least, rtol=0, atol=1e-4)


def test_a_deadline_is_divided_by_the_work_that_is_left() -> None:
    deadline = Deadline(100.0, lambda: 20.0)
    assert deadline.for_part(0.25).moment == 40.0
    assert Deadline(10.0, lambda: 20.0).for_part(0.5).moment == 20.0
    assert Deadline().for_part(0.5).moment is None
    assert not Deadline().passed
