"""The paper's rule as a frontier: neurons within ε of each other become one block.

    ε → blocks (`partition`) → one or a few neurons for each block (`quotients`)

ε is a threshold on the weights as they were trained, so nothing bounds the error. If a number of
neurons is given instead of ε, the finest partition with at most that many blocks is used; it takes
the distances of all pairs of neurons.

Forward blocks compare outgoing weights, which need no activation, and backward ones what is inside
it. What is for squares only is refused elsewhere (`threshold_fault`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from onnxfde.errors import OptionError
from onnxfde.lumping.closure import Effort
from onnxfde.lumping.partition import Dendrogram, partition
from onnxfde.neurons.activation import Activation
from onnxfde.neurons.free_layers import FreeLayers
from onnxfde.neurons.frontier import Reduced
from onnxfde.neurons.layer import Layer
from onnxfde.neurons.objective import best_outgoing
from onnxfde.neurons.polynomial_activations import SQUARE
from onnxfde.neurons.problem import Problem
from onnxfde.neurons.quotients import (
    backward_single,
    forward_exact,
    forward_single,
    mean_single,
)
from onnxfde.neurons.refit import refit
from onnxfde.neurons.unit_kernels import whitened_rows
from onnxfde.numbers import Blocks
from onnxfde.options import Linkage, Norm, Quotient, Relation
from onnxfde.progress import Progress

MOST_PAIRED = 2048
"""Neurons up to which all pairs are compared, 2 million distances: at 64 inputs about 20 s if they
are backward distances (5 s for 1,024 neurons, benchmarks/scale.md). Chosen; not tuned."""


def threshold_fault(
    activation: Activation, relation: Relation, quotient: Quotient, erode: bool
) -> str | None:
    """Why the paper's rule cannot be applied to a layer; None if it can."""
    if activation == SQUARE:
        return None
    if quotient == "exact":
        return f"--quotient exact adds up squares, and its neurons are {activation.title}"
    if erode and relation == "backward":
        return f"ERODE compares polynomials, and its neurons are {activation.title}"
    return None


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
        """None: a threshold says nothing about the error."""

    @property
    def lossless(self) -> None:
        """None for the same reason."""

    def within(self, eps: float) -> Reduced | None:
        """The quotient by the ε-partition, or None if that is no smaller."""
        return self._by_blocks(lambda: self._partition(eps))

    def at_most(self, count: int) -> Reduced | None:
        """The quotient by the finest partition with at most `count` blocks."""
        if self._layer.neurons > MOST_PAIRED:
            raise OptionError(
                "with this --semantics, --neurons and --keep compare all pairs of neurons, and "
                f"layer '{self.problem.name}' has more than {MOST_PAIRED:,} neurons: give --eps"
            )
        return self._by_blocks(lambda: self._dendrogram.at_most(count))

    def smallest_eps(self) -> float | None:
        """The smallest ε that joins anything; None for layers with too many pairs of neurons.

        None for `exact` too, which may need as many neurons for a block as it has.
        """
        unknown = self._layer.neurons > MOST_PAIRED or self.quotient == "exact"
        return None if unknown else self._dendrogram.threshold()

    @cached_property
    def _layer(self) -> Layer:
        return self.problem.layer.without_constants()

    @cached_property
    def _dendrogram(self) -> Dendrogram:
        """The partitions for every ε, of a layer that is not too large."""
        return Dendrogram.of(self._layer, self.relation, self.norm, self.linkage, erode=self.erode)

    def _partition(self, eps: float) -> Blocks:
        effort = Effort(progress=self.progress)
        chosen = (self.relation, self.norm, self.linkage)
        return partition(self._layer, eps, *chosen, erode=self.erode, effort=effort)

    def _by_blocks(self, blocks_of: Callable[[], Blocks]) -> Reduced | None:
        """The quotient by some blocks; None if that is no smaller."""
        problem, layer = self.problem, self._layer
        if not layer.neurons:
            return problem.constant()
        blocks = blocks_of()
        if len(blocks) == problem.layer.neurons:
            return None
        smaller = self._quotient(blocks)
        if self.quotient == "refit":
            smaller = self._refitted(smaller)
        if smaller.neurons >= problem.layer.neurons:
            return None
        numbers = np.flatnonzero(problem.layer.alive)
        named = tuple(tuple(int(numbers[i]) for i in block) for block in blocks)
        return problem.stored(smaller, named)

    def _quotient(self, blocks: Blocks) -> Layer:
        """The neurons of each block, before any refit."""
        if not self.problem.squares:
            return mean_single(self._layer, blocks)
        if self.relation == "backward":
            return backward_single(self._layer, blocks)
        forward = forward_exact if self.quotient == "exact" else forward_single
        return forward(self._layer, blocks)

    def _refitted(self, smaller: Layer) -> Layer:
        """The same neurons with the best outgoing weights in the metric."""
        problem = self.problem
        if problem.squares:
            return refit(problem.original, smaller)
        rows, live = whitened_rows(smaller, problem.metric), problem.live
        seen = problem.expanded.target.at(rows)
        ridge = problem.kernel.ridge(rows, FreeLayers(problem).ridge)
        outgoing = best_outgoing(seen.gram, seen.overlap, ridge)
        before, after = problem.kernel.means(problem.rows), problem.kernel.means(rows)
        offset = live.offset + live.outgoing @ before - outgoing @ after
        return replace(smaller, outgoing=outgoing, offset=offset)
