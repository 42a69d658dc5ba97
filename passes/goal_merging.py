"""Merge so that the whole model meets a goal, with as little left as possible.

    size      counts of least error whose cost is within the limit; once
    latency   the same, the limit on multiply-adds being lowered until a network of these shapes is
              quick enough; once merged, it is measured again
    loss      counts of least cost whose errors √Σ E² are within a budget; both are corrected by
              what the merged network loses, a few times (`loss_search`)

Counts are those of all axes: channels, and neurons of dense layers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from onnxfde.errors import GoalMissed, OptionError
from onnxfde.graph.model import Graph
from onnxfde.graph.saving import outside_bytes
from onnxfde.limits import LOSS_GOALS, SIZE_GOALS, GoalKind, Limit, latency_limit
from onnxfde.neurons.spending import Spending
from onnxfde.numbers import Indices
from onnxfde.passes.goal_costs import UNITS, allowed_size, refuse_too_little, size_of_model
from onnxfde.passes.goal_outcome import GoalOutcome, spent
from onnxfde.passes.goal_search import GoalSearch
from onnxfde.passes.loss_search import AIM, LARGEST_STEP, LossChooser, LossSearch
from onnxfde.passes.merge_neurons import MergeNeurons
from onnxfde.passes.result import Context, PassResult

SIZE_TRIES = 4
"""How often a network is merged in search of a size at most. Chosen; not tuned."""
WASTED = 0.02
"""The share of a size that is worth another try, if what it was expected to be was too much by
that. Chosen; not tuned."""
USED_SHARE = 0.9
"""Multiples that run fast are given up where they would use a smaller share of an allowed size.
Chosen."""
FIXED_TIME = "most of the time is not spent in layers that can be made smaller:"
NO_AXES = "no layer can be made smaller with loss (onnxfde inspect says why)"
HARDLY_LESS = 0.97
"""A time above this share of another one is hardly less. Chosen: times vary by about so much."""
LATENCY_TRIES = 6
"""How many shapes are timed at most in search of a latency. Chosen; not tuned."""


@dataclass(frozen=True)
class GoalMerging:
    """Merges until a goal is met."""

    merge: MergeNeurons
    kind: GoalKind
    limit: Limit | str

    @classmethod
    def of(cls, merge: MergeNeurons) -> GoalMerging | None:
        """What a user asked for, if it is a goal."""
        kind = merge.goal
        if kind is None:
            return None
        return cls(merge.without_goal(), kind, getattr(merge, f"max_{kind}"))

    def apply(self, original: Graph, context: Context) -> tuple[PassResult, GoalOutcome]:
        """The network that meets the goal; OptionError or GoalMissed if none can."""
        if self.kind in LOSS_GOALS:
            return self.within_loss(original, context)
        search = GoalSearch(self.merge, original, context, f"--max-{self.kind}")
        return self.within_size(search) if self.kind in SIZE_GOALS else self.within_latency(search)

    def within_size(self, search: GoalSearch) -> tuple[PassResult, GoalOutcome]:
        """The least error with a size that is allowed."""
        assert not isinstance(self.limit, str)
        limit = allowed_size(self.kind, self.limit, search.original, search.shapes)
        size = self.stored_size(search.lossless, search)
        if size <= limit:
            return search.lossless, GoalOutcome(self.kind, limit, size, 0)
        if not search.axes:
            raise OptionError(f"--max-{self.kind} {limit:,}: {NO_AXES}, {size:,} are left")
        added = self.added(search.lossless, search)
        aim = float(limit - added)
        spending = self.closest(search, aim)
        best: tuple[Indices, PassResult, int] | None = None
        for tries in range(1, SIZE_TRIES + 1):
            counts = spending.under(aim)
            refuse_too_little(self.kind, limit, spending.cost(counts) + limit - aim)
            found = search.merged(counts)
            size = self.stored_size(found, search)
            too_much = spending.cost(counts) - size
            if size <= limit:
                best = counts, found, size
            if best is not None and (tries > 1 or too_much <= WASTED * limit):
                counts, found, size = best
                steps = spent(search, spending, counts)
                return found, GoalOutcome(self.kind, limit, size, tries, steps)
            aim = limit + too_much
        raise GoalMissed(f"--max-{self.kind} {limit:,} was not reached: {size:,} are left")

    def closest(self, search: GoalSearch, aim: float) -> Spending:
        """Multiples of channels that run fast; smaller ones where these leave far too little."""
        fast = found = search.spending(self.kind)
        while max(found.steps) > 1 and found.cost(found.under(aim)) < USED_SHARE * aim:
            if self.merge.align is not None:
                break
            found = found.finer
        if found is not fast:
            multiple, left = max(fast.steps), found.cost(fast.under(aim))
            search.context.progress.note(
                f"note: multiples of {multiple} channels, which run faster (--align {multiple}), "
                f"would leave only {left:,.0f} {UNITS[self.kind]}"
            )
        return found

    def added(self, found: PassResult, search: GoalSearch) -> int:
        """What the files of a result have beside the model."""
        if self.kind != "bytes":
            return 0
        beside = outside_bytes(found.graph.model, search.original.model)
        return search.context.stamp_bytes + beside

    def stored_size(self, found: PassResult, search: GoalSearch) -> int:
        """The size of a result as it is written."""
        return (
            size_of_model(self.kind, found.graph, search.shapes)
            + self.added(found, search) * found.changed
        )

    def within_latency(self, search: GoalSearch) -> tuple[PassResult, GoalOutcome]:
        """The least error with a time that is allowed."""
        assert isinstance(self.limit, str)
        (limit, as_share), latency = latency_limit(self.limit), search.context.latency
        assert latency is not None
        taken = latency(search.lossless.graph)
        outcome = GoalOutcome("latency", limit, taken, 0, as_share=as_share)
        if taken <= limit:
            return search.lossless, outcome
        if not search.axes:
            text = outcome.in_words(taken)
            raise GoalMissed(f"--max-latency {self.limit}: {NO_AXES}, it takes {text}")
        spending, timed = search.spending("macs"), [(1.0, taken)]
        whole = spending.cost(spending.whole)
        for tries in range(1, LATENCY_TRIES + 1):
            share = next_share(timed, limit)
            counts = spending.under(share * whole)
            steps = spent(search, spending, counts)
            taken = latency(search.skeleton(counts))
            search.context.progress.note(
                f"note: {share:.0%} of the multiply-adds: {outcome.in_words(taken)}"
            )
            found = search.merged(counts) if taken <= limit else search.lossless
            taken = latency(found.graph) if taken <= limit else taken
            outcome = replace(outcome, chosen_by=taken, tries=tries, spent=steps)
            if taken <= limit:
                return found, outcome
            timed.append((share, taken))
            fixed = hardly_faster(timed) or (counts == 1).all()
            if fixed:
                break
        why = FIXED_TIME if fixed else "times vary, try again or"
        raise GoalMissed(
            f"--max-latency {self.limit} was not met: with {outcome.nearest} it takes "
            f"{outcome.in_words(taken)}; nothing was written: {why} allow more"
        )

    def within_loss(self, original: Graph, context: Context) -> tuple[PassResult, GoalOutcome]:
        """The fewest parameters with a loss that is allowed."""
        chooser = LossChooser.of(self.kind, float(self.limit), original, context.inputs)
        fitting = replace(context, inputs=chooser.inputs)
        search = GoalSearch(self.merge, original, fitting, f"--max-{self.kind}")
        return LossSearch(self.kind, float(self.limit), search, chooser).result()


def hardly_faster(timed: list[tuple[float, float]]) -> bool:
    """Whether the last time is hardly less than one for at least twice as much work.

    Then even less work gains nothing but noise, and costs the network all that it can do.

    >>> hardly_faster([(1.0, 1.0), (0.4, 0.99)]), hardly_faster([(1.0, 1.0), (0.4, 0.8)])
    (True, False)
    """
    share, time = timed[-1]
    return any(time > HARDLY_LESS * t for s, t in timed if s >= 2 * share)


def next_share(timed: list[tuple[float, float]], limit: float) -> float:
    """The share of the multiply-adds to try next: that takes as long as is allowed.

    Times are taken to be linear in shares, from what was timed so far, the last being the smallest.
    """
    shares, times = np.array(timed).T
    slope, fixed = np.polyfit(shares, times, 1) if len(timed) > 1 else (times[0], 0.0)
    wanted = (AIM * limit - fixed) / slope if slope > 0 else 0.0
    return float(np.clip(wanted, shares[-1] / LARGEST_STEP, AIM * shares[-1]))
