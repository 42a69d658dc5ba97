"""The tensors that a model stores: their values, and where their bytes are."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.numpy_helper

from onnxfde.errors import ModelError, in_one_line
from onnxfde.graph.external_data import is_in_model_file, read_external
from onnxfde.graph.nodes import bodies
from onnxfde.graph.protos import GraphProto, ModelProto, NodeProto, TensorProto
from onnxfde.numbers import Array

FLOATS = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.DOUBLE)
NOT_NUMBERS = (
    TensorProto.UNDEFINED,
    TensorProto.STRING,
    TensorProto.COMPLEX64,
    TensorProto.COMPLEX128,
)
"""Types whose values are no real numbers."""


def without_external_data(model: ModelProto) -> ModelProto:
    """A copy whose external tensors are empty, so that a checker does not look for the files."""
    if not any(external_tensors(model)):
        return model
    light = copy_of(model)
    for tensor in external_tensors(light):
        del tensor.external_data[:]
        tensor.data_location = TensorProto.DEFAULT
        del tensor.dims[:]
        tensor.dims.append(0)
    return light


def copy_of(model: ModelProto) -> ModelProto:
    """An independent copy."""
    copy = ModelProto()
    copy.CopyFrom(model)
    return copy


def complete_copy(model: ModelProto, folder: Path | None) -> ModelProto:
    """An independent copy with external weights stored inside."""
    copy = copy_of(model)
    for tensor in external_tensors(copy):
        tensor.CopyFrom(make_tensor(tensor.name, to_array(tensor, folder)))
    return copy


def keyed_tensors(model: ModelProto) -> Iterator[tuple[str, TensorProto]]:
    """Every tensor that a model stores, in bodies and functions too, with a key for it."""

    def in_nodes(nodes: Sequence[NodeProto], scope: str) -> Iterator[tuple[str, TensorProto]]:
        for node in nodes:
            place = f"{scope}{node.output[0] if node.output else node.name}"
            for attribute in node.attribute:
                tensors = [attribute.t] if attribute.HasField("t") else attribute.tensors
                yield from ((f"{place}.{attribute.name}", t) for t in tensors)
            for i, body in enumerate(bodies(node)):
                yield from in_graph(body, f"{place}/{i}/")

    def in_graph(graph: GraphProto, scope: str) -> Iterator[tuple[str, TensorProto]]:
        yield from ((scope + tensor.name, tensor) for tensor in graph.initializer)
        yield from in_nodes(graph.node, scope)

    yield from in_graph(model.graph, "")
    for function in model.functions:
        yield from in_nodes(function.node, f"{function.domain}:{function.name}/")


def external_tensors(model: ModelProto) -> Iterator[TensorProto]:
    """Tensors whose bytes live in a file: beside the model or, if that is large, the model's."""
    return (t for _, t in keyed_tensors(model) if t.data_location == TensorProto.EXTERNAL)


def outside_tensors(model: ModelProto) -> Iterator[TensorProto]:
    """Tensors whose bytes live in another file than the model."""
    return (tensor for tensor in external_tensors(model) if not is_in_model_file(tensor))


def to_array(tensor: TensorProto, folder: Path | None) -> Array:
    """A tensor's values, read from its file if they are external."""
    if tensor.data_location != TensorProto.EXTERNAL:
        return decoded(tensor, tensor.name)
    raw = read_external(tensor, folder or Path())
    if tensor.data_type in FLOATS and sys.byteorder == "little":
        return np.frombuffer(raw, numpy_dtype(tensor.data_type)).reshape(tensor.dims)
    inline = TensorProto(data_type=tensor.data_type, dims=tensor.dims, raw_data=raw)
    return decoded(inline, tensor.name)


def decoded(tensor: TensorProto, name: str) -> Array:
    """The values of a tensor whose bytes are inside; ModelError if they do not fit its shape."""
    numpy_dtype(tensor.data_type, name)
    try:
        return onnx.numpy_helper.to_array(tensor)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        shape = "×".join(map(str, tensor.dims)) or "a scalar"
        raise ModelError(
            f"tensor '{name}' ({shape}, type {tensor.data_type}) is damaged: {in_one_line(error)}"
        ) from None


def numpy_dtype(data_type: int, name: str = "") -> np.dtype[Any]:
    """The numpy dtype of an ONNX one (bfloat16 included); ModelError names the value."""
    try:
        return onnx.helper.tensor_dtype_to_np_dtype(data_type)
    except (KeyError, TypeError, ValueError):
        whose = f"'{name}' has" if name else "the model uses"
        raise ModelError(f"{whose} the data type {data_type}, which ONNX does not define") from None


def make_tensor(name: str, values: Array) -> TensorProto:
    """A tensor with these values."""
    return onnx.numpy_helper.from_array(np.asarray(values, order="C"), name)
