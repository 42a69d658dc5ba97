"""How exporters write activations as single operators, and squares.

    square        Mul(x, x) | Pow(x, 2), unless it is averaged: then it is part of a normalization
    Relu, …       one operator of `ACTIVATION_OPERATORS`; its first input is the argument

`function_forms` knows the activations that take several nodes; `polynomials` reads the spellings
of a·x² + b·x + c. Every row of `neurons/activations.py` has a spelling in one of them.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx

from onnxfde.graph.affine_maps import NoMatch
from onnxfde.graph.model import Graph
from onnxfde.graph.nodes import attributes, is_standard, label, op
from onnxfde.graph.protos import NodeProto
from onnxfde.graph.stored_constants import PASS_THROUGH
from onnxfde.neurons.activation import Activation
from onnxfde.neurons.piecewise_activations import (
    ABS,
    HARD_SWISH,
    IDENTITY,
    PRELU,
    RELU,
    clip,
    hard_sigmoid,
    leaky_relu,
    thresholded_relu,
)
from onnxfde.neurons.smooth_activations import (
    ERF,
    GELU,
    MISH,
    SIGMOID,
    SIN,
    SOFTPLUS,
    SOFTSIGN,
    TANH,
    TANH_GELU,
    celu,
    elu,
    selu,
    silu,
)
from onnxfde.numbers import LARGEST

AVERAGES = {"GlobalAveragePool", "ReduceMean", "ReduceSum", "ReduceSumSquare"}
"""Operators that turn squares into a variance or a norm."""
CLIP_READS_LIMITS = 11
"""The opset since which Clip has its limits as inputs; before, they are attributes (ONNX)."""
DEFAULTS = {("com.microsoft.QuickGelu", "alpha"): float(np.float32(1.702))}
"""The numbers that operators of other domains take unless they say otherwise (onnxruntime)."""
WITH_BIAS = {
    "com.microsoft.BiasGelu": "Gelu",
    "com.microsoft.FastGelu": "FastGelu",
}
"""Activations that add their second input to the first one, and what they are without it."""


def is_square(graph: Graph, node: NodeProto) -> bool:
    """Mul(x, x) or Pow(x, 2), where the 2 adds no axes and makes none longer."""
    if len(node.input) != 2 or op(node) not in ("Mul", "Pow"):
        return False
    if op(node) == "Mul":
        return bool(node.input[0] == node.input[1]) and not graph.is_constant(node.input[0])
    exponent = graph.constant(node.input[1])
    if exponent is None or not exponent.values.size or not (exponent.array == 2).all():
        return False
    return keeps_shape(graph, node.input[0], exponent.values.shape)


def keeps_shape(graph: Graph, value: str, constant: tuple[int, ...]) -> bool:
    """Whether a value has the same shape after it has met a constant of this shape."""
    if len(constant) <= 1 and all(length == 1 for length in constant):
        return True
    shape = graph.shape(value) or ()
    fits = all(a in (1, b) for a, b in zip(reversed(constant), reversed(shape), strict=False))
    return len(constant) <= len(shape) and fits


def is_averaged(graph: Graph, node: NodeProto) -> bool:
    """Whether what a node computes is averaged, as squares are in a normalization."""
    pending = [node]
    while pending:
        users = graph.consumers.get(pending.pop().output[0], ())
        if any(op(user) in AVERAGES for user in users):
            return True
        pending.extend(user for user in users if op(user) in PASS_THROUGH)
    return False


def is_lone_square(graph: Graph, node: NodeProto) -> bool:
    """Whether a node squares a value that is not averaged then."""
    return is_square(graph, node) and not is_averaged(graph, node)


def attribute_number(graph: Graph, node: NodeProto, name: str) -> float:
    """A numeric attribute of a node; if it is not given, its default in the model's opset."""
    given = attributes(node)
    known = is_standard(node) and onnx.defs.has(node.op_type, graph.opset, "")
    if name not in given and known:
        schema = onnx.defs.get_schema(node.op_type, graph.opset)
        return float(schema.attributes[name].default_value.f)
    value = given.get(name, DEFAULTS.get((op(node), name)))
    if not isinstance(value, int | float):
        raise NoMatch(f"{op(node)} '{label(node)}' has no number {name}")
    return float(value)


