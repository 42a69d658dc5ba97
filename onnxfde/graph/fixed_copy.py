"""A copy of a model for engines that want every length known: the input has one shape."""

from __future__ import annotations

from onnxfde.errors import ModelError
from onnxfde.graph.model import Graph
from onnxfde.graph.protos import ModelProto
from onnxfde.graph.tensors import complete_copy


def fixed_copy(graph: Graph, shape: tuple[int, ...]) -> ModelProto:
    """The model with its weights inside, whose only input has this shape; it has one output."""
    inputs, outputs = len(graph.inputs), len(graph.model.graph.output)
    if (inputs, outputs) != (1, 1):
        raise ModelError(
            f"it has {inputs} inputs and {outputs} outputs; only one of each is supported"
        )
    found = complete_copy(graph.model, graph.folder)
    (value,) = (v for v in found.graph.input if v.name == graph.inputs[0].name)
    lengths = value.type.tensor_type.shape
    del lengths.dim[:]
    for length in shape:
        lengths.dim.add().dim_value = length
    del found.graph.value_info[:]
    for output in found.graph.output:
        output.type.tensor_type.ClearField("shape")
    return found
