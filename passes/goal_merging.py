"""Merge so that the whole model meets a goal, with as little left as possible.

    size      counts of least error whose cost is within the limit; once
    latency   the same, the limit on multiply-adds being moved until a network of these shapes is
              just quick enough; once merged, it is measured again (`latency_search`)
    loss      counts of least cost whose errors √Σ E² are within a budget; both are corrected by
              what the merged network loses, a few times (`loss_search`)

Counts are those of all axes: channels, and neurons of dense layers.
"""

from __future__ import annotations

from dataclasses import dataclass

from onnxfde.errors import GoalMissed, OptionError
from onnxfde.graph.model import Graph
from onnxfde.graph.saving import outside_bytes
from onnxfde.limits import LOSS_GOALS, SIZE_GOALS, GoalKind, Limit
from onnxfde.neurons.spending import Spending
from onnxfde.numbers import Indices
from onnxfde.passes.goal_costs import UNITS, allowed_size, refuse_too_little, size_of_model
from onnxfde.passes.goal_outcome import GoalOutcome, spent
from onnxfde.passes.goal_search import NO_AXES, GoalSearch
from onnxfde.passes.latency_search import LatencySearch
from onnxfde.passes.loss_search import LossChooser, LossSearch
from onnxfde.passes.merge_neurons import MergeNeurons
from onnxfde.passes.result import Context, PassResult

SIZE_TRIES = 4
"""How often a network is merged in search of a size at most. Chosen; not tuned."""
WASTED = 0.02
"""The share of a size that is worth another try, if what it was expected to be was too much by
that. Chosen; not tuned."""
USED_SHARE = 0.95
"""Multiples that run fast are given up where they would use a smaller share of an allowed size.
Chosen; raised from 0.9, with which a limit of 38 % gave a worse network than one of 30 %."""


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
        if self.kind in SIZE_GOALS:
            return self.within_size(search)
        assert isinstance(self.limit, str)
        return LatencySearch(search, self.limit).result()

    def within_size(self, search: GoalSearch) -> tuple[PassResult, GoalOutcome]:
        """The least error with a size that is allowed."""
        assert not isinstance(self.limit, str)
        original = search.original
        limit = allowed_size(self.kind, self.limit, original, search.shapes_of(original))
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
            size_of_model(self.kind, found.graph, search.shapes_of(found.graph))
            + self.added(found, search) * found.changed
        )

    def within_loss(self, original: Graph, context: Context) -> tuple[PassResult, GoalOutcome]:
        """The fewest parameters with a loss that is allowed."""
        chooser = LossChooser.of(self.kind, float(self.limit), original, context.inputs)
        search = GoalSearch(self.merge, original, context, f"--max-{self.kind}")
        return LossSearch(self.kind, float(self.limit), search, chooser).result()
