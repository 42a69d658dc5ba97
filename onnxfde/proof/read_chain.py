"""Reading a graph backwards from a value, as far as affine maps and squares reach.

    base → F_1 → x² → F_2 → … → F_r → value       features along `rows` or `columns`

A *curved* chain goes on through every activation of the table, in any of its spellings.

A chain begins and ends with a Gemm or MatMul. Constant factors and terms, BatchNormalization,
Identity, Dropout, Cast and a Flatten that keeps the features become part of the maps, and so does
what completes the square of a polynomial (`polynomial_steps`). A *joint* is a value between two
Gemm or MatMul nodes with no square between them: where two graphs share one, they are compared
there.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from onnxfde.graph.activation_patterns import is_square
from onnxfde.graph.affine_maps import ELEMENTWISE, Layout, Line, NoMatch, affine, lines_of
from onnxfde.graph.core_functions import CoreReader
from onnxfde.graph.inner_nodes import (
    AFFINE,
    TRANSPARENT,
    check_transparent,
    dropout_may_train,
    scaled_input,
)
from onnxfde.graph.match import activation_input
from onnxfde.graph.model import Graph
from onnxfde.graph.nodes import attributes, op
from onnxfde.graph.protos import NodeProto
from onnxfde.graph.regions import (
    FUNCTIONS,
    Region,
    is_power,
    is_product,
    parts_of,
    region_behind,
)
from onnxfde.graph.reshapes import check_reshapes
from onnxfde.graph.tensors import FLOATS
from onnxfde.neurons.polynomial_activations import SQUARE
from onnxfde.proof.affine_bounds import Map
from onnxfde.proof.chains import Chain, features_read, restart_chain
from onnxfde.proof.hidden_functions import HiddenFunction, hidden_function
from onnxfde.proof.node_signatures import Signature, node_signature, nodes_signature
from onnxfde.proof.polynomial_steps import PolynomialStep, polynomial_step

MOST_CURVED_WEIGHTS = 2**24
"""Weights after which a curved chain ends where it is: all of them are held in float64. Chosen to
bound the memory; not tuned."""
COMPUTED = {"BatchNormalization", "Div"}
"""Operators whose factors are computed from their constants."""
FACTOR_STEPS = 4
"""Roundings in computing a factor: those of scale / √(var + ε) in a BatchNormalization, and one."""


def may_be_curved(graph: Graph, value: str) -> bool:
    """Whether a chain may have other functions than squares, told from its nodes alone."""
    while step := one_back(graph, value, curved=True):
        part, value = step
        if isinstance(part, Region):
            other = any(op(node) in FUNCTIONS or is_power(graph, node) for node in part.nodes)
            if other or sum(is_product(graph, node) for node in part.nodes) > 1:
                return True
    return False


def read_chain(graph: Graph, value: str, stop: str = "", curved: bool = False) -> Chain | None:
    """The longest chain that ends in a value and starts no earlier than `stop`, if there is one."""
    steps: list[tuple[NodeProto | Region, str]] = []
    room = MOST_CURVED_WEIGHTS
    while value != stop and (step := one_back(graph, value, curved)):
        steps.append((step[0], value))
        value = step[1]
        room -= weights_in(graph, step[0])
        if curved and room < 0 and stop == "":
            break
    chain = Chain(value)
    for part, made in reversed(steps):
        try:
            if isinstance(part, Region):
                (append_function if curved else append_polynomial)(graph, chain, part)
            else:
                append_node(graph, chain, part)
        except NoMatch:
            chain = Chain(made)
    if chain.current is None or chain.lead == ():
        return None
    chain.close_map(chain.current)
    return chain


def weights_in(graph: Graph, part: NodeProto | Region) -> int:
    """How many weights a Gemm or MatMul has, as far as it is quickly known."""
    if isinstance(part, Region) or op(part) not in AFFINE:
        return 0
    stored = [graph.initializers[name] for name in part.input[:2] if name in graph.initializers]
    return sum(math.prod(tensor.dims) for tensor in stored)


def one_back(
    graph: Graph, value: str, curved: bool = False
) -> tuple[NodeProto | Region, str] | None:
    """The node, polynomial or function that computes a value, and the value it reads."""
    node = graph.producers.get(value)
    if node is None or value != node.output[0] or graph.is_constant(value):
        return None
    if op(node) in TRANSPARENT | {"Cast"} or (is_square(graph, node) and not curved):
        return node, node.input[0]
    if op(node) in AFFINE:
        constants = [graph.is_constant(name) for name in node.input[:2]]
        if constants in ([False, True], [True, False]):
            return node, node.input[constants.index(False)]
        return None
    read = scaled_input(graph, node)
    if read is not None:
        return node, read
    try:
        region = region_behind(graph, value, "", functions=curved)
    except NoMatch:
        return (node, node.input[0]) if is_square(graph, node) else None
    return region, region.first.output[0]


def append_polynomial(graph: Graph, chain: Chain, region: Region) -> None:
    """Add a polynomial: β to the map before its square, a and c − a·β² to the map after it."""
    if chain.current is None or chain.layout is None:
        raise NoMatch("no affine map before the polynomial")
    step = polynomial_step(graph, region, len(chain.current.weight), chain.layout)
    chain.made_of = (*chain.made_of, region_signature(graph, region))
    chain.current = step.shifted(chain.current)
    if step.squares:
        chain.bend(chain.current, HiddenFunction(SQUARE), "")
        chain.pending = [step]
    else:
        chain.computed.append(region.value)


def append_function(graph: Graph, chain: Chain, region: Region) -> None:
    """Add an activation of the table, or a polynomial of degree 2."""
    if chain.current is None or chain.layout is None or chain.dtype is None:
        raise NoMatch("no affine map before the activation")
    parts = parts_of(graph, region)
    if not parts.core:
        for node in parts.before:
            append_node(graph, chain, node)
        return
    reader = CoreReader(graph, parts, len(chain.current.weight), chain.layout, chain.dtype)
    core = reader.function()
    if core.polynomial is not None:
        append_polynomial(graph, chain, region)
        return
    for node in parts.before:
        append_node(graph, chain, node)
    if core.bias is not None:
        chain.current = chain.current.scaled(np.ones(len(core.bias)), core.bias)
    made_of = nodes_signature(graph, parts.argument, parts.core)
    chain.made_of = (*chain.made_of, made_of)
    function = hidden_function(graph, parts, core, len(chain.current.weight))
    if not chain.current.finite:
        raise NoMatch("a weight is NaN or infinite")
    chain.bend(chain.current, function, parts.value)
    for node in parts.after:
        append_node(graph, chain, node)


def append_node(graph: Graph, chain: Chain, node: NodeProto) -> None:
    """Add one node to a chain; NoMatch if the chain cannot go on."""
    if is_square(graph, node):
        if chain.current is None:
            raise NoMatch("no affine map before the square")
        chain.bend(chain.current, HiddenFunction(SQUARE), node.output[0])
    elif op(node) in AFFINE:
        append_map(graph, chain, node)
    elif op(node) in ELEMENTWISE:
        append_constants(graph, chain, node)
    elif op(node) == "Reshape":
        append_reshape(graph, chain, node)
    elif op(node) == "Cast":
        if attributes(node)["to"] not in FLOATS:
            raise NoMatch("a cast to integers")
    else:
        check_transparent(graph, node)
        chain.flattened |= op(node) == "Flatten"
        if chain.flattened and (chain.layout == "columns" or chain.lead is not None):
            raise NoMatch("a Flatten mixes features with other axes")


def append_reshape(graph: Graph, chain: Chain, node: NodeProto) -> None:
    """Add a Reshape that leaves the features where they are."""
    features = features_read(chain)
    if features is None or chain.layout is None or chain.flattened:
        raise NoMatch("a Reshape of a value whose features are not known")
    check_reshapes(graph, [node], features, chain.layout)
    constant = graph.constant(node.input[1])
    lengths = () if constant is None else tuple(constant.values.ravel().tolist())[:-1]
    known = lengths[:1] == (-1,) and all(length > 0 for length in lengths[1:])
    chain.lead = lengths if known else ()


def append_map(graph: Graph, chain: Chain, node: NodeProto) -> None:
    """Add a Gemm or MatMul."""
    read = affine(graph, node)
    source = activation_input(node, read.layout)
    if chain.layout not in (None, read.layout) or (chain.flattened and read.layout == "columns"):
        restart_chain(chain, source)
    chain.layout, chain.dtype = read.layout, read.dtype
    options = attributes(node)
    scaled = any(options.get(name, 1.0) != 1.0 for name in ("alpha", "beta"))
    plain = Map(read.weight, read.bias, steps=int(scaled))
    try:
        new = with_constants_before(graph, plain, chain.pending, read.layout)
    except NoMatch:
        restart_chain(chain, source)
        new = plain
    if features_read(chain) not in (None, new.weight.shape[1]):
        restart_chain(chain, source)
        new = plain
    if chain.current is not None:
        width = plain.weight.shape[1]
        chain.joints += [(len(chain.maps), name, width) for name in chain.computed]
    factors = [signature_of(graph, factor) for factor in chain.pending]
    chain.made_of = (*chain.made_of, *factors, node_signature(graph, node))
    chain.current = new if chain.current is None else chain.current.then(new)
    if not chain.current.finite:
        raise NoMatch("a weight is NaN or infinite")
    chain.pending, chain.computed = [], [node.output[0]]


def with_constants_before(
    graph: Graph, after: Map, pending: Sequence[NodeProto | PolynomialStep], layout: Layout
) -> Map:
    """A map together with the factors and terms before it."""
    for step in reversed(pending):
        if isinstance(step, PolynomialStep):
            after = step.preceding(after)
            continue
        for line in reversed(constants_of(graph, step, after.weight.shape[1], layout)):
            after = after.preceded(*line)
        more = FACTOR_STEPS if op(step) in COMPUTED else 0
        after = replace(after, steps=after.steps + more)
    return after


def append_constants(graph: Graph, chain: Chain, node: NodeProto) -> None:
    """Add factors or terms to the map before them, or else to the map that will follow."""
    if op(node) == "Div" and graph.is_constant(node.input[0]):
        raise NoMatch("a division by a value")
    if chain.current is None:
        chain.pending.append(node)
        return
    assert chain.layout is not None
    for line in constants_of(graph, node, len(chain.current.weight), chain.layout):
        chain.current = chain.current.scaled(*line)
    more = FACTOR_STEPS if op(node) in COMPUTED else 0
    chain.current = replace(chain.current, steps=chain.current.steps + more)
    chain.made_of = (*chain.made_of, node_signature(graph, node))
    chain.computed.append(node.output[0])


def constants_of(graph: Graph, node: NodeProto, features: int, layout: Layout) -> tuple[Line, ...]:
    """Factors and terms of a node, all of them finite."""
    found = lines_of(graph, node, features, layout)
    if not all(np.isfinite(a).all() for line in found for a in line):
        raise NoMatch("a constant is not a number")
    return found


def signature_of(graph: Graph, step: NodeProto | PolynomialStep) -> Signature:
    """What a node or a polynomial before a map does."""
    if isinstance(step, PolynomialStep):
        return region_signature(graph, step.region)
    return node_signature(graph, step)


def region_signature(graph: Graph, region: Region) -> Signature:
    """What the nodes of a region do."""
    return nodes_signature(graph, region.first.output[0], region.nodes)


def skip_idle_nodes(graph: Graph, value: str) -> str:
    """The value before a series of nodes that do nothing at inference."""
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
