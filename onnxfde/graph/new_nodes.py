"""New nodes: constants, products, additions (by onnx-graphsurgeon) of a bias, and whole models.

A model is never round-tripped through onnx-graphsurgeon, which loses metadata.
"""

from __future__ import annotations

import onnx

from onnxfde.graph.protos import ModelProto, NodeProto, ValueInfoProto
from onnxfde.graph.tensors import make_tensor
from onnxfde.numbers import Array


def make_constant(name: str, values: Array) -> NodeProto:
    """A Constant node that makes these values."""
    return onnx.helper.make_node("Constant", [], [name], name, value=make_tensor("", values))


def make_product(name: str, first: str, second: str, output: str) -> NodeProto:
    """Output = first · second."""
    return onnx.helper.make_node("Mul", [first, second], [output], name)


def make_prelu(name: str, value: str, slopes: str, output: str) -> NodeProto:
    """Output = value, times its slope where it is negative."""
    return onnx.helper.make_node("PRelu", [value, slopes], [output], name)


def make_add(name: str, value: str, addend: str, output: str) -> NodeProto:
    """Output = value + addend."""
    import onnx_graphsurgeon as gs

    inputs = [gs.Variable(value), gs.Variable(addend)]
    node = gs.Node("Add", name, inputs=inputs, outputs=[gs.Variable(output)])
    built: ModelProto = gs.export_onnx(gs.Graph([node]), do_type_check=False)
    return built.graph.node[0]


def typed_value(name: str, kind: int) -> ValueInfoProto:
    """A value of a known type and an unknown shape."""
    return onnx.helper.make_tensor_value_info(name, kind, None)


def identity_model() -> ModelProto:
    """The smallest model: it copies one float32 number."""
    x, y = (onnx.helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, [1]) for n in "xy")
    graph = onnx.helper.make_graph([onnx.helper.make_node("Identity", "x", "y")], "copy", [x], [y])
    return onnx.helper.make_model(
        graph, ir_version=8, opset_imports=[onnx.helper.make_opsetid("", 13)]
    )
