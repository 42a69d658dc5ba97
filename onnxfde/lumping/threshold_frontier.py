"""The paper's rule as a frontier: neurons within ε of each other become one block.

    ε → blocks (`partition`) → the neurons that each block's quotient gives it (`quotients`)

ε is a threshold on the weights as they were trained, so nothing bounds the error. A count instead
of ε takes the finest partition with at most so many blocks, which looks at every pair of neurons.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from onnxfde.errors import OptionError
from onnxfde.lumping.closure import Effort
from onnxfde.lumping.partition import Dendrogram, partition
from onnxfde.neurons.frontier import Reduced
from onnxfde.neurons.layer import Layer
from onnxfde.neurons.problem import Problem
from onnxfde.neurons.quotients import backward_single, forward_exact, forward_single
from onnxfde.neurons.refit import refit
from onnxfde.numbers import Blocks
from onnxfde.options import Linkage, Norm, Quotient, Relation
from onnxfde.progress import Progress

MOST_PAIRED = 2048
"""Neurons up to which all pairs are compared: 2 million distances, a few seconds."""


@dataclass(frozen=True, eq=False)
class ThresholdFrontier:
    """Quotients of one layer by ε-partitions."""

    problem: Problem
    relation: Relation = "forward"
    norm: Norm = "sum"
    linkage: Linkage = "closure"
    quotient: Quotient = "single"
    erode: bool = False
    """Whether distances are those of the tool ERODE."""
    progress: Progress = field(default_factory=Progress)

    @property
    def neurons_lossless(self) -> None:
        """Not looked for: a threshold says nothing about the error."""

    def within(self, eps: float) -> Reduced | None:
        """One quotient for each block of the ε-partition."""
        return self._by_blocks(lambda: self._partition(eps))

    def at_most(self, count: int) -> Reduced | None:
        """The quotient by the finest partition that is small enough."""
        if self._layer.neurons > MOST_PAIRED:
            raise OptionError(
                "--neurons and --keep look at every pair with this --semantics; layer "
                f"'{self.problem.name}' has more than {MOST_PAIRED:,} neurons: give --eps"
            )
        return self._by_blocks(lambda: self._dendrogram.at_most(count))

    def smallest_eps(self) -> float | None:
        """The smallest ε that joins anything, for layers small enough to look at every pair."""
        return None if self._layer.neurons > MOST_PAIRED else self._dendrogram.threshold()

    @cached_property
    def _layer(self) -> Layer:
        return self.problem.layer.without_constants()

    @cached_property
    def _dendrogram(self) -> Dendrogram:
        """Every partition of a small layer."""
        return Dendrogram.of(self._layer, self.relation, self.norm, self.linkage, erode=self.erode)

    def _partition(self, eps: float) -> Blocks:
        effort = Effort(progress=self.progress)
        chosen = (self.relation, self.norm, self.linkage)
        return partition(self._layer, eps, *chosen, erode=self.erode, effort=effort)

    def _by_blocks(self, blocks_of: Callable[[], Blocks]) -> Reduced | None:
        """The layer with one quotient per block; None where that is no smaller."""
        problem, layer = self.problem, self._layer
        if not layer.neurons:
            return problem.constant()
        blocks = blocks_of()
        if len(blocks) == problem.layer.neurons:
            return None
        smaller = self._quotient(blocks)
        if self.quotient == "refit":
            smaller = refit(layer, smaller, problem.metric)
        if smaller.neurons >= problem.layer.neurons:
            return None
        numbers = np.flatnonzero(problem.layer.alive)
        named = tuple(tuple(int(numbers[i]) for i in block) for block in blocks)
        return problem.stored(smaller, named)

    def _quotient(self, blocks: Blocks) -> Layer:
        """The neurons of each block, before any refit."""
        if self.relation == "backward":
            return backward_single(self._layer, blocks)
        forward = forward_exact if self.quotient == "exact" else forward_single
        return forward(self._layer, blocks)
