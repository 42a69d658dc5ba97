"""Products as a quantizer needs them: y = x·W + b, with W and b constant and used in one way only.

alpha·x·Wᵀ + beta·b becomes x·(alpha·W)ᵀ + (beta·b): constants are multiplied out and rounded once.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from onnxfde.graph.model import Graph
from onnxfde.graph.nodes import attributes, names_used, op
from onnxfde.graph.protos import ModelProto, NodeProto
from onnxfde.graph.renaming import parts
from onnxfde.graph.tensors import FLOATS, make_tensor, to_array
from onnxfde.numbers import Array

CHANNELS = {"Conv": 0, "ConvTranspose": 1, "Gemm": 1, "MatMul": 1}
"""Operators with weights, and which axis of the weight belongs to the outputs."""


def products(model: ModelProto) -> list[NodeProto]:
    """The nodes with weights."""
    return [node for node in model.graph.node if op(node) in CHANNELS]


def bias_of(node: NodeProto) -> str:
    """The bias of a Gemm; nothing for other nodes."""
    return node.input[2] if op(node) == "Gemm" and len(node.input) > 2 else ""


class Use(NamedTuple):
    """How a node reads a weight."""

    channels: int
    transposed: bool = False
    factor: float = 1.0


def use_of(node: NodeProto) -> Use:
    """How a node with a weight reads it."""
    channels = CHANNELS[op(node)]
    if op(node) != "Gemm":
        return Use(channels)
    options = attributes(node)
    return Use(channels, bool(options.get("transB", 0)), options.get("alpha", 1.0))


def readings(graph: Graph) -> dict[str, set[Use | None]]:
    """How each value is read; None stands for reading it other than as a weight."""
    found: dict[str, set[Use | None]] = {name: {None} for name in graph.outputs}
    for node in graph.model.graph.node:
        weighted = op(node) in CHANNELS
        for place, name in enumerate(names_used(node)):
            use = use_of(node) if weighted and place == 1 else None
            found.setdefault(name, set()).add(use)
    return found


def settle(model: ModelProto) -> None:
    """Remove alpha, beta and transB of Gemm, and split weights that are read in several ways.

    The quantizer keeps one set of scales for each weight, and transposes a weight for all nodes
    that read it, also in bodies.
    """
    inner = [node for part in parts(model.graph) for node in part.node if part is not model.graph]
    settle_nodes(model, products(model))
    settle_nodes(model, [node for node in inner if op(node) == "Gemm"])
    drop_unread(model)


def settle_nodes(model: ModelProto, nodes: list[NodeProto]) -> None:
    """Give each of these nodes a weight stored the way it reads it."""
    graph = Graph(model)
    read, made = readings(graph), dict[tuple[str, Use], str]()
    values = {node.input[1]: floats(graph, node.input[1]) for node in nodes}
    for node in nodes:
        name, use = node.input[1], use_of(node)
        weight = values[name]
        if weight is None:
            continue
        if (name, use) not in made:
            made[name, use] = name if read[name] == {use} else unused(model, name)
            scaled = weight.T if use.transposed else weight
            store(model, made[name, use], times(scaled, use.factor))
        node.input[1] = made[name, use]
        if op(node) == "Gemm":
            drop_attributes(node, {"alpha", "transB"})
            settle_bias(graph, node, weight.shape[0 if use.transposed else 1])


def unused(model: ModelProto, alias: str) -> str:
    """A name for another version of an initializer."""
    return f"{alias}_{len(model.graph.initializer)}"


def settle_bias(graph: Graph, node: NodeProto, columns: int) -> None:
    """Multiply a constant bias by beta, and make it a vector if it is the same in all rows."""
    if not bias_of(node):
        del node.input[2:]
        drop_attributes(node, {"beta"})
        return
    bias, beta = floats(graph, bias_of(node)), attributes(node).get("beta", 1.0)
    if bias is None:
        return
    drop_attributes(node, {"beta"})
    flat = np.broadcast_to(bias.ravel(), columns) if bias.size in (1, columns) else bias
    fits = bias.ndim < 2 or bias.shape[0] == 1
    if beta != 1 or (fits and bias.shape != (columns,)):
        own = unused(graph.model, node.input[2])
        store(graph.model, own, times(flat if fits else bias, beta))
        node.input[2] = own


def floats(graph: Graph, name: str) -> Array | None:
    """The values of a constant initializer of floating-point type."""
    tensor = graph.initializers.get(name)
    if tensor is None or tensor.data_type not in FLOATS or name in graph.overridable:
        return None
    return to_array(tensor, None)


def times(values: Array, factor: float) -> Array:
    """Values times a factor, rounded once."""
    return values if factor == 1 else (values.astype(np.float64) * factor).astype(values.dtype)


def store(model: ModelProto, name: str, values: Array) -> None:
    """Add or replace an initializer."""
    found = [tensor for tensor in model.graph.initializer if tensor.name == name]
    target = found[0] if found else model.graph.initializer.add()
    target.CopyFrom(make_tensor(name, values))


def drop_unread(model: ModelProto) -> None:
    """Remove the initializers that nothing reads any more."""
    read = {name for node in model.graph.node for name in names_used(node)}
    read |= {value.name for value in (*model.graph.input, *model.graph.output)}
    for tensor in [t for t in model.graph.initializer if t.name not in read]:
        model.graph.initializer.remove(tensor)


def drop_attributes(node: NodeProto, names: set[str]) -> None:
    """Leave attributes at their defaults."""
    kept = [a for a in node.attribute if a.name not in names]
    del node.attribute[:]
    node.attribute.extend(kept)