def table_row(
    row: Activation | Callable[..., Activation], *names: str
) -> Callable[[Graph, NodeProto], Activation]:
    """What reads a row of the table from a node: the attributes that are its constants."""

    def read(graph: Graph, node: NodeProto) -> Activation:
        if isinstance(row, Activation):
            return row
        return row(*(attribute_number(graph, node, name) for name in names))

    return read


def gelu_of(graph: Graph, node: NodeProto) -> Activation:
    """Gelu, exact or by tanh."""
    way = attributes(node).get("approximate", b"none")
    return TANH_GELU if way == b"tanh" else GELU


def clip_of(graph: Graph, node: NodeProto) -> Activation:
    """Clip, whose limits are inputs or attributes; NoMatch if no number lies between them."""
    least, most = clip_limits(graph, node)
    if not least < most:
        raise NoMatch(f"Clip '{label(node)}' has limits with nothing between: {least:g}, {most:g}")
    return IDENTITY if np.isinf([least, most]).all() else clip(least, most)


def clip_limits(graph: Graph, node: NodeProto) -> tuple[float, float]:
    """The limits of a Clip; one that no number of the type exceeds is infinite."""
    if graph.opset < CLIP_READS_LIMITS:
        found, largest = attributes(node), LARGEST["float32"]
        least, most = float(found.get("min", -np.inf)), float(found.get("max", np.inf))
    else:
        constants = [graph.constant(name) if name else None for name in node.input[1:3]]
        if any(a is not None and a.values.size != 1 for a in constants):
            raise NoMatch(f"a limit of Clip '{label(node)}' is not a single number")
        limits = [None if a is None else a.array.item() for a in constants]
        limits += [None] * (2 - len(limits))
        kinds = [a.values.dtype.name for a in constants if a is not None]
        largest = LARGEST.get(kinds[0] if kinds else "float32", np.inf)
        least = -np.inf if limits[0] is None else limits[0]
        most = np.inf if limits[1] is None else limits[1]
    return -np.inf if least <= -largest else least, np.inf if most >= largest else most


ACTIVATION_OPERATORS: dict[str, Callable[[Graph, NodeProto], Activation]] = {
    "Relu": table_row(RELU),
    "LeakyRelu": table_row(leaky_relu, "alpha"),
    "PRelu": table_row(PRELU),
    "Abs": table_row(ABS),
    "Clip": clip_of,
    "ThresholdedRelu": table_row(thresholded_relu, "alpha"),
    "HardSigmoid": table_row(hard_sigmoid, "alpha", "beta"),
    "HardSwish": table_row(HARD_SWISH),
    "Sigmoid": table_row(SIGMOID),
    "Tanh": table_row(TANH),
    "Erf": table_row(ERF),
    "Softsign": table_row(SOFTSIGN),
    "Softplus": table_row(SOFTPLUS),
    "Elu": table_row(elu, "alpha"),
    "Selu": table_row(selu, "alpha", "gamma"),
    "Celu": table_row(celu, "alpha"),
    "Mish": table_row(MISH),
    "Gelu": gelu_of,
    "Swish": table_row(silu, "alpha"),
    "Sin": table_row(SIN),
    "com.microsoft.Gelu": table_row(GELU),
    "com.microsoft.BiasGelu": table_row(GELU),
    "com.microsoft.FastGelu": table_row(TANH_GELU),
    "com.microsoft.QuickGelu": table_row(silu, "alpha"),
}
"""The activation that an operator applies to its first input."""


def activation_of(graph: Graph, node: NodeProto) -> Activation | None:
    """The activation that a node applies to its first input, if its operator is one."""
    read = ACTIVATION_OPERATORS.get(op(node))
    return None if read is None else read(graph, node)


def added_bias(node: NodeProto) -> str:
    """The input that an activation adds to its argument, if there is one."""
    return node.input[1] if op(node) in WITH_BIAS and len(node.input) > 1 else ""
