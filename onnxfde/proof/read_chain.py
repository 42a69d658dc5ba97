"""Reading a value backwards: from it to the value it is a chain of affine maps and squares of.

    base → F_1 → x² → F_2 → … → F_r → value       along the features of `rows` or `columns`

Constants, Identity, Dropout, Cast and a Flatten that keeps the features belong to the maps. A path
begins and ends with a Gemm or MatMul. `joints` are the values between two of them that no square
separates: two graphs that both have one are compared there.
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable
from dataclasses import dataclass, field

import numpy as np

from onnxfde.graph.activation_patterns import is_square
from onnxfde.graph.affine import ELEMENTWISE, Layout, NoMatch, affine, scale_and_shift
from onnxfde.graph.match import (
    AFFINE,
    TRANSPARENT,
    activation_input,
    check_transparent,
    dropout_may_train,
)
from onnxfde.graph.model import Graph
from onnxfde.graph.nodes import attributes, op
from onnxfde.graph.protos import NodeProto
from onnxfde.graph.tensors import FLOATS
from onnxfde.numbers import FloatArray
from onnxfde.proof.affine_bounds import Map
from onnxfde.proof.chain_bounds import Maps

Key = tuple[Hashable, ...]


@dataclass
class Path:
    """A chain in the graph: what it reads and what it does; grows node by node."""

    base: str
    layout: Layout | None = None
    maps: Maps = ()
    keys: tuple[Key, ...] = ()
    """What each map is made of: equal keys are the same function."""
    flattened: bool = False
    joints: list[tuple[int, str, int]] = field(default_factory=list)
    """How many squares come before it, its name, and how many features it has."""
    current: Map | None = None
    pending: list[NodeProto] = field(default_factory=list)
    made_of: Key = ()
    computed: list[str] = field(default_factory=list)
    """What was computed since and by the last Gemm or MatMul."""


def read_path(graph: Graph, value: str, stop: str = "") -> Path | None:
    """The path that ends in a value, if there is one."""
    nodes: list[NodeProto] = []
    while value != stop and (step := one_back(graph, value)):
        nodes.append(step[0])
        value = step[1]
    path = Path(value)
    for node in reversed(nodes):
        try:
            extend(graph, path, node)
        except NoMatch:
            path = Path(node.output[0])
    if path.current is None:
        return None
    path.maps, path.keys = (*path.maps, path.current), (*path.keys, path.made_of)
    return path


def one_back(graph: Graph, value: str) -> tuple[NodeProto, str] | None:
    """The node that makes a value and the value it makes it of, if it may be part of a path."""
    node = graph.producers.get(value)
    if node is None or value != node.output[0] or graph.is_constant(value):
        return None
    if op(node) in TRANSPARENT | {"Cast"} or is_square(graph, node):
        return node, node.input[0]
    if op(node) in AFFINE | ELEMENTWISE:
        constants = [graph.is_constant(name) for name in node.input[:2]]
        if constants in ([False, True], [True, False]):
            return node, node.input[constants.index(False)]
    return None


def extend(graph: Graph, path: Path, node: NodeProto) -> None:
    """Add one node to a path; NoMatch if it does not go on there."""
    if is_square(graph, node):
        if path.current is None:
            raise NoMatch("no affine map before the square")
        path.maps, path.keys = (*path.maps, path.current), (*path.keys, path.made_of)
        path.current, path.made_of = None, ()
    elif op(node) in AFFINE:
        join(graph, path, node)
    elif op(node) in ELEMENTWISE:
        scale(graph, path, node)
    elif op(node) == "Cast":
        if attributes(node)["to"] not in FLOATS:
            raise NoMatch("a cast to integers")
    else:
        check_transparent(graph, node)
        path.flattened |= op(node) == "Flatten"
        if path.flattened and path.layout == "columns":
            raise NoMatch("a Flatten mixes features with other axes")


def join(graph: Graph, path: Path, node: NodeProto) -> None:
    """Add an affine map."""
    read = affine(graph, node)
    source = activation_input(node, read.layout)
    if path.layout not in (None, read.layout) or (path.flattened and read.layout == "columns"):
        restart(path, source)
    path.layout = read.layout
    plain = Map(read.weight, read.bias, steps=1)
    try:
        new = with_factors(graph, plain, path.pending, read.layout)
    except NoMatch:
        restart(path, source)
        new = plain
    if read_by(path) not in (None, new.weight.shape[1]):
        restart(path, source)
        new = plain
    if path.current is not None:
        width = plain.weight.shape[1]
        path.joints += [(len(path.maps), name, width) for name in path.computed]
    factors = [signature(graph, factor) for factor in path.pending]
    path.made_of = (*path.made_of, *factors, signature(graph, node))
    path.current = new if path.current is None else path.current.then(new)
    if not path.current.finite:
        raise NoMatch("a weight is NaN or infinite")
    path.pending, path.computed = [], [node.output[0]]


def read_by(path: Path) -> int | None:
    """How many features the next map of a path reads, unless a factor makes more of one."""
    last = path.current or (path.maps[-1] if path.maps else None)
    return None if last is None else len(last.weight)


def with_factors(graph: Graph, after: Map, pending: list[NodeProto], layout: Layout) -> Map:
    """A map with the factors and terms that stand before it."""
    for node in reversed(pending):
        after = after.preceded(*constants_of(graph, node, after.weight.shape[1], layout))
    return after


def restart(path: Path, base: str) -> None:
    """Begin a path anew."""
    path.base, path.maps, path.keys, path.flattened = base, (), (), False
    path.joints, path.current, path.pending, path.made_of = [], None, [], ()


def scale(graph: Graph, path: Path, node: NodeProto) -> None:
    """Add factors or terms: to the map before them, else to the one that will follow."""
    if op(node) == "Div" and graph.is_constant(node.input[0]):
        raise NoMatch("a division by a value")
    if path.current is None:
        path.pending.append(node)
        return
    assert path.layout is not None
    factors = constants_of(graph, node, len(path.current.weight), path.layout)
    path.current = path.current.scaled(*factors)
    path.made_of = (*path.made_of, signature(graph, node))
    path.computed.append(node.output[0])


def constants_of(
    graph: Graph, node: NodeProto, features: int, layout: Layout
) -> tuple[FloatArray, FloatArray]:
    """Factors and terms of a node, all of them numbers."""
    found = scale_and_shift(graph, node, features, layout)
    if not all(np.isfinite(a).all() for a in found):
        raise NoMatch("a constant is not a number")
    return found


def signature(graph: Graph, node: NodeProto) -> Key:
    """What a node computes from its one value: its operator, attributes and constants."""
    options = sorted(a.SerializeToString() for a in node.attribute)
    found: list[Key] = []
    for name in node.input:
        constant = graph.constant(name) if name else None
        if constant is None:
            found.append((name == "",))
            continue
        a = constant.values
        digest = hashlib.sha256(np.ascontiguousarray(a).tobytes()).digest()
        found.append((a.dtype.name, a.shape, digest))
    return (op(node), *options, *found)


def through(graph: Graph, value: str) -> str:
    """The value behind nodes that do nothing at inference."""
    while True:
        node = graph.producers.get(value)
        if node is None or value != node.output[0] or graph.is_constant(value):
            return value
        nothing = op(node) == "Identity" or (
            op(node) == "Dropout" and not dropout_may_train(graph, node)
        )
        if not nothing:
            return value
        value = node.input[0]
