"""The least error with a time that is allowed.

    counts of least error with a share of the multiply-adds  →  a network of these shapes, timed

Shares are tried until one is quick enough, then between it and the next one that is not, until the
quick one takes nearly as long as is allowed. Only then the network is merged, and timed again: if
it takes longer than its shapes did, the search goes on below it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from onnxfde.errors import GoalMissed
from onnxfde.limits import latency_limit
from onnxfde.neurons.spending import Spending
from onnxfde.numbers import Indices
from onnxfde.passes.goal_outcome import GoalOutcome, LayerSpent, spent
from onnxfde.passes.goal_search import NO_AXES, GoalSearch
from onnxfde.passes.result import PassResult

MOST_TIMED = 8
"""How many shapes are timed at most. Chosen; not tuned."""
TIME_AIM = 0.98
"""The share of the allowed time that is aimed at. Chosen: times vary by about the rest."""
NEAR_TIME = 0.95
"""A time of this share of what is allowed is not worth another try. Chosen."""
NARROW = 0.97
"""If a share this much smaller than one that is too slow is quick enough, it is taken. Chosen."""
LARGEST_FALL = 3.0
"""By which factor a share falls at most between two tries. Chosen."""
LEAST_PART = 0.1
"""Between two shares, the next one is at least this part of their distance from each. Chosen."""
HARDLY_LESS = 0.97
"""A time above this share of another one is hardly less. Chosen: times vary by about so much."""
FIXED_TIME = "most of the time is not spent in layers that can be made smaller:"


@dataclass(frozen=True, eq=False)
class Timed:
    """A network with at most so many multiply-adds, and how long it takes."""

    share: float
    """Of the multiply-adds that are left without loss."""
    time: float
    counts: Indices

    def slowed(self, counts: Indices, time: float) -> Timed:
        """The same with the time that a network with so many units took once merged."""
        return replace(self, time=time) if np.array_equal(self.counts, counts) else self


@dataclass(frozen=True, eq=False)
class LatencySearch:
    """Looks for the least error with a time that is allowed."""

    search: GoalSearch
    text: str
    """The limit as it was given."""

    def result(self) -> tuple[PassResult, GoalOutcome]:
        """The network that is quick enough; GoalMissed if none is."""
        lossless, taken = self.search.lossless, self.latency(self.search.lossless)
        if taken <= self.limit:
            return lossless, self.outcome(taken, 0)
        if not self.search.axes:
            text = self.outcome(taken, 0).in_words(taken)
            raise GoalMissed(f"--max-latency {self.text}: {NO_AXES}, it takes {text}")
        timed = [Timed(1.0, taken, self.spending.whole)]
        while True:
            self.narrow(timed)
            quick = [one for one in timed if one.time <= self.limit]
            if not quick:
                raise GoalMissed(self.missed(timed))
            best = max(quick, key=lambda one: one.share)
            found = self.search.merged(best.counts)
            taken = self.latency(found)
            if taken <= self.limit:
                steps = spent(self.search, self.spending, best.counts)
                return found, self.outcome(taken, len(timed) - 1, steps)
            timed = [one.slowed(best.counts, taken) for one in timed]

    @cached_property
    def limit(self) -> float:
        """In milliseconds, or as a share of the original's time."""
        return latency_limit(self.text)[0]

    @cached_property
    def spending(self) -> Spending:
        """The errors of counts by the curves, and their multiply-adds."""
        return self.search.spending("macs")

    def outcome(self, taken: float, tries: int, steps: tuple[LayerSpent, ...] = ()) -> GoalOutcome:
        """What came out."""
        as_share = latency_limit(self.text)[1]
        return GoalOutcome("latency", self.limit, taken, tries, steps, as_share=as_share)

    def latency(self, found: PassResult) -> float:
        """How long a network takes."""
        assert self.search.context.latency is not None
        return self.search.context.latency(found.graph)

    def narrow(self, timed: list[Timed]) -> None:
        """Time more shapes, until the slowest that is quick enough is near enough."""
        while len(timed) <= MOST_TIMED:
            share = next_share([(one.share, one.time) for one in timed], self.limit)
            least = min(timed, key=lambda one: one.share)
            if share is None or (least.time > self.limit and (least.counts == 1).all()):
                return
            timed.append(self.timed(share, timed))

    def timed(self, share: float, known: Sequence[Timed]) -> Timed:
        """A network of the shapes that have at most so many multiply-adds."""
        counts = self.spending.under(share * self.spending.cost(self.spending.whole))
        for one in known:
            if np.array_equal(one.counts, counts):
                return replace(one, share=share)
        lossless = self.search.lossless
        taken = self.latency(replace(lossless, graph=self.search.skeleton(counts)))
        self.search.context.progress.note(
            f"note: {self.spending.cost(counts):,.0f} multiply-adds: "
            f"{self.outcome(taken, 0).in_words(taken)}"
        )
        return Timed(share, taken, counts)

    def missed(self, timed: Sequence[Timed]) -> str:
        """Why no network is quick enough."""
        last = min(timed, key=lambda one: one.share)
        steps = spent(self.search, self.spending, last.counts)
        outcome = self.outcome(last.time, len(timed) - 1, steps)
        pairs = [(one.share, one.time) for one in timed]
        fixed = hardly_faster(pairs) or (last.counts == 1).all()
        return (
            f"--max-latency {self.text} was not met: with {outcome.nearest} it takes "
            f"{outcome.in_words(last.time)}; nothing was written: "
            f"{FIXED_TIME if fixed else 'times vary, try again or'} allow more"
        )


def hardly_faster(timed: Sequence[tuple[float, float]]) -> bool:
    """Whether the least work takes hardly less time than at least twice as much.

    Then even less work gains nothing but noise, and costs the network all that it can do.

    >>> hardly_faster([(1.0, 1.0), (0.4, 0.99)]), hardly_faster([(1.0, 1.0), (0.4, 0.8)])
    (True, False)
    """
    share, time = min(timed)
    return any(time > HARDLY_LESS * t for s, t in timed if s >= 2 * share)


def next_share(timed: Sequence[tuple[float, float]], limit: float) -> float | None:
    """The share of the multiply-adds to time next; None if no other is worth it.

    As long as none is quick enough, times are taken to be linear in shares; then linear between the
    largest share that is quick enough and the next one that is not.
    """
    quick = [(share, time) for share, time in timed if time <= limit]
    slow = sorted(pair for pair in timed if pair[1] > limit and (not quick or pair > max(quick)))
    if not quick:
        return None if hardly_faster(timed) else extrapolated(slow, TIME_AIM * limit)
    (low, least), (high, most) = max(quick), slow[0]
    if least >= NEAR_TIME * limit or low >= NARROW * high:
        return None
    part = (TIME_AIM * limit - least) / (most - least)
    return low + float(np.clip(part, LEAST_PART, 1 - LEAST_PART)) * (high - low)


def extrapolated(slow: Sequence[tuple[float, float]], wanted: float) -> float:
    """The share that takes as long as wanted, below shares that take longer, by the least two."""
    share, time = slow[0]
    more, longer = slow[1] if len(slow) > 1 else (0.0, 0.0)
    slope = (longer - time) / (more - share)
    found = share - (time - wanted) / slope if slope > 0 else 0.0
    return float(np.clip(found, share / LARGEST_FALL, TIME_AIM * share))
