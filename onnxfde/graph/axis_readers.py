"""Nodes that sum over units, and what follows them directly.

Conv | Gemm | MatMul [→ Add]  →  [BatchNormalization | Mul | Add | …]  →  [Add with a shortcut]
W φ + b                          made = scale · (W φ + b) + shift         the sum
"""

from __future__ import annotations

import math

import numpy as np

from onnxfde.graph.affine_maps import Line, NoMatch, line_with, normalization_steps
from onnxfde.graph.axes import Port, Reader, Sum
from onnxfde.graph.axis_steps import Spot, Step
from onnxfde.graph.model import Graph
from onnxfde.graph.nodes import attributes, op
from onnxfde.graph.protos import NodeProto
from onnxfde.graph.subgraph import values_after
from onnxfde.graph.weight_matrices import (
    Product,
    array_at,
    bias_vector,
    only_reader,
    product_of,
    shape_at,
    weight_matrix,
)
from onnxfde.numbers import FloatArray, Indices

SCALING = {"Mul", "Add", "Sub", "Div"}
"""Operators that scale or shift a value if the other one is a constant."""


def reader_of(step: Step) -> Reader:
    """The reader that a Conv, Gemm or MatMul is; NoMatch if it does not sum over the units."""
    graph, node, spot = step.graph, step.node, step.spot
    product = product_of(graph, node, spot.rank)
    if spot.axis != (1 if op(node) == "Conv" else spot.rank - 1):
        raise NoMatch(f"{step.named} does not sum over the channels")
    expected = step.number_of_entries(spot)
    if product.inputs != expected or (op(node) == "Conv" and spot.block != 1):
        raise NoMatch(
            f"{step.named} reads {product.inputs} numbers where the channels have {expected}"
        )
    scale, shift, made = constants_behind(graph, product)
    return Reader(
        node=node,
        value=node.input[0],
        weight=Port(node, 1, product.columns.dim, spot.inner),
        columns=columns_of(graph, node, spot, step.units),
        made=made,
        scale=scale,
        shift=shift,
        bias=product.bias,
        added=sum_behind(graph, made, node.input[0]),
        padded=is_padded(graph, node),
    )


def columns_of(graph: Graph, node: NodeProto, spot: Spot, units: int) -> Indices:
    """For each unit, its columns in the weight as a matrix."""
    if op(node) != "Conv":
        return spot.entries(units)
    window = math.prod(shape_at(graph, node, 1)[2:])
    return np.arange(units * window).reshape(units, window)


def constants_behind(graph: Graph, product: Product) -> tuple[FloatArray, FloatArray, str]:
    """The factors and terms that follow a product directly, and the value that they make."""
    scale, shift, value = np.ones(product.outputs), np.zeros(product.outputs), product.value
    spot = Spot(product.rank, product.axis)
    while (node := only_reader(graph, value)) is not None:
        line = unit_line(graph, node, spot, product.outputs)
        if line is None:
            break
        scale, shift, value = line[0] * scale, line[0] * shift + line[1], node.output[0]
    return scale, shift, value


def unit_line(graph: Graph, node: NodeProto, spot: Spot, units: int) -> Line | None:
    """A factor and a term for each unit, if a node does no more than that to its one value."""
    if op(node) == "Identity":
        return np.ones(units), np.zeros(units)
    if op(node) == "Neg":
        return -np.ones(units), np.zeros(units)
    if op(node) == "BatchNormalization" and spot.axis == 1 and spot.block == 1:
        try:
            (_, shift), (factor, term) = normalization_steps(graph, node, units)
        except NoMatch:
            return None
        return factor, factor * shift + term
    constants = [i for i, name in enumerate(node.input) if graph.is_constant(name)]
    if op(node) not in SCALING or len(constants) != 1 or (op(node) == "Div" and constants == [0]):
        return None
    a = per_unit(array_at(graph, node, constants[0]), spot, units)
    return None if a is None else line_with(op(node), a, constants == [1])


def per_unit(a: FloatArray, spot: Spot, units: int) -> FloatArray | None:
    """A constant that meets a value, as one number for each unit; None if it has others."""
    if a.ndim > spot.rank or spot.block != 1:
        return None
    lengths = [1] * (spot.rank - a.ndim) + list(a.shape)
    along = lengths.pop(spot.axis)
    if any(length != 1 for length in lengths) or along not in (1, units):
        return None
    return np.array(np.broadcast_to(a.ravel(), units))


def sum_behind(graph: Graph, made: str, units: str) -> Sum | None:
    """The sum of a reader's result and of a value of the same shape that is not made from units."""
    node = only_reader(graph, made)
    if node is None or op(node) not in ("Add", "Sum") or len(node.input) != 2:
        return None
    other = node.input[1 if node.input[0] == made else 0]
    if graph.is_constant(other) or other in graph.overridable or not alike(graph, made, other):
        return None
    return None if other in values_after(graph, units) else Sum(node.output[0], other)


def alike(graph: Graph, first: str, second: str) -> bool:
    """Whether two values have the same shape, as far as that is known."""
    one, other = graph.shape(first), graph.shape(second)
    if one is None or other is None or len(one) != len(other):
        return False
    return all(may_be_equal(a, b) for a, b in zip(one, other, strict=True))


def may_be_equal(a: int | str | None, b: int | str | None) -> bool:
    """Whether two lengths are the same, or one is not known and the other not 1."""
    unknown = not isinstance(a, int) or not isinstance(b, int)
    return a == b or (unknown and 1 not in (a, b))


def is_padded(graph: Graph, node: NodeProto) -> bool:
    """Whether windows of a node may reach beyond the border of what it reads."""
    if op(node) != "Conv":
        return False
    options = attributes(node)
    if options.get("auto_pad", b"NOTSET") in (b"SAME_UPPER", b"SAME_LOWER"):
        return any(length > 1 for length in shape_at(graph, node, 1)[2:])
    return any(options.get("pads", ()))


def reader_matrix(graph: Graph, reader: Reader) -> FloatArray:
    """The weight of a reader, outputs × columns."""
    return weight_matrix(graph, reader.node)


def reader_bias(graph: Graph, reader: Reader) -> FloatArray:
    """The bias of a reader, in front of what scales and shifts its result."""
    outputs = len(weight_matrix(graph, reader.node))
    return bias_vector(graph, reader.node, reader.bias, outputs)
