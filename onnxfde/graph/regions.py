"""Regions: nodes between the affine map that makes a value h and a value computed from h alone.

    h = affine(x)  →  region  →  affine        Mul, Add, Sub, Div, Neg, Pow, BatchNormalization, …

A region between two affine maps is cut into the constants before a polynomial in h, the polynomial
itself (`polynomials` reads its coefficients) and the constants after it.
"""

from __future__ import annotations

from dataclasses import dataclass

from onnxfde.graph.activation_patterns import activation_of, is_averaged, is_square
from onnxfde.graph.affine_maps import NoMatch
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

ARITHMETIC = {"Mul", "Add", "Sub", "Div", "Neg", "Pow", "Sum", "BatchNormalization"}
"""Operators that polynomials are made of."""
ONE_VALUE = {"Neg", "Pow", "BatchNormalization", *TRANSPARENT}
"""Operators whose first input alone is a value of the polynomial."""
MOST_NODES = 64
"""Most nodes of one polynomial, so that long sums of a network's branches are not followed to its
start. Chosen; not tuned."""


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
    if is_square(graph, node) or not is_product(graph, node) or is_averaged(graph, node):
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
