"""Other ways to share out units over layers, at the same cost, merged by the same method.

    equal share   every layer keeps the same share of its units
    equal ε       every layer has the same relative error, by its own curve
    drawn         random shares around equal ones, or around those of a result
    brute force   two layers: all counts of the first (at most `MOST` of them), as many units in the
                  second as the cost allows; one layer: what the cost allows; more: drawn, `MOST`

Each is scaled until it costs as much as is allowed and not more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache

import numpy as np

from benchmarks.targets.runs import judged
from benchmarks.targets.subjects import GIVEN, Subject
from onnxfde.data_use import DataUse
from onnxfde.graph.size import count_parameters
from onnxfde.neurons.spending import Spending, counts_within
from onnxfde.numbers import FloatArray, Indices
from onnxfde.options import Quotient
from onnxfde.passes.goal_search import GoalSearch
from onnxfde.passes.merge_neurons import MergeNeurons
from onnxfde.passes.result import Context
from onnxfde.running.open_files import open_data, open_model

MOST = 40
"""Allocations of a small network that are tried; chosen."""
DRAWN = 30
"""Random allocations of a large network that are tried: as the project asks."""
SPREADS = (0.5, 0.2)
"""How far drawn shares are from equal ones and from those of a result (of logarithms); chosen."""
HALVINGS = 40
"""Steps of a search for the largest scale that is allowed; chosen: to rounding."""


@cache
def search_of(subject: Subject, quotient: Quotient) -> GoalSearch:
    """What a run on this network's rows knows: the same rows are kept back as in a command."""
    source = open_model(subject.model)
    inputs = source.graph.inputs[0].name
    preprocess = subject.words[1:]
    use = DataUse.given(preprocess)
    data, _ = open_data(source.graph, {inputs: subject.x[:GIVEN]}, (-1.0, 1.0), use)
    context = Context(data.parted().parted())
    return GoalSearch(MergeNeurons(quotient=quotient, align=1), source.graph, context, "")


def tried(subject: Subject, quotient: Quotient, counts: Indices) -> tuple[float, int]:
    """The error on the test rows, and the parameters, of a network with so many units."""
    model = search_of(subject, quotient).merged(counts).graph.model
    return float(judged(subject, model)["error"]), count_parameters(model)


def scaled(spending: Spending, at: Callable[[float], Indices], cost: float) -> Indices | None:
    """The counts of the largest scale between 0 and 1 that cost at most this, if any do."""
    low, high = 0.0, 1.0
    if spending.cost(at(high)) <= cost:
        return at(high)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if spending.cost(at(middle)) <= cost else (low, middle)
    found = at(low)
    return found if spending.cost(found) <= cost else None


def by_shares(spending: Spending, shares: FloatArray, cost: float) -> Indices | None:
    """Counts in proportion to shares of all units."""
    top = shares / shares.min()
    return scaled(
        spending,
        lambda scale: np.clip(np.round(scale * top * spending.whole), 1, spending.whole).astype(
            int
        ),
        cost,
    )


def by_errors(search: GoalSearch, spending: Spending, cost: float) -> Indices | None:
    """Counts of equal local errors."""
    curves = [curve.local for curve in search.curves]
    return scaled(
        spending, lambda scale: np.array([counts_within(c, 1 - scale) for c in curves]), cost
    )


def drawn(spending: Spending, counts: Indices, cost: float, number: int) -> Iterator[Indices]:
    """Random counts of this cost, half of them around some that are known."""
    rng = np.random.default_rng(0)
    centres = np.ones(len(counts)), counts / spending.whole
    for i in range(number):
        noise = np.exp(SPREADS[i % 2] * rng.normal(size=len(counts)))
        found = by_shares(spending, centres[i % 2] * noise, cost)
        if found is not None:
            yield found


def exhaustive(spending: Spending, cost: float) -> Iterator[Indices]:
    """All counts of one or two layers that use up a cost."""
    first = np.unique(np.geomspace(1, spending.whole[0], MOST).round().astype(int))
    if len(spending.whole) == 1:
        fits = [n for n in range(1, spending.whole[0] + 1) if spending.cost(np.array([n])) <= cost]
        yield from (np.array([n]) for n in fits[-1:])
        return
    for one in first:
        every = [np.array([one, n]) for n in range(1, spending.whole[1] + 1)]
        fitting = [counts for counts in every if spending.cost(counts) <= cost]
        yield from fitting[-1:]


def others(
    subject: Subject, quotient: Quotient, known: Mapping[str, int], cost: float, large: bool
) -> Iterator[Indices]:
    """Allocations that cost this, to compare with a result that has these counts."""
    search = search_of(subject, quotient)
    spending = search.spending("params")
    counts = np.array([known[curve.axis.name] for curve in search.curves])
    if len(counts) <= 2:
        return exhaustive(spending, cost)
    return drawn(spending, counts, cost, DRAWN if large else MOST)
