"""Polynomials of degree 2 in graphs: trees of Mul, Add, Sub, Div, Neg and Pow over one value.

    h = affine(x)  →  a·h² + b·h + c        x·x + x, x·(x + 1), (0.5·x)·x, Pow(x, 2) − x, …

A *region* is what lies between the affine map that makes h and a value computed from h alone. Each
value in it is read as a polynomial in h with one coefficient a, b, c per feature, node by node.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from onnxfde.graph.activation_patterns import activation_of, is_averaged, is_square
from onnxfde.graph.affine_maps import Layout, NoMatch, constant_of_features, lines_of
from onnxfde.graph.inner_nodes import (
    AFFINE,
    TRANSPARENT,
    check_not_overridable,
    check_transparent,
    scaled_input,
    why_not_inside,
)
from onnxfde.graph.model import Graph
from onnxfde.graph.nodes import label, op
from onnxfde.graph.protos import NodeProto
from onnxfde.neurons.quadratics import Quadratic
from onnxfde.numbers import FloatArray

ARITHMETIC = {"Mul", "Add", "Sub", "Div", "Neg", "Pow", "Sum", "BatchNormalization"}
"""Operators that polynomials are made of."""
ONE_VALUE = {"Neg", "Pow", "BatchNormalization", *TRANSPARENT}
"""Operators whose first input alone is a value of the polynomial."""
MOST_NODES = 64
"""Most nodes of one polynomial, so that long sums of a network's branches are not followed to its
start. Chosen; not tuned: the longest spelling in the tests has 9."""


@dataclass(frozen=True, eq=False)
class Region:
    """Nodes that compute a value from the output of one affine node, and from nothing else."""

    first: NodeProto
    nodes: tuple[NodeProto, ...]
    """In an order in which they can be computed."""
    value: str

    def holds(self, node: NodeProto) -> bool:
        """Whether a node belongs to the region."""
        return any(node is other for other in self.nodes)


def region_behind(graph: Graph, value: str, where: str) -> Region:
    """The region that ends in a value; NoMatch names what else the value is computed from."""
    first: NodeProto | None = None
    nodes: list[NodeProto] = []
    done: set[str] = set()
    stack: list[tuple[str, NodeProto | None]] = [(value, None)]
    while stack:
        name, reader = stack[-1]
        node = graph.producers.get(name)
        if name in done:
            stack.pop()
        elif node is None:
            raise NoMatch(input_reason(graph, name, reader))
        elif op(node) in AFFINE:
            if first is not None and first is not node:
                both = " and ".join(f"{op(n)} '{label(n)}'" for n in (first, node))
                raise NoMatch(f"it mixes values of {both}")
            first = node
            done.add(name)
        elif missing := [n for n in variables(graph, node, where) if n not in done]:
            stack.extend((n, node) for n in missing)
        else:
            done.add(name)
            nodes.append(node)
        if len(stack) > MOST_NODES or len(nodes) > MOST_NODES:
            raise NoMatch(f"it is computed by more than {MOST_NODES} nodes")
    if first is None:
        raise NoMatch("it is a constant")
    return Region(first, tuple(nodes), value)


def input_reason(graph: Graph, name: str, reader: NodeProto | None) -> str:
    """Why a value that no node computes ends a region."""
    if reader is None or is_product(graph, reader):
        return f"'{name}', which it reads, is an input of the graph"
    return f"{op(reader)} '{label(reader)}' reads '{name}', which is an input of the graph"


def variables(graph: Graph, node: NodeProto, where: str) -> list[str]:
    """The values of the polynomial that a node reads; NoMatch if it is no polynomial of them."""
    if op(node) in TRANSPARENT:
        check_transparent(graph, node)
    elif op(node) not in ARITHMETIC:
        raise NoMatch(why_not_inside(node, where))
    check_not_overridable(graph, node)
    found = [name for name in node.input if name and not graph.is_constant(name)]
    if op(node) in TRANSPARENT:
        return [node.input[0]]
    fixed = node.input[1:] if op(node) in ONE_VALUE | {"Div"} else ()
    if any(name in found for name in fixed):
        raise NoMatch(why_not_inside(node, where))
    return found


def is_product(graph: Graph, node: NodeProto) -> bool:
    """Whether a node multiplies two values that are not constants, or squares one."""
    if is_square(graph, node):
        return True
    return op(node) == "Mul" and not any(graph.is_constant(name) for name in node.input)


def starts_layer(graph: Graph, node: NodeProto) -> bool:
    """Whether a node is an activation of the table or multiplies two values of one affine map."""
    if activation_of(graph, node) is not None:
        return True
    if is_averaged(graph, node) or is_square(graph, node) or not is_product(graph, node):
        return False
    try:
        region_behind(graph, node.output[0], "")
    except NoMatch:
        return False
    return True


def next_map(graph: Graph, node: NodeProto, where: str) -> tuple[str, NodeProto]:
    """The affine node that comes after a node, and the value it reads."""
    value = node.output[0]
    for _ in range(MOST_NODES):
        users = graph.consumers.get(value, [])
        if value in graph.outputs:
            raise NoMatch(f"'{value}' inside it is an output of the graph")
        if not users:
            raise NoMatch(f"'{value}' inside it is read by nothing")
        maps = [user for user in users if op(user) in AFFINE]
        if maps:
            return value, maps[0]
        inner = [user for user in users if op(user) in ARITHMETIC | TRANSPARENT]
        if not inner:
            raise NoMatch(why_not_inside(users[0], where))
        variables(graph, inner[0], where)
        value = inner[0].output[0]
    raise NoMatch(f"no affine map follows within {MOST_NODES} nodes")


def check_closed(graph: Graph, region: Region, second: NodeProto) -> None:
    """Refuse a region with a value that something else reads, too."""
    for node in (region.first, *region.nodes):
        value = node.output[0]
        if value in graph.outputs:
            raise NoMatch(f"'{value}' inside it is an output of the graph")
        for user in graph.consumers.get(value, ()):
            if not (region.holds(user) or (value == region.value and user is second)):
                raise NoMatch(f"'{value}' inside it is also read by {op(user)} '{label(user)}'")


@dataclass(frozen=True, eq=False)
class Parts:
    """A region in three parts: constants before the polynomial, the polynomial, constants after."""

    before: tuple[NodeProto, ...]
    core: tuple[NodeProto, ...]
    after: tuple[NodeProto, ...]
    argument: str
    """The value of which the core is a polynomial."""
    value: str
    """The value that the core computes."""


def parts_of(graph: Graph, region: Region) -> Parts:
    """Cut the steps that read one value and constants off both ends of a region."""
    argument, value = region.first.output[0], region.value
    before: list[NodeProto] = []
    after: list[NodeProto] = []
    while len(users := graph.consumers[argument]) == 1 and is_step(graph, users[0]):
        before.append(users[0])
        argument = users[0].output[0]
    while value != argument and is_step(graph, node := graph.producers[value]):
        value = step_input(graph, node)
        after.append(node)
        if len(graph.consumers[value]) > 1:
            value = after.pop().output[0]
            break
    taken = [*before, *after]
    core = tuple(n for n in region.nodes if not any(n is other for other in taken))
    return Parts(tuple(before), core, tuple(reversed(after)), argument, value)


def is_step(graph: Graph, node: NodeProto) -> bool:
    """Whether a node reads one value, once, and at most scales and shifts it."""
    return op(node) in TRANSPARENT or scaled_input(graph, node) is not None


def step_input(graph: Graph, node: NodeProto) -> str:
    """The value that a step reads."""
    return scaled_input(graph, node) or node.input[0]


def polynomial_of(
    graph: Graph, core: Iterable[NodeProto], argument: str, value: str, features: int,
    layout: Layout, absolute: bool = False,
) -> Quadratic:  # fmt: skip
    """A value as a polynomial in the argument; `absolute`: with the absolute value of each part."""
    line = Quadratic.of_line(np.ones(features), np.zeros(features))
    reading = Reading(graph, features, layout, absolute, {argument: line})
    for node in core:
        reading.known[node.output[0]] = reading.result(node)
    return reading.known[value]


@dataclass(frozen=True, eq=False)
class Reading:
    """Values of a region that are known as polynomials so far."""

    graph: Graph
    features: int
    layout: Layout
    absolute: bool
    known: dict[str, Quadratic]

    def result(self, node: NodeProto) -> Quadratic:
        """The polynomial that a node computes."""
        match op(node):
            case "Flatten":
                raise NoMatch(f"Flatten '{label(node)}' stands inside the polynomial")
            case "Identity" | "Dropout":
                return self.known[node.input[0]]
            case "Pow":
                return self.power(node)
            case "Mul":
                first, second = self.operands(node)
                return self.product(node, first, second)
            case "Add" | "Sub" | "Sum":
                return self.total(node)
        found = self.known[node.input[0]]
        for scale, shift in lines_of(self.graph, node, self.features, self.layout):
            found = found.scaled(self.size(scale), self.size(shift))
        return found

    def operands(self, node: NodeProto) -> list[Quadratic]:
        """What a node reads, constants included."""
        value = next(name for name in node.input if name in self.known)
        zero = np.zeros(self.features)
        found = []
        for name in node.input:
            if name in self.known:
                found.append(self.known[name])
            else:
                a = constant_of_features(self.graph, name, value, self.features, self.layout)
                found.append(Quadratic.of_line(zero, self.size(a)))
        return found

    def total(self, node: NodeProto) -> Quadratic:
        """A sum or a difference."""
        result, *others = self.operands(node)
        factor = np.full(self.features, -1.0 if op(node) == "Sub" else 1.0)
        for other in others:
            result = result.plus(other.scaled(self.size(factor), np.zeros(self.features)))
        return result

    def power(self, node: NodeProto) -> Quadratic:
        """The first or second power, which may differ between features."""
        base, name = self.known[node.input[0]], node.input[1]
        read = (self.graph, name, node.input[0], self.features, self.layout)
        exponent = constant_of_features(*read)
        if not np.isin(exponent, (1.0, 2.0)).all():
            raise NoMatch(f"Pow '{label(node)}' has an exponent other than 1 and 2")
        line, twice = (exponent == 1).astype(np.float64), (exponent == 2).astype(np.float64)
        zero = np.zeros(self.features)
        squared = base.scaled(twice, zero)
        return base.scaled(line, zero).plus(self.product(node, squared, squared))

    def product(self, node: NodeProto, first: Quadratic, second: Quadratic) -> Quadratic:
        """A product of degree 2 at most."""
        found = first.times(second)
        if found is None:
            raise NoMatch(f"{op(node)} '{label(node)}' makes a polynomial of degree 3 or more")
        return found

    def size(self, a: FloatArray) -> FloatArray:
        """Constants, or their absolute values."""
        return np.abs(a) if self.absolute else a
