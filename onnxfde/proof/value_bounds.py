"""The range of a value inside a network over a box of inputs, for facts that hold everywhere in it.

x ∈ box  ⇒  v(x) ∈ [low, high]      position by position, or one interval per feature
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from onnxfde.graph.affine_maps import Layout
from onnxfde.graph.model import Graph
from onnxfde.graph.size import count_parameters
from onnxfde.memory import allowance, limited_memory
from onnxfde.neurons.intervals import Box, Interval, Pair, Uncertified
from onnxfde.proof.pairing import Pairing

MOST_BOUNDED = 40_000_000
"""Parameters of a network up to which values are bounded: the intervals of its weights take several
times its size in memory. Chosen as for certificates that nobody asked for; not tuned."""


@dataclass(frozen=True, eq=False)
class NetworkBounds:
    """Bounds of the values of a network over a box; each is computed once."""

    graph: Graph
    box: Box

    @cached_property
    def parameters(self) -> int:
        """The size of the network."""
        return count_parameters(self.graph.model)

    @cached_property
    def _pairing(self) -> Pairing:
        return Pairing(self.graph, self.graph, self.box)

    def of(self, name: str) -> Interval | None:
        """The range of each element of a value; None if there is no bound, or no element."""
        if self.parameters > MOST_BOUNDED:
            return None
        try:
            with limited_memory(allowance(8 * self.parameters)), np.errstate(all="ignore"):
                found = self._pairing.resolve((name, name))
        except (MemoryError, Uncertified):
            return None
        return found.value if isinstance(found, Pair) and found.value.low.size else None


def feature_bounds(graph: Graph, name: str, layout: Layout, box: Box) -> Interval | None:
    """The range of each feature of a value; None if there is no bound."""
    found = NetworkBounds(graph, box).of(name)
    if found is None:
        return None
    if layout == "columns":
        found = found.mapped(lambda a: np.swapaxes(a, -1, -2))
    axes = tuple(range(found.low.ndim - 1))
    return Interval(found.low.min(axis=axes), found.high.max(axis=axes))
