"""Numbers of Constant nodes, and of nodes that only copy, transpose, cast or reshape them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from onnxfde.graph.nodes import attributes
from onnxfde.graph.protos import AttributeProto, NodeProto
from onnxfde.graph.tensors import NOT_NUMBERS, numpy_dtype
from onnxfde.numbers import Array

PASS_THROUGH = {"Identity", "Transpose", "Cast"}
"""Operators through which constants are read."""
RESHAPED = {"Reshape", "Unsqueeze", "Squeeze"}
"""Operators through which constants are read too, if the shape is a constant."""
ATTRIBUTES_OF_NUMBERS = {
    "value": AttributeProto.TENSOR,
    "value_float": AttributeProto.FLOAT,
    "value_floats": AttributeProto.FLOATS,
    "value_int": AttributeProto.INT,
    "value_ints": AttributeProto.INTS,
}
"""The attributes of Constant that hold numbers, and their types (ONNX)."""


def stored_numbers(node: NodeProto) -> AttributeProto | None:
    """The attribute in which a Constant keeps its numbers; None for strings and sparse tensors."""
    found = [a for a in node.attribute if a.name in ATTRIBUTES_OF_NUMBERS and not a.ref_attr_name]
    if len(found) != 1 or found[0].type != ATTRIBUTES_OF_NUMBERS[found[0].name]:
        return None
    is_tensor = found[0].type == AttributeProto.TENSOR
    return None if is_tensor and found[0].t.data_type in NOT_NUMBERS else found[0]


def derived(node: NodeProto, values: Array, given: Sequence[list[int]]) -> Array:
    """Identity, Transpose, Cast or a reshape of a constant, by a shape or axes that are `given`."""
    options = attributes(node)
    if node.op_type in RESHAPED:
        return reshaped_constant(node, values, given[0] if given else None)
    if node.op_type == "Transpose":
        return values.transpose(options.get("perm"))
    return values.astype(numpy_dtype(options["to"])) if node.op_type == "Cast" else values


def reshaped_constant(node: NodeProto, values: Array, given: list[int] | None) -> Array:
    """Reshape, Unsqueeze or Squeeze of a constant; old opsets have shape and axes as attributes."""
    options = attributes(node)
    if node.op_type == "Reshape":
        lengths = list(options["shape"]) if given is None else given
        if not options.get("allowzero", 0):
            lengths = [n or values.shape[axis] for axis, n in enumerate(lengths)]
        return values.reshape(lengths)
    axes = options.get("axes") if given is None else given
    if axes is None:
        return np.squeeze(values)
    change = np.expand_dims if node.op_type == "Unsqueeze" else np.squeeze
    return change(values, tuple(axes))
