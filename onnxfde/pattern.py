"""Finding layers: affine → square → affine, in every spelling that exporters write.

    Gemm | MatMul  →  [Mul, Add, Sub, Div by constants]  →  Mul(x, x) | Pow(x, 2)
                   →  [Mul, Add, Sub, Div by constants]  →  Gemm | MatMul [→ Add]

Identity, Dropout and a Flatten that keeps the feature axis may stand anywhere inside. Constant
factors and terms are folded into U, V and c. Each square node gives a `Match` or a `Refusal`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from onnxfde.graph import ROUNDOFF, Constant, Graph, NodeProto, attributes, bodies
from onnxfde.polynomial import FloatArray, Layer

Layout = Literal["rows", "columns"]
ELEMENTWISE = {"Mul", "Add", "Sub", "Div"}
TRANSPARENT = {"Identity", "Dropout", "Flatten"}
AFFINE = {"Gemm", "MatMul"}


@dataclass(frozen=True)
class Refusal:
    """A place that looks like a layer and is left alone, and why."""

    node: str
    reason: str


class NoMatch(Exception):  # noqa: N818 - control flow inside this module, never an error
    """Carries the reason why a walk through the graph ended."""


@dataclass(frozen=True, eq=False)
class Affine:
    """One affine map: y = W x + b, its node, and the nodes with constants folded into it."""

    node: NodeProto
    layout: Layout
    weight: FloatArray
    bias: FloatArray
    dtype: np.dtype[Any]
    folded: tuple[NodeProto, ...] = ()
    carrier: NodeProto | None = None
    """The Add that holds the bias of a MatMul."""


@dataclass(frozen=True, eq=False)
class Match:
    """A layer in the graph: where it is and what it computes."""

    name: str
    incoming: Affine
    square: NodeProto
    outgoing: Affine
    layer: Layer
    values: tuple[str, ...]
    """Hidden values, from the first affine node's output to the second one's input."""

    @property
    def source(self) -> str:
        """The value that the layer reads."""
        return activation_input(self.incoming.node, self.incoming.layout)


def find_layers(graph: Graph) -> tuple[list[Match], list[Refusal]]:
    """All layers in node order, and every near miss."""
    matches: list[Match] = []
    refusals = list(hidden_in_bodies(graph))
    for node in graph.model.graph.node:
        if not is_square(graph, node):
            continue
        try:
            matches.append(match_layer(graph, node))
        except NoMatch as reason:
            refusals.append(Refusal(label(node), str(reason)))
    return with_unique_names(matches), refusals


def with_unique_names(matches: list[Match]) -> list[Match]:
    """Number the layers whose first affine node shares its name with another."""
    seen: dict[str, int] = {}
    unique = []
    for match in matches:
        count = seen[match.name] = seen.get(match.name, 0) + 1
        unique.append(match if count == 1 else replace(match, name=f"{match.name}#{count}"))
    return unique


def op(node: NodeProto) -> str:
    """A node's operator, with its domain unless that is onnx's own."""
    own = node.domain in ("", "ai.onnx")
    return str(node.op_type) if own else f"{node.domain}.{node.op_type}"


def label(node: NodeProto) -> str:
    """A node's name, else its output's."""
    return node.name or node.output[0]


def is_square(graph: Graph, node: NodeProto) -> bool:
    """Mul(x, x) or Pow(x, 2)."""
    if op(node) == "Mul":
        return bool(node.input[0] == node.input[1])
    if op(node) != "Pow":
        return False
    exponent = graph.constant(node.input[1])
    return exponent is not None and exponent.values.size == 1 and float(exponent.array.item()) == 2


def match_layer(graph: Graph, square: NodeProto) -> Match:
    """The layer around a square node; NoMatch says why there is none."""
    before, first = walk_back(graph, square)
    after, second = walk_on(graph, square)
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
    layer = Layer(
        np.column_stack([incoming.weight, incoming.bias]), outgoing.weight, outgoing.bias
    )
    if not all(np.isfinite(a).all() for a in (layer.incoming, layer.outgoing, layer.offset)):
        raise NoMatch("a weight is NaN or infinite")
    values = [v for n in (first, *before, square, *after) for v in n.output[:1]]
    return Match(label(first), incoming, square, outgoing, layer, tuple(values))


def walk_back(graph: Graph, square: NodeProto) -> tuple[list[NodeProto], NodeProto]:
    """Nodes between the first affine node and the square, in graph order, and that affine node."""
    between: list[NodeProto] = []
    value = square.input[0]
    while True:
        only_use(graph, value)
        node = graph.producers.get(value)
        if node is None:
            raise NoMatch(f"'{value}', which it squares, is an input of the graph")
        if op(node) in AFFINE:
            return between[::-1], node
        between.append(node)
        value = hidden_input(graph, node, "before the square")


def walk_on(graph: Graph, square: NodeProto) -> tuple[list[NodeProto], NodeProto]:
    """Nodes between the square and the second affine node, and that affine node."""
    between: list[NodeProto] = []
    value = square.output[0]
    while True:
        node = only_use(graph, value)
        if op(node) in AFFINE:
            return between, node
        hidden_input(graph, node, "after the square")
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
    """The hidden value that a node between affine map and square reads."""
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
        f"{op(node)} '{label(node)}' stands {where}; only Gemm, MatMul and constant Mul or Add "
        "may"
    )


def overridable_reason(name: str) -> str:
    """Why a weight that is also an input cannot be changed."""
    return (
        f"the weight '{name}' is also a graph input that a caller may override; take it off the "
        "graph's inputs to make it a constant"
    )


def check_transparent(graph: Graph, node: NodeProto) -> None:
    """Refuse a Dropout in training and a Flatten that mixes features with other axes."""
    options = attributes(node)
    if node.op_type == "Dropout":
        if dropout_may_train(graph, node):
            raise NoMatch(f"Dropout '{label(node)}' may be in training mode")
        if len(node.output) > 1 and graph.consumers.get(node.output[1]):
            raise NoMatch(f"the mask of Dropout '{label(node)}' is used")
    if node.op_type == "Flatten":
        rank = graph.rank(node.input[0])
        if rank is None:
            raise NoMatch(f"the rank of what Flatten '{label(node)}' reads is not known")
        if rank < 2 or options.get("axis", 1) % rank != rank - 1:
            raise NoMatch(f"Flatten '{label(node)}' mixes features with other axes")


def dropout_may_train(graph: Graph, node: NodeProto) -> bool:
    """Whether a Dropout could drop something at inference."""
    if graph.opset < 7:
        return not attributes(node).get("is_test", 0)
    if len(node.input) < 3 or not node.input[2]:
        return False
    training = graph.constant(node.input[2])
    return training is None or bool(training.values.item())


def activation_input(node: NodeProto, layout: Layout) -> str:
    """Which input of an affine node is not the weight."""
    return str(node.input[1 if layout == "columns" else 0])


def affine(graph: Graph, node: NodeProto) -> Affine:
    """Read W and b of a Gemm or MatMul."""
    constants = [graph.is_constant(name) for name in node.input[:2]]
    if constants == [True, True] or not any(constants):
        overridable = [name for name in node.input if name in graph.overridable]
        if overridable:
            raise NoMatch(overridable_reason(overridable[0]))
        raise NoMatch(f"{node.op_type} '{label(node)}' does not have exactly one constant weight")
    layout: Layout = "rows" if constants[1] else "columns"
    found = graph.constant(node.input[1 if layout == "rows" else 0])
    if found is None or found.values.dtype.name not in ROUNDOFF:
        raise NoMatch(f"the weight of '{label(node)}' is not a floating-point tensor")
    if found.values.ndim != 2:
        raise NoMatch(f"the weight of '{label(node)}' is not a matrix but {found.values.shape}")
    if node.op_type == "Gemm":
        return gemm(graph, node, layout, found)
    if layout == "columns" and graph.rank(node.input[1]) is None:
        raise NoMatch(f"the rank of what '{label(node)}' multiplies from the left is not known")
    weight = found.array.T if layout == "rows" else found.array
    return Affine(node, layout, weight, np.zeros(len(weight)), found.values.dtype)


def gemm(graph: Graph, node: NodeProto, layout: Layout, found: Constant) -> Affine:
    """alpha·A·B + beta·C with A the activation."""
    options = attributes(node)
    if layout == "columns":
        raise NoMatch(f"the weight of Gemm '{label(node)}' is its first input")
    if options.get("transA", 0):
        raise NoMatch(f"Gemm '{label(node)}' transposes its activation (transA)")
    stored = found.array if options.get("transB", 0) else found.array.T
    weight = options.get("alpha", 1.0) * stored
    bias = np.zeros(len(weight))
    if len(node.input) > 2 and node.input[2]:
        name = node.input[2]
        if name in graph.overridable:
            raise NoMatch(overridable_reason(name))
        constant = graph.constant(name)
        if constant is None:
            raise NoMatch(f"C of Gemm '{label(node)}' is not a constant")
        bias = options.get("beta", 1.0) * per_feature(constant.array, len(weight), "rows", 2, name)
    return Affine(node, layout, np.ascontiguousarray(weight), bias, found.values.dtype)


def per_feature(
    a: FloatArray, features: int, layout: Layout, rank: int | None, name: str
) -> FloatArray:
    """A constant as one value a feature; NoMatch if it varies along another axis."""
    axis = -1 if layout == "rows" or rank == 1 else -2
    if a.ndim > (1 if rank is None else rank):
        raise NoMatch(f"'{name}' has more axes than the value it meets is known to have")
    lengths = list(a.shape)
    along = lengths.pop(axis) if a.ndim >= -axis else 1
    if any(length != 1 for length in lengths) or along not in (1, features):
        raise NoMatch(f"'{name}' of shape {a.shape} is not one value a feature")
    return np.broadcast_to(a.reshape(-1), (features,)).astype(np.float64)


def scale_and_shift(
    graph: Graph, node: NodeProto, features: int, layout: Layout
) -> tuple[FloatArray, FloatArray]:
    """An elementwise node with a constant as y = scale·x + shift."""
    second = graph.is_constant(node.input[1])
    name, value = (node.input[1], node.input[0]) if second else (node.input[0], node.input[1])
    constant = graph.constant(name)
    assert constant is not None
    a = constant.array
    rank = 1 if a.ndim <= 1 and layout == "rows" else graph.rank(value)
    a = per_feature(a, features, layout, rank, name)
    one, zero = np.ones(features), np.zeros(features)
    if node.op_type == "Mul":
        return a, zero
    if node.op_type == "Add":
        return one, a
    if node.op_type == "Div":
        with np.errstate(divide="ignore"):
            return 1 / a, zero
    return (one, -a) if second else (-one, a)


def fold_after(graph: Graph, start: Affine, nodes: list[NodeProto]) -> Affine:
    """The affine map followed by constant factors and terms."""
    weight, bias = start.weight, start.bias
    folded = tuple(n for n in nodes if n.op_type in ELEMENTWISE)
    for node in folded:
        scale, shift = scale_and_shift(graph, node, len(weight), start.layout)
        weight, bias = scale[:, None] * weight, scale * bias + shift
    carrier = None
    if start.node.op_type == "MatMul":
        carrier = next((n for n in folded if n.op_type == "Add"), None)
    folded = tuple(n for n in folded if n is not carrier)
    return replace(start, weight=weight, bias=bias, folded=folded, carrier=carrier)


def fold_before(graph: Graph, start: Affine, nodes: list[NodeProto]) -> Affine:
    """Constant factors and terms followed by the affine map."""
    weight, bias = start.weight, start.bias
    folded = tuple(n for n in nodes if n.op_type in ELEMENTWISE)
    for node in reversed(folded):
        scale, shift = scale_and_shift(graph, node, weight.shape[1], start.layout)
        weight, bias = weight * scale, bias + weight @ shift
    return replace(start, weight=weight, bias=bias, folded=folded)


def with_carrier(graph: Graph, side: Affine) -> Affine:
    """Take in the Add that follows an outgoing MatMul, if it holds a constant bias."""
    output = side.node.output[0]
    users = graph.consumers.get(output, [])
    if side.node.op_type != "MatMul" or output in graph.outputs or len(users) != 1:
        return side
    node = users[0]
    if node.op_type != "Add" or sum(graph.is_constant(name) for name in node.input) != 1:
        return side
    try:
        _, shift = scale_and_shift(graph, node, len(side.weight), side.layout)
    except NoMatch:
        return side
    return replace(side, bias=side.bias + shift, carrier=node)


def hidden_in_bodies(graph: Graph) -> Iterator[Refusal]:
    """Squares in If, Loop and Scan bodies and in local functions."""
    for node in graph.model.graph.node:
        where = f"it lies in a body of {node.op_type} '{label(node)}', which is not supported yet"
        for body in bodies(node):
            yield from (Refusal(label(n), where) for n in squares_within(body.node))
    for function in graph.model.functions:
        where = f"it lies in the local function '{function.name}', which is not supported yet"
        yield from (Refusal(label(n), where) for n in squares_within(function.node))


def squares_within(nodes: Iterable[NodeProto]) -> Iterator[NodeProto]:
    """Nodes that multiply a value by itself, at any depth."""
    for node in nodes:
        if op(node) == "Mul" and node.input[0] == node.input[1]:
            yield node
        for body in bodies(node):
            yield from squares_within(body.node)
