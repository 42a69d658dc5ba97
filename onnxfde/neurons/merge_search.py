"""What a free search asks of the search by merging or elimination that it starts from."""

from __future__ import annotations

from typing import Protocol

from onnxfde.neurons.frontier import Frontier, Reduced
from onnxfde.neurons.problem import Problem
from onnxfde.numbers import FloatArray


class MergeSearch(Frontier, Protocol):
    """A frontier that free searches start from, and fall back on."""

    @property
    def problem(self) -> Problem:
        """What it searches."""

    def candidate(self, count: int) -> Reduced:
        """The layer with this many neurons."""

    def first_rows(self, count: int) -> list[FloatArray]:
        """Whitened rows to start from: of this many neurons, then of more to choose from."""
