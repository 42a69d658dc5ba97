"""Finding layers: affine → activation → affine, in every form that exporters write.

    Gemm | MatMul  →  [Mul, Add, Sub, Div by constants]  →  activation (`activation_patterns`)
                   →  [Mul, Add, Sub, Div by constants]  →  Gemm | MatMul [→ Add]

Identity, Dropout and a Flatten that keeps the feature axis may stand anywhere inside. Constant
factors and terms are folded into U, V and c. Each activation gives a `Match` or a `Refusal`.

Layers are found once. After edits to others, a layer is read again from its nodes (`reread`),
because it may share a map with one of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from onnxfde.graph.activation_patterns import activation_of
from onnxfde.graph.affine_maps import (
    ELEMENTWISE,
    Affine,
    Layout,
    NoMatch,
    affine,
    fold_after,
    fold_before,
    overridable_reason,
    with_carrier,
)
from onnxfde.graph.model import Graph
from onnxfde.graph.nodes import attributes, bodies, label, op
from onnxfde.graph.protos import GraphProto, ModelProto, NodeProto
from onnxfde.neurons.layer import Layer

TRANSPARENT = {"Identity", "Dropout", "Flatten"}
"""Operators that may stand inside a layer and compute nothing."""
AFFINE = {"Gemm", "MatMul"}
NUMPY_BROADCASTING = 7
"""The opset since which elementwise operators broadcast as in numpy (ONNX)."""
DROPOUT_FOR_INFERENCE = 7
"""The opset since which Dropout has no attribute `is_test` and drops nothing by default (ONNX)."""


@dataclass(frozen=True)
class Refusal:
    """A place that looks like a layer and is left alone, and why."""

    node: str
    reason: str


@dataclass(frozen=True, eq=False)
class Match:
    """A layer in the graph: where it is and what it computes."""

    name: str
    incoming: Affine
    activation: NodeProto
    outgoing: Affine
    layer: Layer
    values: tuple[str, ...]
    """Hidden values, from the first affine node's output to the second one's input."""
    source: str
    """The value that the layer reads."""
    result: str
    """The value that the layer makes."""


class LayerSize(NamedTuple):
    """How large a layer is, and at how many positions of one sample it is applied."""

    inputs: int
    neurons: int
    outputs: int
    positions: int


def size_of(graph: Graph, match: Match) -> LayerSize:
    """The size of a layer in its graph."""
    layer = match.layer
    values = math.prod(graph.known_lengths(match.activation.input[0]))
    positions = max(1, values // max(layer.neurons, 1))
    return LayerSize(layer.inputs, layer.neurons, layer.outputs, positions)


def find_layers(graph: Graph) -> tuple[list[Match], list[Refusal]]:
    """All layers in node order, and every near miss."""
    matches: list[Match] = []
    refusals = list(hidden_in_bodies(graph))
    for node in graph.model.graph.node:
        if activation_of(graph, node) is None:
            continue
        try:
            matches.append(match_layer(graph, node))
        except NoMatch as reason:
            refusals.append(Refusal(label(node), str(reason)))
    return with_unique_names(matches), refusals


def with_unique_names(matches: list[Match]) -> list[Match]:
    """Number the layers whose first affine node shares its name with another."""
    unique: dict[str, Match] = {}
    taken = {match.name for match in matches}
    for match in matches:
        numbered = (f"{match.name}#{i}" for i in range(2, len(matches) + 2))
        free = (name for name in numbered if name not in taken and name not in unique)
        name = match.name if match.name not in unique else next(free)
        unique[name] = replace(match, name=name)
    return list(unique.values())


def reread(graph: Graph, match: Match) -> Match:
    """A layer as it is now, after edits to others; NoMatch if it is no longer one."""
    return replace(match_layer(graph, match.activation), name=match.name)


def match_layer(graph: Graph, node: NodeProto) -> Match:
    """The layer around an activation; NoMatch says why there is none."""
    activation = activation_of(graph, node)
    assert activation is not None
    before, first = walk_back(graph, node, f"before the {activation.name}")
    after, second = walk_on(graph, node, f"after the {activation.name}")
    involved = {op(node) for node in (*before, first, *after, second)}
    if graph.opset < NUMPY_BROADCASTING and involved & {"MatMul", *ELEMENTWISE}:
        raise NoMatch(f"opset {graph.opset} broadcasts by other rules; convert the model first")
    incoming = fold_after(graph, affine(graph, first), before)
    outgoing = fold_before(graph, affine(graph, second), after)
    if incoming.dtype != outgoing.dtype:
        raise NoMatch("its two affine maps have weights of different types")
    if incoming.layout != outgoing.layout:
        raise NoMatch("its two affine maps have their features on different axes")
    if len(incoming.weight) != outgoing.weight.shape[1]:
        raise NoMatch(
            f"the first affine map makes {len(incoming.weight)} features and the second one "
            f"reads {outgoing.weight.shape[1]}"
        )
    if incoming.layout == "columns" and any(op(n) == "Flatten" for n in (*before, *after)):
        raise NoMatch("a Flatten inside it mixes features with other axes")
    outgoing = with_carrier(graph, outgoing)
    rows = np.column_stack([incoming.weight, incoming.bias])
    layer = Layer(rows, outgoing.weight, outgoing.bias, activation)
    if not layer.finite:
        raise NoMatch("a weight is NaN or infinite")
    values = tuple(v for n in (first, *before, node, *after) for v in n.output if v)
    source = activation_input(first, incoming.layout)
    result = str((outgoing.carrier or second).output[0])
    return Match(label(first), incoming, node, outgoing, layer, values, source, result)


def walk_back(graph: Graph, activation: NodeProto, where: str) -> tuple[list[NodeProto], NodeProto]:
    """Nodes between the first affine node and the activation, in order, and that affine node."""
    between: list[NodeProto] = []
    value = activation.input[0]
    while True:
        only_use(graph, value)
        node = graph.producers.get(value)
        if node is None:
            raise NoMatch(f"'{value}', which it reads, is an input of the graph")
        if op(node) in AFFINE:
            return between[::-1], node
        between.append(node)
        value = hidden_input(graph, node, where)


def walk_on(graph: Graph, start: NodeProto, where: str) -> tuple[list[NodeProto], NodeProto]:
    """Nodes between a node and the next affine node, and that affine node."""
    between: list[NodeProto] = []
    value = start.output[0]
    while True:
        node = only_use(graph, value)
        if op(node) in AFFINE:
            return between, node
        hidden_input(graph, node, where)
        between.append(node)
        value = node.output[0]


def only_use(graph: Graph, value: str) -> NodeProto:
    """The one consumer of a hidden value."""
    if value in graph.outputs:
        raise NoMatch(f"'{value}' inside it is an output of the graph")
    users = graph.consumers.get(value, [])
    if len(users) != 1:
        raise NoMatch(f"'{value}' inside it is used by {len(users)} nodes")
    return users[0]


def hidden_input(graph: Graph, node: NodeProto, where: str) -> str:
    """The hidden value that a node between an affine map and an activation reads."""
    if op(node) in TRANSPARENT:
        check_transparent(graph, node)
        return node.input[0]
    if op(node) in ELEMENTWISE:
        constants = [graph.is_constant(name) for name in node.input]
        if constants == [False, True]:
            return node.input[0]
        if constants == [True, False] and node.op_type != "Div":
            return node.input[1]
    overridable = [name for name in node.input if name in graph.overridable]
    if overridable:
        raise NoMatch(overridable_reason(overridable[0]))
    raise NoMatch(
        f"{op(node)} '{label(node)}' stands {where}; only Gemm, MatMul and constant Mul or Add may"
    )


def check_transparent(graph: Graph, node: NodeProto) -> None:
    """Refuse a Dropout in training and a Flatten that mixes features with other axes."""
    options = attributes(node)
    if node.op_type == "Dropout":
        if dropout_may_train(graph, node):
            raise NoMatch(f"Dropout '{label(node)}' may be in training mode")
        masks = [name for name in node.output[1:] if name]
        if any(graph.consumers.get(name) or name in graph.outputs for name in masks):
            raise NoMatch(f"the mask of Dropout '{label(node)}' is used")
    if node.op_type == "Flatten":
        rank = graph.rank(node.input[0])
        if rank is None:
            raise NoMatch(f"the rank of what Flatten '{label(node)}' reads is not known")
        if rank < 2 or options.get("axis", 1) % rank != rank - 1:
            raise NoMatch(f"Flatten '{label(node)}' mixes features with other axes")


def dropout_may_train(graph: Graph, node: NodeProto) -> bool:
    """Whether a Dropout could drop something at inference."""
    if graph.opset < DROPOUT_FOR_INFERENCE:
        return not attributes(node).get("is_test", 0)
    if len(node.input) < 3 or not node.input[2]:
        return False
    training = graph.constant(node.input[2])
    return training is None or bool(training.values.item())


def activation_input(node: NodeProto, layout: Layout) -> str:
    """The input of an affine node that is not the weight."""
    return str(node.input[1 if layout == "columns" else 0])


def hidden_in_bodies(graph: Graph) -> Iterator[Refusal]:
    """Activations in If, Loop and Scan bodies and in local functions."""
    for node in graph.model.graph.node:
        where = f"it lies in a body of {node.op_type} '{label(node)}', which is not supported yet"
        for body in bodies(node):
            inside = Graph(ModelProto(graph=body))
            yield from (Refusal(label(n), where) for n in activations_within(inside, graph))
    for function in graph.model.functions:
        where = f"it lies in the local function '{function.name}', which is not supported yet"
        inside = Graph(ModelProto(graph=GraphProto(node=function.node)))
        yield from (Refusal(label(n), where) for n in activations_within(inside, graph))


def activations_within(body: Graph, outer: Graph) -> Iterator[NodeProto]:
    """Activations in a body, at any depth; their constants may come from outside."""
    for node in body.model.graph.node:
        if activation_of(body, node) or activation_of(outer, node):
            yield node
        for inner in bodies(node):
            yield from activations_within(Graph(ModelProto(graph=inner)), outer)
