"""What was asked for of the whole model, what came out, and what each layer gave for it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from onnxfde.estimates import Interval
from onnxfde.limits import LOSS_GOALS, SIZE_GOALS, GoalKind
from onnxfde.neurons.spending import Spending
from onnxfde.numbers import Indices
from onnxfde.passes.goal_search import GoalSearch

NAMED = 4
"""Layers that a message names."""


@dataclass(frozen=True)
class LayerSpent:
    """What one layer gives, and what that costs."""

    name: str
    before: int
    after: int
    error: float
    """The error of the outputs if this layer alone had fewer units, by its curve, which
    knows what tries found."""
    error_share: float
    """Its share of the squared errors of all layers."""
    saved: float
    """Parameters (or multiply-adds) that are saved if this layer alone had fewer units."""
    saving_share: float


@dataclass(frozen=True)
class GoalOutcome:
    """What was asked for of the whole model, and how it was searched for."""

    kind: GoalKind
    limit: float
    """In parameters, multiply-adds, bytes, milliseconds or as a share of the time, or the loss."""
    chosen_by: float | None = None
    """What the result has on rows kept for choosing, if it is a loss; else its size or time."""
    tries: int = 1
    spent: tuple[LayerSpent, ...] = ()
    reached: float | None = None
    """What the result has in the end: on rows never used before, if it is a loss."""
    reached_interval: Interval | None = None
    """In which a loss lies for all inputs of this kind, 19 times in 20."""
    as_share: bool = False
    """Whether a time is a share of the original's."""

    def in_words(self, number: float) -> str:
        """A number of this kind."""
        if self.kind == "latency":
            return f"{number:.1%} of the time" if self.as_share else f"{number:.3g} ms"
        return f"{number:,.0f}" if self.kind in SIZE_GOALS else f"{number:.3g}"

    @property
    def why_nothing(self) -> str:
        """Why the original is the result."""
        asked = f"--max-{self.kind} {self.in_words(self.limit)}"
        if self.kind in LOSS_GOALS:
            return f"nothing merges within {asked}"
        has = self.in_words(self.chosen_by or 0.0)
        return f"nothing merges without loss, and the model is within {asked} already: {has}"

    @property
    def nearest(self) -> str:
        """How many units the layers have, the first few of them."""
        changed = [f"{one.name} {one.before} → {one.after}" for one in self.spent]
        return ", ".join(changed[:NAMED]) + (", …" if len(changed) > NAMED else "")


def spent(search: GoalSearch, spending: Spending, counts: Indices) -> tuple[LayerSpent, ...]:
    """What each layer gives, and what that costs."""
    alone = [
        np.where(np.arange(len(counts)) == i, counts, spending.whole) for i in range(len(counts))
    ]
    saved = np.array([spending.cost(spending.whole) - spending.cost(one) for one in alone])
    errors = np.array([c[k] for c, k in zip(spending.curves, counts, strict=True)])
    squares = errors**2 / max(float(np.sum(errors**2)), np.finfo(np.float64).tiny)
    shares = saved / max(float(saved.sum()), 1.0)
    return tuple(
        LayerSpent(c.axis.name, c.axis.units, int(k), float(e), float(q), float(s), float(h))
        for c, k, e, q, s, h in zip(
            search.curves, counts, errors, squares, saved, shares, strict=True
        )
    )
