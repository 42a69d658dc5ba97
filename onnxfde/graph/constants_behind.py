"""The constants behind a layer: they belong to its second map.

    (V h + c)·s + t   →   (s V) h + (s c + t)

So a layer's output, and with it what an ε means, is the same whether an exporter folded a
BatchNormalization into the map or left it behind it. Every value on the way has one reader.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np

from onnxfde.graph.affine_maps import (
    ELEMENTWISE,
    NUMPY_BROADCASTING,
    Affine,
    NoMatch,
    fold_after,
)
from onnxfde.graph.inner_nodes import hidden_input
from onnxfde.graph.map_pairs import only_use
from onnxfde.graph.model import Graph
from onnxfde.graph.nodes import op
from onnxfde.graph.protos import NodeProto
from onnxfde.numbers import ROUNDOFF, cast

MOST_STEPS = 64
"""Most nodes behind a map. Chosen; not tuned."""


@dataclass(frozen=True, eq=False)
class OutgoingMap:
    """A map and the constants behind it, as one."""

    side: Affine
    behind: tuple[NodeProto, ...]
    """The nodes of these constants, without the Add that is the carrier of a bias."""
    result: str
    """The value that is made in the end."""


def outgoing_map(graph: Graph, side: Affine) -> OutgoingMap:
    """Take in the constants behind an outgoing map."""
    nodes = steps_behind(graph, side.node)
    while nodes:
        with suppress(NoMatch):
            found = fold_after(graph, side, nodes)
            if op(nodes[-1]) in ELEMENTWISE and is_storable(found):
                whole = replace(found, folded=side.folded)
                return OutgoingMap(whole, found.folded, nodes[-1].output[0])
        nodes.pop()
    return OutgoingMap(side, (), side.node.output[0])


def steps_behind(graph: Graph, start: NodeProto) -> list[NodeProto]:
    """The nodes behind a node that at most scale and shift its value, one after the other."""
    found = [start]
    with suppress(NoMatch):
        while graph.opset >= NUMPY_BROADCASTING and len(found) <= MOST_STEPS:
            node = only_use(graph, found[-1].output[0])
            if op(node) == "Flatten":  # it may mix features with other axes
                break
            hidden_input(graph, node, "behind it")
            found.append(node)
    return found[1:]


def is_storable(side: Affine) -> bool:
    """Whether the stored type holds the weights, up to rounding beside the largest of a row."""
    if not (np.isfinite(side.weight).all() and np.isfinite(cast(side.bias, side.dtype)).all()):
        return False
    sizes = np.abs(side.weight).max(axis=1, keepdims=True, initial=0.0)
    change = np.abs(cast(side.weight, side.dtype) - side.weight)
    return bool((change <= ROUNDOFF[side.dtype.name] * sizes).all())
