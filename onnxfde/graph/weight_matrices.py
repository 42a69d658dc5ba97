"""Conv, Gemm and MatMul as one matrix and one bias: o = W φ + b, at each position of the output.

Conv (one group)   weight O × C × k × …   W: O × (C·k·…), the window of one channel side by side
Gemm               alpha·A·B + beta·C     W: alpha·B or its transpose, b: beta·C
MatMul [→ Add]     A·B + C                W: Bᵀ; the bias is in an Add behind it
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from onnxfde.graph.affine_maps import NoMatch, overridable_reason
from onnxfde.graph.axes import Port
from onnxfde.graph.model import Constant, Graph
from onnxfde.graph.nodes import attributes, label, op
from onnxfde.graph.protos import NodeProto
from onnxfde.numbers import ROUNDOFF, FloatArray

PRODUCTS = {"Conv", "Gemm", "MatMul"}
"""Operators that sum over windows of what they read, with a constant weight as second input."""
LEAST_CONV_RANK = 3
"""Axes of a Conv's weight: outputs, inputs, and at least one of space."""


class Product(NamedTuple):
    """Where a product has its weight, and the value with its bias."""

    rows: Port
    columns: Port
    outputs: int
    inputs: int
    bias: Port | None
    value: str
    rank: int
    """How many axes the value has."""
    axis: int
    """The axis of the value that counts outputs."""


def product_of(graph: Graph, node: NodeProto, rank: int | None = None) -> Product:
    """How a node multiplies; NoMatch says why its weights cannot be read or changed.

    `rank` is the number of axes of what it reads, where the caller knows that.
    """
    check_attributes(node)
    weight = float_constant(graph, node, 1, "weight")
    shape = weight.values.shape
    if op(node) == "Conv":
        if weight.values.ndim < LEAST_CONV_RANK:
            raise NoMatch(f"the weight of Conv '{label(node)}' has the shape {shape}")
        bias = own_bias(graph, node, shape[0])
        rows, columns = Port(node, 1, 0), Port(node, 1, 1)
        ends = node.output[0], weight.values.ndim, 1
        return Product(rows, columns, shape[0], shape[1], bias, *ends)
    if weight.values.ndim != 2:
        raise NoMatch(f"the weight of '{label(node)}' is not a matrix but {shape}")
    across = 0 if attributes(node).get("transB", 0) and op(node) == "Gemm" else 1
    ports = Port(node, 1, across), Port(node, 1, 1 - across), shape[across], shape[1 - across]
    if op(node) == "Gemm":
        return Product(*ports, own_bias(graph, node, shape[across]), node.output[0], 2, 1)
    rank = rank or graph.rank(node.input[0])
    if rank is None or rank < 2:
        raise NoMatch(f"the rank of what MatMul '{label(node)}' reads is not known to be 2 or more")
    bias = added_constant(graph, node.output[0], rank, shape[1])
    value = node.output[0] if bias is None else bias.node.output[0]
    return Product(*ports, bias, value, rank, rank - 1)


def check_attributes(node: NodeProto) -> None:
    """Refuse products with several groups, and a Gemm that transposes what it reads."""
    if op(node) == "Conv" and attributes(node).get("group", 1) != 1:
        raise NoMatch(f"Conv '{label(node)}' has several groups")
    if op(node) == "Gemm" and attributes(node).get("transA", 0):
        raise NoMatch(f"Gemm '{label(node)}' transposes its activation (transA)")


def float_constant(graph: Graph, node: NodeProto, place: int, what: str) -> Constant:
    """A constant input with floating-point numbers; NoMatch if it is something else."""
    name = node.input[place]
    if name in graph.overridable:
        raise NoMatch(overridable_reason(name))
    found = graph.constant(name)
    if found is None:
        raise NoMatch(f"the {what} of {op(node)} '{label(node)}' is not a constant")
    if found.values.dtype.name not in ROUNDOFF:
        raise NoMatch(f"the {what} of '{label(node)}' is not a floating-point tensor")
    if not found.values.size or not np.isfinite(found.values).all():
        raise NoMatch(f"the {what} of '{label(node)}' is empty, or not finite")
    return found


def own_bias(graph: Graph, node: NodeProto, outputs: int) -> Port | None:
    """The bias that is the third input of a Conv or Gemm."""
    if len(node.input) < 3 or not node.input[2]:
        return None
    shape = float_constant(graph, node, 2, "bias").values.shape
    if not is_row(shape, outputs):
        raise NoMatch(f"the bias of '{label(node)}' of shape {shape} is not one value per output")
    return Port(node, 2, max(len(shape) - 1, 0))


def is_row(shape: tuple[int, ...], outputs: int) -> bool:
    """Whether a constant of this shape has one value per output, or one for all."""
    return all(length == 1 for length in shape[:-1]) and shape[-1:] in ((), (1,), (outputs,))


def added_constant(graph: Graph, value: str, rank: int, outputs: int) -> Port | None:
    """The Add behind a MatMul that holds its bias."""
    node = only_reader(graph, value)
    if node is None or op(node) != "Add":
        return None
    places = [i for i, name in enumerate(node.input) if graph.is_constant(name)]
    found = graph.constant(node.input[places[0]]) if len(places) == 1 else None
    if found is None or found.values.ndim > rank or not is_row(found.values.shape, outputs):
        return None
    return Port(node, places[0], max(found.values.ndim - 1, 0))


def only_reader(graph: Graph, value: str) -> NodeProto | None:
    """The node that reads a value, if nothing else does, and it does so once and not in a body."""
    users = graph.consumers.get(value, [])
    if value in graph.outputs or len(users) != 1 or list(users[0].input).count(value) != 1:
        return None
    return users[0] if graph.uses(value) == 1 else None


def weight_matrix(graph: Graph, node: NodeProto) -> FloatArray:
    """W, outputs × columns."""
    weight, options = array_at(graph, node, 1), attributes(node)
    if op(node) == "Conv":
        return weight.reshape(len(weight), -1)
    if op(node) == "MatMul":
        return weight.T
    return float(options.get("alpha", 1.0)) * (weight if options.get("transB", 0) else weight.T)


def as_weight(graph: Graph, node: NodeProto, matrix: FloatArray) -> FloatArray:
    """A matrix as the weight of a node, with alpha = 1."""
    if op(node) == "Conv":
        window = shape_at(graph, node, 1)[2:]
        return matrix.reshape(len(matrix), -1, *window)
    return matrix if op(node) == "Gemm" and attributes(node).get("transB", 0) else matrix.T


def bias_vector(graph: Graph, node: NodeProto, bias: Port | None, outputs: int) -> FloatArray:
    """b, one number for each output."""
    if bias is None:
        return np.zeros(outputs)
    factor = attributes(node).get("beta", 1.0) if op(node) == "Gemm" else 1.0
    stored = array_at(graph, bias.node, bias.place)
    return np.array(factor * np.broadcast_to(stored.ravel(), outputs))


def shape_at(graph: Graph, node: NodeProto, place: int) -> tuple[int, ...]:
    """The shape of a constant input."""
    found = graph.constant(node.input[place])
    assert found is not None
    return found.values.shape


def array_at(graph: Graph, node: NodeProto, place: int) -> FloatArray:
    """A constant input in float64."""
    found = graph.constant(node.input[place])
    assert found is not None
    return found.array
