"""The shapes of all values of a model, for inputs of given shapes.

onnx infers shapes, but it does not compute the lengths that exporters of torch write as a dozen
nodes on constants (the widths of a Pad, for one): those are computed first.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from onnxfde.errors import RuntimeUnavailable
from onnxfde.graph.model import Graph
from onnxfde.graph.nodes import op
from onnxfde.graph.onnx_calls import FEW, with_shapes, without_weights
from onnxfde.graph.protos import ModelProto
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


def inferred_dims(model: ModelProto, inputs: Mapping[str, Dims]) -> dict[str, Dims]:
    """The shapes of all values that onnx can infer, for inputs of these shapes."""
    light = without_weights(model)
    for value in light.graph.input:
        if value.name in inputs:
            del value.type.tensor_type.shape.dim[:]
            for length in inputs[value.name]:
                value.type.tensor_type.shape.dim.add(dim_value=int(length or 0))
    for value in light.graph.output:
        value.type.tensor_type.ClearField("shape")
    del light.graph.value_info[:]
    settle_lengths(Graph(light))
    known = with_shapes(light, data_prop=True).graph
    found = {t.name: tuple(t.dims) for t in known.initializer}
    values = (*known.input, *known.value_info, *known.output)
    return found | {v.name: dims(v) for v in values if v.type.tensor_type.HasField("shape")}


def settle_lengths(graph: Graph) -> None:
    """Put constants in the place of lengths that are computed from constants."""
    for node in graph.model.graph.node:
        if op(node) not in READS_LENGTHS:
            continue
        for place, name in enumerate(node.input):
            computed = place > 0 and name in graph.producers and not graph.is_constant(name)
            values = computed_integers(graph, name) if computed else None
            fresh = f"{name}_{place}_settled"
            if values is not None and not graph.is_taken(fresh):
                graph.add_tensor(make_tensor(fresh, values))
                graph.set_input(node, place, fresh)


def computed_integers(graph: Graph, name: str, steps: int = LONGEST_CHAIN) -> Array | None:
    """A few whole numbers that depend on constants alone; None if a value is something else."""
    tensor = graph.initializers.get(graph.origin(name))
    if tensor is not None and math.prod(tensor.dims) > FEW:
        return None
    constant = graph.constant(name)
    if constant is not None:
        return constant.values if is_lengths(constant.values) else None
    node = graph.producers.get(name)
    if node is None or op(node) not in ON_LENGTHS or not steps:
        return None
    inputs: list[Array | None] = []
    for read in node.input:
        found = computed_integers(graph, read, steps - 1) if read else None
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
