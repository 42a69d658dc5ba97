"""New nodes: constants, products, and additions (by onnx-graphsurgeon) of a bias without a place.

A model is never round-tripped through onnx-graphsurgeon, which loses metadata.
"""

from __future__ import annotations

import onnx

from onnxfde.graph.protos import ModelProto, NodeProto
from onnxfde.graph.tensors import make_tensor
from onnxfde.numbers import Array


def make_constant(name: str, values: Array) -> NodeProto:
    """A Constant node that makes these values."""
    return onnx.helper.make_node("Constant", [], [name], name, value=make_tensor("", values))


def make_product(name: str, first: str, second: str, output: str) -> NodeProto:
    """Output = first · second."""
    return onnx.helper.make_node("Mul", [first, second], [output], name)


def make_add(name: str, value: str, addend: str, output: str) -> NodeProto:
    """Output = value + addend."""
    import onnx_graphsurgeon as gs

    inputs = [gs.Variable(value), gs.Variable(addend)]
    node = gs.Node("Add", name, inputs=inputs, outputs=[gs.Variable(output)])
    built: ModelProto = gs.export_onnx(gs.Graph([node]), do_type_check=False)
    return built.graph.node[0]
