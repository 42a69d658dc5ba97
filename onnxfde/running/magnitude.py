"""A(x): a network evaluated on absolute values, the scale of its rounding errors.

Every weight and input is replaced by its absolute value, every difference by a sum, and every
function that cannot enlarge a difference (ReLU, tanh, softmax …) by the identity. Two executions of
the same algebra differ by a few u·A(x), u the unit roundoff.
"""

from __future__ import annotations

import numpy as np

from onnxfde.graph.model import Graph
from onnxfde.graph.nodes import op
from onnxfde.graph.protos import ModelProto, NodeProto
from onnxfde.graph.tensors import FLOATS, copy_of, keyed_tensors, make_tensor, to_array

MONOTONE = {
    "Add", "AveragePool", "Cast", "Concat", "Constant", "Conv", "Dropout", "Flatten", "Gemm",
    "GlobalAveragePool", "GlobalMaxPool", "Identity", "MatMul", "MaxPool", "Mul", "Pad",
    "ReduceMean", "ReduceSum", "Reshape", "Shape", "Slice", "Split", "Squeeze", "Sum", "Transpose",
    "Unsqueeze",
}  # fmt: skip
CONTRACTIONS = {
    "Elu", "HardSigmoid", "LeakyRelu", "Neg", "Relu", "Sigmoid", "Softmax", "Tanh",
}  # fmt: skip


def magnitude_model(graph: Graph) -> ModelProto | None:
    """The model that computes A, or None where an operator has no such rule."""
    model = copy_of(graph.model)
    if not all(absolute(graph, node) for node in model.graph.node):
        return None
    for _, tensor in keyed_tensors(model):
        if tensor.data_type in FLOATS:
            tensor.CopyFrom(make_tensor(tensor.name, np.abs(to_array(tensor, graph.folder))))
    return model


def absolute(graph: Graph, node: NodeProto) -> bool:
    """Turn a node into its counterpart for absolute values, if it has one."""
    kind = op(node)
    if kind in CONTRACTIONS:
        del node.input[1:], node.attribute[:]
        node.op_type = "Identity"
    elif kind == "Sub":
        node.op_type = "Add"
    elif kind == "Pow":
        exponent = graph.constant(node.input[1])
        return exponent is not None and bool(np.all(exponent.array >= 1))
    for attribute in node.attribute:
        if attribute.HasField("f"):
            attribute.f = abs(attribute.f)
        attribute.floats[:] = [abs(value) for value in attribute.floats]
    return kind in MONOTONE or kind in CONTRACTIONS or kind == "Sub"
