"""A(x): a network evaluated on absolute values, the scale of its rounding errors.

Weights and inputs are replaced by their absolute values, and every operator by one whose result is
at least as large as the operator's own and as its steepest slope times A:

    sums, products, pools, moves     the same operator        x − y    A_x + A_y
    |f(x)| ≤ a·|x|, slope ≤ a        a·A
    sigmoid      log(1 + e^A) ≥ ½ + A/2 ≥ σ(A) + A/4
    softplus     log(1 + e^A) ≥ A
    elu, celu    2a·log(1 + e^A) ≥ a + a·A, a = max(1, |alpha|)
    softmax_i    log(1 + e^(A_i + L)), L = log Σ_j e^(A_j): at least 1, and at least the largest A_j

Two executions of the same algebra differ by a few u·A(x), u the unit roundoff.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import onnx

from onnxfde.graph.model import Graph
from onnxfde.graph.nodes import attributes, op
from onnxfde.graph.protos import ModelProto, NodeProto, TensorProto
from onnxfde.graph.tensors import FLOATS, copy_of, keyed_tensors, make_tensor, to_array
from onnxfde.neurons.smooth_activations import SELU_ALPHA, SELU_GAMMA, STEEPEST_GELU, STEEPEST_SILU

AXES_ARE_INPUTS = 18
"""The opset since which ReduceLogSumExp reads its axes as an input (ONNX)."""
SOFTMAX_HAS_ONE_AXIS = 13
"""The opset since which Softmax is over one axis; before, over all from `axis` on (ONNX)."""
SIGMOID_SLOPE = 0.25
"""The steepest HardSigmoid that log(1 + e^A) covers: the slope of the logistic function at 0."""
SIGMOID_SHIFT = 0.5
"""The largest value at 0 that it covers: that of the logistic function."""

SIGNED = "_onnxfde_signed"
"""What is added to the name of an external weight whose absolute values are computed in a run."""
WITH_ABS = (TensorProto.FLOAT, TensorProto.DOUBLE)
"""Floating-point types of which onnxruntime can compute absolute values."""
Nodes = list[NodeProto]
Absolute = Callable[[Graph, NodeProto], Nodes | None]


def made(kind: str, inputs: list[str], node: NodeProto, **options: Any) -> NodeProto:
    """A node in the place of another one."""
    return onnx.helper.make_node(kind, inputs, [node.output[0]], node.name, **options)


def same_magnitude(graph: Graph, node: NodeProto) -> Nodes:
    """The same operator, with absolute values for its numbers."""
    for attribute in node.attribute:
        if attribute.HasField("f"):
            attribute.f = abs(attribute.f)
        attribute.floats[:] = [abs(value) for value in attribute.floats]
    return [node]


def difference_magnitude(graph: Graph, node: NodeProto) -> Nodes:
    """A sum in place of a difference."""
    return [made("Add", list(node.input), node)]


def power_magnitude(graph: Graph, node: NodeProto) -> Nodes | None:
    """A power of at least 1."""
    exponent = graph.constant(node.input[1])
    grows = exponent is not None and bool(np.all(exponent.array >= 1))
    return same_magnitude(graph, node) if grows else None


def quotient_magnitude(graph: Graph, node: NodeProto) -> Nodes | None:
    """A quotient by constants."""
    return same_magnitude(graph, node) if graph.is_constant(node.input[1]) else None


def normalization_magnitude(graph: Graph, node: NodeProto) -> Nodes | None:
    """(A + |mean|)·|scale|/√(var + ε) + |bias|, with constants."""
    if not all(graph.is_constant(name) for name in node.input[1:]):
        return None
    minus = f"{node.output[0]}_minus_mean"
    negated = onnx.helper.make_node("Neg", [node.input[3]], [minus])
    inputs = [*node.input[:3], minus, node.input[4]]
    del node.input[:]
    node.input.extend(inputs)
    return [negated, node]


def contraction_magnitude(graph: Graph, node: NodeProto) -> Nodes:
    """A function that enlarges neither a number nor a difference."""
    return [made("Identity", [node.input[0]], node)]


def scaled_node(factor: float, value: str, node: NodeProto) -> NodeProto:
    """A positive value times a number, in the place of another node."""
    return made("Selu", [value], node, alpha=1.0, gamma=factor)


def steeper_magnitude(graph: Graph, node: NodeProto) -> Nodes:
    """A function that enlarges both by at most |alpha|, or not at all."""
    factor = abs(attributes(node).get("alpha", 1.0))
    if factor <= 1:
        return contraction_magnitude(graph, node)
    return [scaled_node(factor, node.input[0], node)]


def steep_magnitude(factor: float) -> Absolute:
    """The rule for a function that enlarges both by at most the factor, after a bias if it has."""

    def rule(graph: Graph, node: NodeProto) -> Nodes:
        if len(node.input) < 2 or not node.input[1]:
            return [scaled_node(factor, node.input[0], node)]
        total = f"{node.output[0]}_sum"
        added = onnx.helper.make_node("Add", list(node.input[:2]), [total])
        return [added, scaled_node(factor, total, node)]

    return rule


def clip_magnitude(graph: Graph, node: NodeProto) -> Nodes | None:
    """A, if 0 lies between the limits."""
    options = attributes(node)
    limits = [options.get("min", -np.inf), options.get("max", np.inf)]
    for i, name in enumerate(node.input[1:3]):
        found = graph.constant(name) if name else None
        if name and (found is None or found.values.size != 1):
            return None
        if found is not None:
            limits[i] = float(found.array.item())
    return contraction_magnitude(graph, node) if limits[0] <= 0 <= limits[1] else None


def limit_magnitude(graph: Graph, node: NodeProto) -> Nodes | None:
    """The sum of all: a maximum or minimum is at most that, and so is its change.

    Only with a number that tells the type: of lengths there is no sum.
    """
    constants = [graph.constant(name) for name in node.input]
    if not any(found is not None and found.values.dtype.kind == "f" for found in constants):
        return None
    return [made("Sum", list(node.input), node)]


def prelu_magnitude(graph: Graph, node: NodeProto) -> Nodes:
    """A + |slope|·A."""
    part = f"{node.output[0]}_below"
    product = onnx.helper.make_node("Mul", list(node.input), [part])
    return [product, made("Add", [node.input[0], part], node)]


def elu_magnitude(graph: Graph, node: NodeProto) -> Nodes | None:
    """|alpha|·(eˣ − 1), which runtimes compute as such: near 0 the 1 is rounded, not x."""
    options, usual = (
        attributes(node),
        (SELU_ALPHA, SELU_GAMMA) if op(node) == "Selu" else (1.0, 1.0),
    )
    alpha, gamma = options.get("alpha", usual[0]), options.get("gamma", usual[1])
    if op(node) == "Celu" and alpha < 0:
        return None
    factor = 2 * max(1.0, abs(alpha)) * abs(gamma)
    inner = f"{node.output[0]}_softplus"
    plus = onnx.helper.make_node("Softplus", [node.input[0]], [inner])
    return [plus, scaled_node(factor, inner, node)]


def sigmoid_magnitude(graph: Graph, node: NodeProto) -> Nodes | None:
    """A step from 0 to 1, no steeper than the logistic function and no larger at 0."""
    options = attributes(node)
    slope, shift = options.get("alpha", 0.2), options.get("beta", 0.5)
    if op(node) == "HardSigmoid" and not (
        abs(slope) <= SIGMOID_SLOPE and abs(shift) <= SIGMOID_SHIFT
    ):
        return None
    return [made("Softplus", [node.input[0]], node)]


def softmax_magnitude(graph: Graph, node: NodeProto) -> Nodes | None:
    """Every element depends on all along the axis."""
    value, rank = node.input[0], graph.rank(node.input[0])
    if rank is None:
        return None
    one_axis = graph.opset >= SOFTMAX_HAS_ONE_AXIS
    axis = attributes(node).get("axis", -1 if one_axis else 1) % rank
    axes = [axis] if one_axis else list(range(axis, rank))
    whole, total, places = (f"{node.output[0]}_{part}" for part in ("whole", "sum", "axes"))
    if graph.opset >= AXES_ARE_INPUTS:
        stored = make_tensor("", np.asarray(axes, dtype=np.int64))
        listed = onnx.helper.make_node("Constant", [], [places], value=stored)
        reduced = [listed, onnx.helper.make_node("ReduceLogSumExp", [value, places], [whole])]
    else:
        reduced = [onnx.helper.make_node("ReduceLogSumExp", [value], [whole], axes=axes)]
    added = onnx.helper.make_node("Add", [value, whole], [total])
    return [*reduced, added, made("Softplus", [total], node)]


MAGNITUDES: dict[str, Absolute] = {
    **dict.fromkeys(
        (
            "Add", "AveragePool", "Cast", "Concat", "Constant", "Conv", "Dropout", "Flatten",
            "Gemm", "GlobalAveragePool", "GlobalMaxPool", "Identity", "MatMul", "MaxPool", "Mul",
            "Pad", "ReduceMean", "ReduceSum", "Reshape", "Shape", "Slice", "Split", "Squeeze",
            "Sum", "Transpose", "Unsqueeze",
        ),
        same_magnitude,
    ),
    "BatchNormalization": normalization_magnitude,
    "Div": quotient_magnitude,
    "Sub": difference_magnitude,
    "Pow": power_magnitude,
    **dict.fromkeys(("Abs", "Neg", "Relu", "Sin", "Softsign", "Tanh"), contraction_magnitude),
    "Clip": clip_magnitude,
    **dict.fromkeys(("Max", "Min"), limit_magnitude),
    "PRelu": prelu_magnitude,
    "LeakyRelu": steeper_magnitude,
    **dict.fromkeys(("Celu", "Elu", "Selu"), elu_magnitude),
    "Softplus": same_magnitude,
    **dict.fromkeys(("Mish", "Swish", "com.microsoft.QuickGelu"), steep_magnitude(STEEPEST_SILU)),
    **dict.fromkeys(
        ("Erf", "Gelu", "com.microsoft.BiasGelu", "com.microsoft.FastGelu", "com.microsoft.Gelu"),
        steep_magnitude(STEEPEST_GELU),
    ),
    "HardSwish": steep_magnitude(1.5),
    **dict.fromkeys(("Sigmoid", "HardSigmoid"), sigmoid_magnitude),
    "Softmax": softmax_magnitude,
}  # fmt: skip
"""How each operator acts on absolute values."""


def external_magnitudes(model: ModelProto) -> Iterator[NodeProto]:
    """Nodes that make the absolute values of external weights, which stay where they are."""
    inputs = {value.name for value in model.graph.input}
    for tensor in model.graph.initializer:
        is_external = tensor.data_location == TensorProto.EXTERNAL and tensor.name not in inputs
        if is_external and tensor.data_type in WITH_ABS:
            name, tensor.name = tensor.name, tensor.name + SIGNED
            yield onnx.helper.make_node("Abs", [tensor.name], [name])


def magnitude_model(graph: Graph) -> ModelProto | None:
    """The model that computes A, or None where an operator has no such rule."""
    model = copy_of(graph.model)
    nodes: Nodes = []
    for node in model.graph.node:
        rule = MAGNITUDES.get(op(node))
        found = rule(graph, node) if rule else None
        if found is None:
            return None
        nodes += found
    nodes = [*external_magnitudes(model), *nodes]
    kept = [NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del model.graph.node[:]
    model.graph.node.extend(kept)
    model.graph.ClearField("value_info")
    for _, tensor in keyed_tensors(model):
        if tensor.data_type in FLOATS and not tensor.name.endswith(SIGNED):
            tensor.CopyFrom(make_tensor(tensor.name, np.abs(to_array(tensor, graph.folder))))
    return model
