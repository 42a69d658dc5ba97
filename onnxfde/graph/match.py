"""Finding layers: affine → activation → affine, in every form that exporters write.

    Gemm | MatMul  →  [constants]  →  activation  →  [constants]  →  Gemm | MatMul  →  [constants]

Constants are Mul, Add, Sub, Div, Neg and BatchNormalization; they are folded into U, V and c.
Identity, Dropout, and a Flatten or Reshape that keeps the feature axis may stand among them. The
activation is one of the table, in any spelling (`core_functions`); the square of a·x² + b·x + c is
completed. Each activation gives a `Match` or a `Refusal`.

Layers are found once. After edits to others, a layer is read again from its nodes (`reread`),
because it may share a map with one of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from onnxfde.graph.activation_patterns import is_lone_square
from onnxfde.graph.affine_maps import (
    ELEMENTWISE,
    NUMPY_BROADCASTING,
    Affine,
    Layout,
    NoMatch,
    affine,
    fold_after,
    fold_before,
)
from onnxfde.graph.constants_behind import outgoing_map
from onnxfde.graph.core_functions import CoreReader, is_plain_square
from onnxfde.graph.model import Graph
from onnxfde.graph.nodes import bodies, label, op, unique_labels
from onnxfde.graph.protos import GraphProto, ModelProto, NodeProto
from onnxfde.graph.regions import (
    Parts,
    Region,
    check_closed,
    next_map,
    parts_of,
    region_behind,
    starts_layer,
)
from onnxfde.graph.reshapes import check_reshapes
from onnxfde.neurons.layer import Layer
from onnxfde.neurons.piecewise_activations import IDENTITY
from onnxfde.neurons.polynomial_activations import SQUARE
from onnxfde.neurons.quadratics import Quadratic, completed_layer
from onnxfde.numbers import FloatArray

LONGEST_NAME = 80
"""Characters of a layer's name that reports of progress show. Chosen: a line; names in files may
have millions of characters."""
LARGEST_CENTRE = 2.0**24
"""How many times b/2a may exceed a neuron's weights: in h + b/2a float64 then keeps 29 bits of h,
more than float32 has."""


@dataclass(frozen=True)
class Refusal:
    """A place that looks like a layer and is left alone, and why."""

    node: str
    reason: str


class Foldable(NoMatch):
    """The reason why two maps without an activation are no layer: one map is as small."""


@dataclass(frozen=True, eq=False)
class Spelling:
    """How a graph writes a polynomial of degree 2 that is not just a square."""

    polynomial: Quadratic
    nodes: tuple[NodeProto, ...]
    value: str
    """The value that it computes."""
    resizable: bool
    """Whether its nodes fit any number of features, because all their constants are scalars."""


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
    reshapes: tuple[NodeProto, ...] = ()
    """Nodes between the maps that give the hidden values another shape."""
    replaced: Parts | None = None
    """The nodes in whose place one operator with the neurons' parameters has to be written."""
    spelling: Spelling | None = None
    """The polynomial whose square was completed to make `layer`; None if it is a square already."""
    behind: tuple[NodeProto, ...] = ()
    """Nodes behind the second map whose constants belong to it; `result` is what they make."""

    def title(self, number: int, of: int) -> str:
        """The layer in reports of progress, such as "layer 1 of 3 'fc1' 64-256-10"."""
        layer, name = self.layer, self.name
        if len(name) > LONGEST_NAME:
            name = name[: LONGEST_NAME // 2] + "…" + name[-LONGEST_NAME // 2 :]
        shape = f"{layer.inputs}-{layer.neurons}-{layer.outputs}"
        return f"layer {number} of {of} '{name}' {shape}"


class LayerSize(NamedTuple):
    """How large a layer is, and at how many positions of one sample it is applied."""

    inputs: int
    neurons: int
    outputs: int
    positions: int
    squares: bool = True
    """Whether its activation is the square."""


def size_of(graph: Graph, match: Match) -> LayerSize:
    """The size of a layer in its graph."""
    layer = match.layer
    values = math.prod(graph.known_lengths(match.activation.input[0]))
    positions = max(1, values // max(layer.neurons, 1))
    squares = layer.activation == SQUARE
    return LayerSize(layer.inputs, layer.neurons, layer.outputs, positions, squares)


def find_layers(graph: Graph) -> tuple[list[Match], list[Refusal]]:
    """All layers in node order, and every near miss."""
    matches: list[Match] = []
    refusals = list(hidden_in_bodies(graph))
    inside: set[str] = set()
    said: set[str] = set()
    for node in graph.model.graph.node:
        if inside.intersection(node.output) or not starts_layer(graph, node):
            continue
        try:
            region, second = region_around(graph, node)
        except NoMatch as reason:
            if str(reason) not in said:  # the nodes of one activation have the same reason
                refusals.append(Refusal(label(node), str(reason)))
            said.add(str(reason))
            continue
        inside.update(inner.output[0] for inner in region.nodes)
        try:
            matches.append(layer_of_region(graph, node, region, second))
        except Foldable:
            continue
        except NoMatch as reason:
            refusals.append(Refusal(label(node), str(reason)))
    names = unique_labels([match.name for match in matches])
    return [replace(m, name=name) for m, name in zip(matches, names, strict=True)], refusals


def reread(graph: Graph, match: Match) -> Match:
    """A layer as it is now, after edits to others; NoMatch if it is no longer one."""
    return replace(match_layer(graph, match.activation), name=match.name)


def match_layer(graph: Graph, node: NodeProto) -> Match:
    """The layer around an activation; NoMatch says why there is none."""
    return layer_of_region(graph, node, *region_around(graph, node))


def region_around(graph: Graph, node: NodeProto) -> tuple[Region, NodeProto]:
    """What lies between the affine maps around an activation, and the second of these maps."""
    region_behind(graph, node.output[0], "before the activation", functions=True)
    value, second = next_map(graph, node, "after the activation")
    region = region_behind(graph, value, "beside the activation", functions=True)
    return region, second


def layer_of_region(graph: Graph, node: NodeProto, region: Region, second: NodeProto) -> Match:
    """The layer that a region and the two affine maps around it are."""
    check_closed(graph, region, second)
    first, parts = region.first, parts_of(graph, region)
    check_broadcasting(graph, first, parts, second)
    incoming = fold_after(graph, affine(graph, first), parts.before)
    outgoing = fold_before(graph, affine(graph, second), parts.after)
    check_fit(incoming, outgoing, any(op(n) == "Flatten" for n in region.nodes))
    check_reshapes(graph, region.nodes, len(incoming.weight), incoming.layout)
    made = outgoing_map(graph, outgoing)
    outgoing = made.side
    rows = np.column_stack([incoming.weight, incoming.bias])
    incoming = replace(incoming, weight=rows[:, :-1])  # a view: the weights are held once
    core = CoreReader(graph, parts, len(rows), incoming.layout, incoming.dtype).function()
    if core.bias is not None:
        rows[:, -1] += core.bias
    layer = Layer(rows, outgoing.weight, outgoing.bias, core.activation, core.unit_parameters)
    if layer.activation == IDENTITY:
        check_not_foldable(layer)
    spelling = None
    if core.polynomial is not None:
        check_centres(core.polynomial, rows)
        layer = completed_layer(layer, core.polynomial)
        spelling = Spelling(core.polynomial, parts.core, parts.value, has_scalars(graph, parts))
    if not layer.finite or not all(np.isfinite(a).all() for a in layer.unit_parameters):
        raise NoMatch("a weight is NaN or infinite")
    values = tuple(v for n in (first, *region.nodes) for v in n.output if v)
    source = activation_input(first, incoming.layout)
    reshapes = tuple(n for n in region.nodes if op(n) == "Reshape")
    replaced = parts if core.taken_apart else None
    ends = (source, made.result, reshapes, replaced, spelling, made.behind)
    return Match(label(first), incoming, node, outgoing, layer, values, *ends)


def check_broadcasting(graph: Graph, first: NodeProto, parts: Parts, second: NodeProto) -> None:
    """Refuse operators with constants in opsets that broadcast by other rules."""
    core = () if is_plain_square(graph, parts) else parts.core
    involved = {op(n) for n in (first, *parts.before, *core, *parts.after, second)}
    if graph.opset < NUMPY_BROADCASTING and involved & {"MatMul", "Sum", "PRelu", *ELEMENTWISE}:
        raise NoMatch(f"opset {graph.opset} broadcasts by other rules; convert the model first")


def check_not_foldable(layer: Layer) -> None:
    """Refuse a linear layer that is no smaller than the one map that it can be folded into."""
    if layer.neurons * (layer.inputs + layer.outputs) >= layer.inputs * layer.outputs:
        raise Foldable("it is linear, and folding its two maps into one takes no more weights")


def check_fit(incoming: Affine, outgoing: Affine, flattened: bool) -> None:
    """Refuse two affine maps of which the second does not read what the first one makes."""
    if incoming.dtype != outgoing.dtype:
        raise NoMatch("its two affine maps have weights of different types")
    if incoming.layout != outgoing.layout:
        raise NoMatch("its two affine maps have their features on different axes")
    if len(incoming.weight) != outgoing.weight.shape[1]:
        raise NoMatch(
            f"the first affine map makes {len(incoming.weight)} features and the second one "
            f"reads {outgoing.weight.shape[1]}"
        )
    if incoming.layout == "columns" and flattened:
        raise NoMatch("a Flatten inside it mixes features with other axes")


def check_centres(p: Quadratic, rows: FloatArray) -> None:
    """Refuse a linear term beside which the square is lost in float64: h in (h + b/2a)²."""
    centres, sizes = np.abs(p.centre), np.linalg.norm(rows, axis=1)
    if not np.all(centres <= LARGEST_CENTRE * sizes):
        raise NoMatch("its square term is too small beside its linear one")


def has_scalars(graph: Graph, parts: Parts) -> bool:
    """Whether the constants of a polynomial fit any number of features."""
    constants = (graph.constant(name) for node in parts.core for name in node.input if name)
    return all(constant is None or constant.values.size == 1 for constant in constants)


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
        if starts_layer(body, node) or is_lone_square(outer, node):
            yield node
        for inner in bodies(node):
            yield from activations_within(Graph(ModelProto(graph=inner)), outer)
