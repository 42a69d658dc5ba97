"""The range of a value inside a network over a box of inputs, for facts that hold everywhere in it.

x ∈ box  ⇒  v(x) ∈ [low, high]      one interval per feature, over all other axes
"""

from __future__ import annotations

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


def feature_bounds(graph: Graph, name: str, layout: Layout, box: Box) -> Interval | None:
    """The range of each feature of a value; None if there is no bound."""
    parameters = count_parameters(graph.model)
    if parameters > MOST_BOUNDED:
        return None
    try:
        with limited_memory(allowance(8 * parameters)), np.errstate(all="ignore"):
            found = Pairing(graph, graph, box).resolve((name, name))
    except (MemoryError, Uncertified):
        return None
    if not isinstance(found, Pair):
        return None
    low, high = found.value.low, found.value.high
    if layout == "columns":
        low, high = np.swapaxes(low, -1, -2), np.swapaxes(high, -1, -2)
    axes = tuple(range(low.ndim - 1))
    return Interval(low.min(axis=axes), high.max(axis=axes))
