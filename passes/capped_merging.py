"""What the merging passes share: the options of the user, a cap on ε, and counts decided before."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from typing import Self

from onnxfde.options import MergeOptions


@dataclass(frozen=True)
class CappedMerging(MergeOptions):
    """Options of a merging pass."""

    most_eps: float = math.inf
    """No layer gets a larger ε than this, whatever is asked for."""
    counts: tuple[tuple[str, int], ...] = ()
    """How many units layers keep, by name, where that is decided; the others then keep all."""
    allowed: tuple[tuple[str, float], ...] = ()
    """ε of dense layers, by name, that decide in the place of counts."""

    @classmethod
    def of(cls, options: MergeOptions) -> Self:
        """The pass that does what a user asked for."""
        names = [f.name for f in fields(cls) if hasattr(options, f.name)]
        return cls(**{name: getattr(options, name) for name in names})

    def capped(self, most: float) -> Self:
        """The same with no ε above `most`; the same object if that changes nothing."""
        idle = most >= min(self.most_eps, self.largest_eps)
        return self if idle else replace(self, most_eps=most)

    @property
    def method(self) -> Self:
        """How to merge: the same without ε, its cap, counts and the choice of layers."""
        return replace(super().method, most_eps=math.inf, counts=(), allowed=())

    @property
    def asks_for_count(self) -> bool:
        """Whether a size is asked for instead of ε."""
        return bool(self.counts) or super().asks_for_count

    def count_of(self, name: str, neurons: int) -> int | None:
        """How many of a layer's neurons to leave; None if ε decides."""
        if self.counts:
            return dict(self.counts).get(name, neurons)
        return super().count_of(name, neurons)
