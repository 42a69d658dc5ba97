"""The shapes of all values of a model, for inputs of given shapes.

onnx infers shapes, but it does not compute the lengths that exporters of torch write as a dozen
nodes on constants (the widths of a Pad, for one): those are computed first. Up to opset 13 it does
not follow lengths that are asked for (Shape) either: they are computed from what it has inferred,
and it infers again.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from onnxfde.errors import RuntimeUnavailable
from onnxfde.graph.model import Graph
from onnxfde.graph.nodes import attributes, op
from onnxfde.graph.onnx_calls import FEW, with_shapes, without_weights
from onnxfde.graph.protos import ModelProto, NodeProto
from onnxfde.graph.reference import evaluate
from onnxfde.graph.shapes import Dims, dims
from onnxfde.graph.tensors import make_tensor
from onnxfde.numbers import Array

READS_LENGTHS = {"Expand", "Pad", "Reshape", "Resize", "Slice", "Tile"}
"""Operators whose further inputs say how long their result is."""
ON_LENGTHS = {
    *("Add", "Cast", "Concat", "ConstantOfShape", "Div", "Gather", "Identity", "Mul", "Reshape"),
    *("Slice", "Squeeze", "Sub", "Transpose", "Unsqueeze"),
}
"""Operators by which exporters compute lengths."""
LONGEST_CHAIN = 64
"""Nodes in a row that compute lengths, at most. Chosen; not tuned."""
MOST_ROUNDS = 16
"""How often shapes are inferred at most: once more for each shape that another one depends on.
Chosen; not tuned."""
NOTHING: Mapping[str, Dims] = {}


def inferred_dims(model: ModelProto, inputs: Mapping[str, Dims]) -> dict[str, Dims]:
    """The shapes of all values that onnx can infer, for inputs of these shapes.

    Shapes of other values that are given stand in for those that it cannot.
    """
    light = without_weights(model)
    for value in light.graph.input:
        if value.name in inputs:
            del value.type.tensor_type.shape.dim[:]
            for length in inputs[value.name]:
                given = {"dim_value": length} if isinstance(length, int) else {}
                value.type.tensor_type.shape.dim.add(**given)
    for value in light.graph.output:
        value.type.tensor_type.ClearField("shape")
    del light.graph.value_info[:]
    if has_negative_lengths(light):
        return {}
    graph, found = Graph(light), dict[str, Dims]()
    for _ in range(MOST_ROUNDS):
        if not settle_lengths(graph, found) and found:
            break
        known = with_shapes(light, data_prop=True).graph
        values = (*known.input, *known.value_info, *known.output)
        found = {t.name: tuple(t.dims) for t in known.initializer}
        found |= {v.name: dims(v) for v in values if v.type.tensor_type.HasField("shape")}
    seen = {name: shape for name, shape in inputs.items() if are_lengths(shape)}
    return found | {name: shape for name, shape in seen.items() if not are_lengths(found.get(name))}


def has_negative_lengths(model: ModelProto) -> bool:
    """Whether inputs are smaller than windows; where a Slice follows, onnx ends the process."""
    kept = [node for node in model.graph.node if op(node) != "Slice"]
    if len(kept) == len(model.graph.node):
        return False
    cut = without_weights(model)
    del cut.graph.node[:]
    cut.graph.node.extend(kept)
    found = (value.type.tensor_type.shape.dim for value in with_shapes(cut).graph.value_info)
    return any(length.dim_value < 0 for shape in found for length in shape)


def settle_lengths(graph: Graph, known: Mapping[str, Dims]) -> int:
    """Put constants in the place of lengths that are computed from constants and known shapes.

    Returns how many there are, of nodes whose result does not have a known shape.
    """
    settled = 0
    for node in graph.model.graph.node:
        if op(node) not in READS_LENGTHS or are_lengths(known.get(node.output[0])):
            continue
        for place, name in enumerate(node.input):
            computed = place > 0 and name in graph.producers and not graph.is_constant(name)
            values = computed_integers(graph, name, known) if computed else None
            fresh = f"{node.output[0]}_{place}_settled"
            if values is not None and not graph.is_taken(fresh):
                graph.add_tensor(make_tensor(fresh, values))
                graph.set_input(node, place, fresh)
                settled += 1
    return settled


def are_lengths(shape: Dims | None) -> bool:
    """Whether all lengths of a shape are known."""
    return shape is not None and all(isinstance(length, int) for length in shape)


def asked_lengths(node: NodeProto, known: Mapping[str, Dims]) -> Array | None:
    """What a Shape gives, if all lengths that it is asked for are known."""
    options, shape = attributes(node), known.get(node.input[0])
    wanted = None if shape is None else shape[options.get("start", 0) : options.get("end")]
    return np.array(wanted, np.int64) if are_lengths(wanted) else None


def computed_integers(
    graph: Graph, name: str, known: Mapping[str, Dims] = NOTHING, steps: int = LONGEST_CHAIN
) -> Array | None:
    """A few whole numbers that follow from constants and known shapes; None for anything else."""
    tensor = graph.initializers.get(graph.origin(name))
    if tensor is not None and math.prod(tensor.dims) > FEW:
        return None
    constant = graph.constant(name)
    if constant is not None:
        return constant.values if is_lengths(constant.values) else None
    node = graph.producers.get(name)
    if node is not None and op(node) == "Shape":
        return asked_lengths(node, known)
    if node is None or op(node) not in ON_LENGTHS or not steps:
        return None
    inputs: list[Array | None] = []
    for read in node.input:
        found = computed_integers(graph, read, known, steps - 1) if read else None
        if read and found is None:
            return None
        inputs.append(found)
    try:
        values = evaluate(node, inputs, graph.opset)[0]
    except RuntimeUnavailable:
        return None
    return values if is_lengths(values) else None


def is_lengths(values: Array) -> bool:
    """Whether these may be lengths: a few whole numbers."""
    return bool(np.issubdtype(values.dtype, np.integer)) and values.size <= FEW
