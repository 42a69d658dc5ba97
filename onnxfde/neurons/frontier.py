"""The frontier of a layer: the fewest neurons against the error they cost.

A frontier computes each point when it is first asked for and remembers it, so that inspecting a
layer, optimizing it and searching for the ε that meets a limit can share one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from onnxfde.neurons.layer import Layer
from onnxfde.numbers import Blocks


@dataclass(frozen=True, eq=False)
class Reduced:
    """A smaller layer, the blocks of neurons it stands for, and its error in the metric."""

    layer: Layer
    blocks: Blocks
    """Numbers of original neurons; empty where neurons were chosen freely."""
    error: float


def blocks_within(first: Blocks, second: Blocks) -> Blocks:
    """Blocks of blocks as blocks of neurons."""
    return tuple(tuple(sorted(i for b in block for i in first[b])) for block in second)


class Frontier(Protocol):
    """All smaller versions of one layer that a method can make."""

    @property
    def neurons_lossless(self) -> int | None:
        """The fewest neurons that are equal up to rounding; None if the method cannot tell."""

    @property
    def lossless(self) -> Reduced | None:
        """The fewest neurons that are equal up to rounding; None when that is all, or unknown."""

    def within(self, eps: float) -> Reduced | None:
        """The fewest neurons within ε, or None when that is all of them."""

    def at_most(self, count: int) -> Reduced | None:
        """The layer with at most this many neurons, or None if it is unchanged."""

    def smallest_eps(self) -> float | None:
        """An ε at which some neuron can be removed; None where that is not known."""
