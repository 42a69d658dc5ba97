"""fold-affine: two affine maps with nothing between them become one, where that is smaller.

    W₂ (W₁ x + b₁) + b₂   ⇒   (W₂ W₁) x + (W₂ b₁ + b₂)

Constant factors and terms in between are part of W₁ and b₁; Identity, Dropout and a harmless
Flatten stay where they are. Nothing else may read the value in between, both maps have one dtype
and one feature axis (and opset 7, before which constants broadcast by other rules), and the model
must store fewer parameters afterwards: weights that something else reads stay, and count.

The product is computed in float64 and rounded once. That costs u·|W₂W₁| ≤ u·|W₂||W₁|, no more than
one rounding of the value in between costs already, so cancellation in the product is no reason to
refuse; a cast that does worse (overflow, underflow, NaN) is.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np

from onnxfde.graph.affine import ELEMENTWISE, Affine, NoMatch, affine, fold_after, with_carrier
from onnxfde.graph.edit import Edit
from onnxfde.graph.match import AFFINE, Refusal, walk_on
from onnxfde.graph.model import Graph
from onnxfde.graph.nodes import label, op
from onnxfde.graph.protos import ModelProto, NodeProto
from onnxfde.graph.size import count_parameters
from onnxfde.graph.tensors import copy_of
from onnxfde.numbers import ROUNDOFF, FloatArray, cast
from onnxfde.passes.result import Fold, PassResult
from onnxfde.progress import Work


@dataclass(frozen=True)
class FoldAffine:
    """Fold affine maps that follow each other directly."""

    def apply(self, graph: Graph, work: Work | None = None) -> PassResult:
        """Fold one pair after the other, the largest saving first, while that is smaller."""
        work, folds = work or Work(), list[Fold]()
        with work.timed("fold"):
            result = fold_once(graph)
            while result.changed:
                folds += result.folded
                work.say(f"{folds[-1].first}: folded into {folds[-1].second}")
                result = fold_once(Graph(result.model, graph.folder))
        return replace(result, folded=tuple(folds))


@dataclass(frozen=True, eq=False)
class Pair:
    """Two affine maps in a row; the first one holds the constants that stand between them."""

    first: Affine
    between: tuple[NodeProto, ...]
    second: Affine
    parameters: int
    """Values that the two maps store, with the constants in between."""

    @property
    def folded_size(self) -> int:
        """Values that one map in their place stores."""
        bias = np.any(self.first.bias) or np.any(self.second.bias)
        return len(self.second.weight) * (int(self.first.weight.shape[1]) + int(bias))


def fold_once(graph: Graph) -> PassResult:
    """The model with one pair folded, or as it is, with the reasons why no pair was."""
    refused = []
    for pair in sorted(find_pairs(graph), key=lambda p: p.folded_size - p.parameters):
        try:
            model, fold = folded(graph, pair)
            return PassResult(model, (), (), (fold,))
        except NoMatch as reason:
            refused.append(Refusal(label(pair.first.node), str(reason)))
    return PassResult(graph.model, (), tuple(refused))


def find_pairs(graph: Graph) -> list[Pair]:
    """All pairs in node order; where something else stands in between there is none."""
    pairs = []
    for node in graph.model.graph.node:
        if op(node) in AFFINE:
            with suppress(NoMatch):
                pairs.append(find_pair(graph, node))
    return pairs


def find_pair(graph: Graph, node: NodeProto) -> Pair:
    """The pair that starts with an affine node."""
    between, last = walk_on(graph, node)
    first = fold_after(graph, affine(graph, node), between)
    second = with_carrier(graph, affine(graph, last))
    mixed = first.layout == "columns" and any(op(n) == "Flatten" for n in between)
    made, read = len(first.weight), second.weight.shape[1]
    if (
        mixed
        or graph.opset < 7
        or (made, first.dtype, first.layout) != (read, second.dtype, second.layout)
    ):
        raise NoMatch("the second map reads other features than the first one makes")
    carriers = [second.carrier] if second.carrier else []
    stored = stored_values(graph, [node, *between, last, *carriers])
    return Pair(first, tuple(between), second, stored)


def stored_values(graph: Graph, nodes: list[NodeProto]) -> int:
    """How many parameters some nodes read: floats that are not scalars."""
    names = dict.fromkeys(name for node in nodes for name in node.input)
    constants = [found.values for name in names if (found := graph.constant(name))]
    return sum(a.size for a in constants if a.ndim and a.dtype.name in ROUNDOFF)


def folded(graph: Graph, pair: Pair) -> tuple[ModelProto, Fold]:
    """A copy of the model with one map in the place of two; NoMatch says why not."""
    check_smaller(pair, pair.folded_size)
    model = written(graph, pair, product(pair))
    after = pair.parameters + count_parameters(model) - count_parameters(graph.model)
    check_smaller(pair, after)
    names = label(pair.first.node), label(pair.second.node)
    return model, Fold(*names, pair.parameters, after, pair.second.dtype.name)


def check_smaller(pair: Pair, after: int) -> None:
    """Refuse a fold that saves nothing."""
    if after >= pair.parameters:
        raise NoMatch(
            f"folded into '{label(pair.second.node)}' it would need {after:,} parameters, "
            f"not fewer than the {pair.parameters:,} of both"
        )


def product(pair: Pair) -> FloatArray:
    """(W₂ W₁, W₂ b₁ + b₂) as it reads back after the cast; NoMatch if that is not just rounding."""
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
    """An affine map behind another one, whose bias is its last column."""
    result = weight @ first
    result[:, -1] += bias
    return result


def written(graph: Graph, pair: Pair, values: FloatArray) -> ModelProto:
    """A copy of the model in which the second map has these values and the first one is gone."""
    copy = Graph(copy_of(graph.model), graph.folder)
    pair = find_pair(copy, copy.producers[pair.first.node.output[0]])
    edit = Edit(copy, pair.second.dtype)
    for node in (pair.first.node, *(n for n in pair.between if op(n) in ELEMENTWISE)):
        edit.bypass(node)
    edit.write_affine(pair.second, values[:, :-1], values[:, -1])
    hidden = tuple(name for node in pair.between for name in node.output if name)
    edit.resize(hidden, values.shape[1] - 1, pair.first.layout)
    edit.drop_unused()
    return copy.model
