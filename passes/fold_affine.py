"""fold-affine: two affine maps in a row become one where that takes fewer parameters.

    W₂ (W₁ x + b₁) + b₂   ⇒   (W₂ W₁) x + (W₂ b₁ + b₂)

Constant factors and terms in between (BatchNormalization, too) belong to W₁ and b₁; Identity,
Dropout and a Flatten that keeps the features stay where they are. Nothing else may read the value
in between, both maps must have the same dtype and feature axis (and opset 7 or later: before,
constants broadcast by other rules), and the model must store fewer parameters afterwards. Weights
that something else reads stay and are counted.

The product is computed in float64 and rounded once. That costs u·|W₂W₁| ≤ u·|W₂||W₁|, no more than
rounding the value in between once, so cancellation in the product is no reason to refuse; a cast
that does worse (overflow, underflow, NaN) is.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from onnxfde.graph.affine_maps import (
    ELEMENTWISE,
    NUMPY_BROADCASTING,
    Affine,
    NoMatch,
    affine,
    fold_after,
    with_carrier,
)
from onnxfde.graph.edit import Edit
from onnxfde.graph.inner_nodes import AFFINE
from onnxfde.graph.map_pairs import walk_on
from onnxfde.graph.match import Refusal
from onnxfde.graph.model import Graph
from onnxfde.graph.nodes import label, op
from onnxfde.graph.protos import NodeProto
from onnxfde.graph.size import count_parameters
from onnxfde.numbers import ROUNDOFF, FloatArray, cast
from onnxfde.passes.result import Context, Fold, PassResult


@dataclass(frozen=True)
class FoldAffine:
    """Fold affine maps that directly follow each other."""

    name: ClassVar[str] = "fold-affine"

    def apply(self, graph: Graph, context: Context | None = None) -> PassResult:
        """Fold one pair after the other, the largest saving first, until none saves anything."""
        progress, folds = (context or Context()).progress, list[Fold]()
        with progress.timed("fold"):
            if not find_pairs(graph):
                return PassResult(graph)
            work = graph.copied()
            best, refused = best_pair(work)
            while best is not None:
                folds.append(fold(work, best))
                progress.say(f"{folds[-1].first}: folded into {folds[-1].second}")
                best, refused = best_pair(work)
        result = work if folds else graph
        return PassResult(result, folded=tuple(folds), unfolded=tuple(refused))


@dataclass(frozen=True, eq=False)
class AffinePair:
    """Two affine maps in a row; the first one includes the constants between them."""

    first: Affine
    between: tuple[NodeProto, ...]
    second: Affine
    parameters: int
    """Values that the two maps and the constants in between store."""
    shared: int
    """Those of them that something else reads too, so that they stay."""

    @property
    def folded_size(self) -> int:
        """Values that one map in their place would store."""
        node = self.second.node
        placed = self.second.carrier is not None or any(node.input[2:])
        bias = bool(placed or np.any(self.first.bias) or np.any(self.second.bias))
        return len(self.second.weight) * (int(self.first.weight.shape[1]) + int(bias))


@dataclass(frozen=True, eq=False)
class Folded:
    """A pair and the one map in its place."""

    pair: AffinePair
    values: FloatArray
    """Its weight and, in the last column, its bias, rounded as they are stored."""


def best_pair(graph: Graph) -> tuple[Folded | None, list[Refusal]]:
    """The pair whose folding saves most, and why pairs that would save more are refused."""
    refused: list[Refusal] = []
    for pair in sorted(find_pairs(graph), key=lambda p: p.folded_size - p.parameters):
        try:
            check_smaller(pair, pair.folded_size + pair.shared)
            return Folded(pair, folded_map(pair)), refused
        except NoMatch as reason:
            refused.append(Refusal(label(pair.first.node), str(reason)))
    return None, refused


def find_pairs(graph: Graph) -> list[AffinePair]:
    """All pairs in node order."""
    pairs = []
    for node in graph.model.graph.node:
        if op(node) in AFFINE:
            with suppress(NoMatch):
                pairs.append(find_pair(graph, node))
    return pairs


def find_pair(graph: Graph, node: NodeProto) -> AffinePair:
    """The pair that starts with an affine node."""
    between, last = walk_on(graph, node, "between the maps")
    first = fold_after(graph, affine(graph, node), between)
    second = with_carrier(graph, affine(graph, last))
    mixed = first.layout == "columns" and any(op(n) == "Flatten" for n in between)
    made, read = len(first.weight), second.weight.shape[1]
    if (
        mixed
        or graph.opset < NUMPY_BROADCASTING
        or (made, first.dtype, first.layout) != (read, second.dtype, second.layout)
    ):
        raise NoMatch("the second map reads other features than the first one makes")
    carriers = [second.carrier] if second.carrier else []
    nodes = [node, *between, last, *carriers]
    stored, shared = stored_values(graph, nodes)
    return AffinePair(first, tuple(between), second, stored, shared)


def stored_values(graph: Graph, nodes: list[NodeProto]) -> tuple[int, int]:
    """How many parameters (floats, no scalars) nodes read, and how many of these others read."""
    total = shared = 0
    names = [name for node in nodes for name in node.input]
    for name in dict.fromkeys(names):
        constant = graph.constant(name)
        if constant and constant.values.ndim and constant.values.dtype.name in ROUNDOFF:
            total += constant.values.size
            if graph.is_read_elsewhere(name, names.count(name)):
                shared += constant.values.size
    return total, shared


def check_smaller(pair: AffinePair, after: int) -> None:
    """Refuse a fold that saves nothing."""
    if after >= pair.parameters:
        raise NoMatch(
            f"folded into '{label(pair.second.node)}' it would need {after:,} parameters, "
            f"not fewer than the {pair.parameters:,} of both"
        )


def folded_map(pair: AffinePair) -> FloatArray:
    """(W₂ W₁, W₂ b₁ + b₂) after the cast; NoMatch if the cast does more than rounding."""
    first = np.column_stack([pair.first.weight, pair.first.bias])
    second, dtype = pair.second, pair.second.dtype
    with np.errstate(over="ignore", invalid="ignore"):
        exact = composed(second.weight, second.bias, first)
        size = composed(*map(np.abs, (second.weight, second.bias, first)))
        stored = cast(exact, dtype)
        only_rounded = np.all(np.abs(stored - exact) <= ROUNDOFF[dtype.name] * size)
    if not only_rounded:
        raise NoMatch(f"the product overflows or underflows {dtype.name}, or is not a number")
    return stored


def composed(weight: FloatArray, bias: FloatArray, first: FloatArray) -> FloatArray:
    """An affine map applied after another one, whose bias is its last column."""
    result = weight @ first
    result[:, -1] += bias
    return result


def fold(graph: Graph, found: Folded) -> Fold:
    """Write the product into the second map of a pair and remove the first one."""
    pair, values = found.pair, found.values
    before = count_parameters(graph.model)
    edit = Edit(graph, pair.second.dtype)
    for node in (pair.first.node, *(n for n in pair.between if op(n) in ELEMENTWISE)):
        edit.bypass(node)
    edit.write_affine(pair.second, values[:, :-1], values[:, -1])
    hidden = tuple(name for node in pair.between for name in node.output if name)
    edit.resize(hidden, values.shape[1] - 1, pair.first.layout)
    edit.drop_unused()
    after = pair.parameters + count_parameters(graph.model) - before
    first, second = label(pair.first.node), label(pair.second.node)
    return Fold(first, second, pair.parameters, after, pair.second.dtype.name)
