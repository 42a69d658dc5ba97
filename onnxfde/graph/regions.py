"""Regions: nodes between the affine map that makes a value h and a value computed from h alone.

    h = affine(x)  →  region  →  affine        Mul, Add, …, BatchNormalization, Relu, Sigmoid, …

A region between two affine maps is cut into the constants before its core, the core itself, which
is a function of h (`core_functions` says which), and the constants after it.
"""

from __future__ import annotations

from dataclasses import dataclass

from onnxfde.graph.activation_patterns import (
    ACTIVATION_OPERATORS,
    is_averaged,
    is_lone_square,
    is_square,
)
from onnxfde.graph.affine_maps import NoMatch
from onnxfde.graph.inner_nodes import (
    AFFINE,
    TRANSPARENT,
    check_not_overridable,
    check_transparent,
    has_exponent,
    scaled_input,
    why_not_inside,
)
from onnxfde.graph.model import Graph
from onnxfde.graph.nodes import label, op
from onnxfde.graph.protos import NodeProto
from onnxfde.graph.reshapes import asks_other_axes
from onnxfde.graph.step_forms import COMPARISONS

ARITHMETIC = {"Mul", "Add", "Sub", "Div", "Neg", "Pow", "Sum", "BatchNormalization"}
"""Operators that polynomials are made of."""
FUNCTIONS = {*ACTIVATION_OPERATORS, *COMPARISONS, "Max", "Min", "Where", "Reshape"}
"""Operators that may stand in the core of a region beside those."""
ONE_VALUE = {"Neg", "Pow", "BatchNormalization", *TRANSPARENT}
"""Operators whose first input alone is a value of the polynomial."""
CONVOLUTIONS = {"Conv", "ConvTranspose"}
MOST_NODES = 64
"""Most nodes of one region, so that long sums of a network's branches are not followed to its
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


def region_behind(graph: Graph, value: str, where: str, functions: bool = False) -> Region:
    """The region that ends in a value; NoMatch names what else the value is computed from.

    It has polynomials only, or other `functions` too.
    """
    maps: dict[str, NodeProto] = {}
    nodes: list[NodeProto] = []
    stack: list[tuple[str, NodeProto | None]] = [(value, None)]
    while stack:
        name, reader = stack[-1]
        node = graph.producers.get(name)
        if name in maps:
            stack.pop()
        elif node is None:
            raise NoMatch(input_reason(graph, name, reader))
        elif op(node) in AFFINE:
            maps[name] = node
        else:
            read = variables(graph, node, where, functions)
            missing = [n for n in read if n not in maps]
            stack.extend((n, node) for n in reversed(missing))
            if not missing:
                maps[name] = common_map(node, [maps[n] for n in read])
                nodes.append(node)
        if len(stack) > MOST_NODES or len(nodes) > MOST_NODES:
            raise NoMatch(f"it is computed by more than {MOST_NODES} nodes")
    return Region(maps[value], tuple(nodes), value)


def common_map(node: NodeProto, maps: list[NodeProto]) -> NodeProto:
    """The affine map from which all values that a node reads come."""
    if not maps:
        raise NoMatch("it is a constant")
    others = [other for other in maps if other is not maps[0]]
    if not others:
        return maps[0]
    both = " and ".join(f"{op(n)} '{label(n)}'" for n in (maps[0], others[0]))
    if op(node) == "Mul":
        raise NoMatch(f"it is a gated pair, a product of values of {both}: not merged yet")
    raise NoMatch(f"it mixes values of {both}")


def input_reason(graph: Graph, name: str, reader: NodeProto | None) -> str:
    """Why a value that no node computes ends a region."""
    if reader is None or is_product(graph, reader):
        return f"'{name}', which it reads, is an input of the graph"
    return f"{op(reader)} '{label(reader)}' reads '{name}', which is an input of the graph"


def variables(graph: Graph, node: NodeProto, where: str, functions: bool = False) -> list[str]:
    """The values of a region that a node reads; NoMatch if the node cannot be in one."""
    if op(node) in TRANSPARENT:
        check_transparent(graph, node)
    elif op(node) not in (ARITHMETIC | FUNCTIONS if functions else ARITHMETIC):
        raise NoMatch(why_not_inside(node, where))
    check_not_overridable(graph, node)
    found = [name for name in node.input if name and not graph.is_constant(name)]
    if op(node) in TRANSPARENT:
        return [node.input[0]]
    if op(node) == "Reshape":
        return [node.input[0]]
    one_value = {*ONE_VALUE, *ACTIVATION_OPERATORS} if functions else {*ONE_VALUE, "Div"}
    fixed = node.input[1:] if op(node) in one_value else ()
    if any(name in found for name in fixed):
        raise NoMatch(why_not_inside(node, where))
    return found


def is_product(graph: Graph, node: NodeProto) -> bool:
    """Whether a node multiplies two values that are not constants, or squares one."""
    if is_square(graph, node):
        return True
    return op(node) == "Mul" and not any(graph.is_constant(name) for name in node.input)


def starts_layer(graph: Graph, node: NodeProto) -> bool:
    """Whether a node looks like the activation of a layer, or like the first node of one."""
    if is_lone_square(graph, node):
        return True
    if op(node) in {*ACTIVATION_OPERATORS, "Max", "Min"} or is_power(graph, node):
        return all(reaches_map(graph, node, forwards) for forwards in (False, True))
    if op(node) == "Identity":
        return joins_maps(graph, node)
    compares = op(node) in COMPARISONS
    if not compares and not is_product(graph, node):
        return False
    if is_square(graph, node) or is_averaged(graph, node):
        return False
    try:
        region_behind(graph, node.output[0], "", functions=compares)
    except NoMatch:
        return False
    return True


def joins_maps(graph: Graph, node: NodeProto) -> bool:
    """Whether nothing but constants stands between a node and the affine maps around it.

    Of several such nodes in a row the first answers for all.
    """
    before = graph.producers.get(node.input[0])
    if before is None or op(before) == op(node):
        return False
    try:
        value, _ = next_map(graph, node, "")
        return all(is_step(graph, inner) for inner in region_behind(graph, value, "").nodes)
    except NoMatch:
        return False


def is_power(graph: Graph, node: NodeProto) -> bool:
    """Whether a node raises a value to a constant power other than 1 and 2."""
    if op(node) != "Pow" or graph.is_constant(node.input[0]):
        return False
    return graph.is_constant(node.input[1]) and not any(
        has_exponent(graph, node, power) for power in (1, 2)
    )


def reaches_map(graph: Graph, node: NodeProto, forwards: bool) -> bool:
    """Whether an affine map stands behind or before a node, with no convolution in between."""
    pending, seen = [node], {node.output[0]}
    for _ in range(MOST_NODES):
        if not pending:
            return False
        current = pending.pop(0)
        if forwards:
            near = [n for name in current.output for n in graph.consumers.get(name, ())]
        else:
            near = [graph.producers[name] for name in current.input if name in graph.producers]
        for other in near:
            if op(other) in AFFINE and any(map(graph.is_constant, other.input[:2])):
                return True
            if op(other) not in CONVOLUTIONS and other.output and other.output[0] not in seen:
                seen.add(other.output[0])
                pending.append(other)
    return False


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
        inner = [user for user in users if op(user) in ARITHMETIC | TRANSPARENT | FUNCTIONS]
        if not inner:
            raise NoMatch(why_not_inside(users[0], where))
        variables(graph, inner[0], where, functions=True)
        value = inner[0].output[0]
    raise NoMatch(f"no affine map follows within {MOST_NODES} nodes")


def check_closed(graph: Graph, region: Region, second: NodeProto) -> None:
    """Refuse a region with a value that something else reads, too."""
    for node in (region.first, *region.nodes):
        value = node.output[0]
        if value in graph.outputs:
            raise NoMatch(f"'{value}' inside it is an output of the graph")
        for user in graph.consumers.get(value, ()):
            inside = region.holds(user) or (value == region.value and user is second)
            if not inside and not asks_other_axes(graph, user):
                raise NoMatch(f"'{value}' inside it is also read by {op(user)} '{label(user)}'")


@dataclass(frozen=True, eq=False)
class Parts:
    """A region in three parts: constants before the core, the core, constants after it."""

    before: tuple[NodeProto, ...]
    core: tuple[NodeProto, ...]
    after: tuple[NodeProto, ...]
    argument: str
    """The value of which the core is a function."""
    value: str
    """The value that the core computes."""


def parts_of(graph: Graph, region: Region) -> Parts:
    """Cut the steps that read one value and constants off both ends of a region."""
    argument, value = region.first.output[0], region.value
    before: list[NodeProto] = []
    after: list[NodeProto] = []
    while len(users := users_inside(region, argument)) == 1 and is_step(graph, users[0]):
        before.append(users[0])
        argument = users[0].output[0]
    while value != argument and is_step(graph, node := graph.producers[value]):
        value = step_input(graph, node)
        after.append(node)
        if len(users_inside(region, value)) > 1:
            value = after.pop().output[0]
            break
    taken = [*before, *after]
    core = tuple(n for n in region.nodes if not any(n is other for other in taken))
    return Parts(tuple(before), core, tuple(reversed(after)), argument, value)


def users_inside(region: Region, value: str) -> list[NodeProto]:
    """The nodes of a region that read a value."""
    return [node for node in region.nodes if value in node.input]


def is_step(graph: Graph, node: NodeProto) -> bool:
    """Whether a node reads one value, once, and at most scales and shifts it."""
    return op(node) in TRANSPARENT | {"Reshape"} or scaled_input(graph, node) is not None


def step_input(graph: Graph, node: NodeProto) -> str:
    """The value that a step reads."""
    return scaled_input(graph, node) or node.input[0]
