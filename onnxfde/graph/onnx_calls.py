"""onnx's checker, shape inference and version converter; their exceptions become a `ModelError`.

They are written in C++ and raise whatever their authors threw: `ValidationError`, but also
ValueError, RuntimeError or IndexError for a model that is malformed in an unforeseen way.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import onnx
import onnx.shape_inference
import onnx.version_converter
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import EncodeError, Message
from onnx.helper import make_node

from onnxfde.errors import ModelError, in_one_line
from onnxfde.graph.nodes import op
from onnxfde.graph.protos import ModelProto, TensorProto
from onnxfde.graph.tensors import copy_of, without_external_data

ONNX_ERRORS = (
    onnx.checker.ValidationError,
    onnx.shape_inference.InferenceError,
    onnx.version_converter.ConvertError,
    ArithmeticError,
    EncodeError,
    LookupError,
    RuntimeError,
    TypeError,
    ValueError,
)
"""What onnx raises for models that it cannot handle."""
FEW = 64
"""Numbers in the largest tensor that may describe a shape. Chosen: more axes than any value has."""
KEEPS_SHAPE = {
    "ai.onnx.ml.Scaler": TensorProto.FLOAT,
    "ai.onnx.ml.Normalizer": TensorProto.FLOAT,
    **dict.fromkeys(("ai.onnx.ml.Imputer", "ai.onnx.ml.Binarizer")),
    **dict.fromkeys(f"com.microsoft.{kind}Gelu" for kind in ("", "Bias", "Fast", "Quick")),
}
"""Operators whose result has the shape of their first input, which onnx does not infer, and its
type if that is always the same."""
CONSTANTS_ARE_NO_INPUTS = 4
"""The IR version since which an initializer need not be an input as well (ONNX)."""


def check(model: ModelProto, what: str) -> None:
    """Raise ModelError unless onnx's own checker accepts the model.

    Initializers that are no inputs are accepted in models older than the rule that allows them, as
    runtimes accept them.
    """
    light = without_external_data(model)
    if light.ir_version < CONSTANTS_ARE_NO_INPUTS:
        light = copy_of(light)
        light.ir_version = CONSTANTS_ARE_NO_INPUTS
    try:
        onnx.checker.check_model(light)
    except ONNX_ERRORS as error:
        raise ModelError(f"{what} is not a valid ONNX model: {in_one_line(error)}") from None


def are_constants_inputs(model: ModelProto) -> bool:
    """Whether the model's version of the format asks that initializers are inputs as well."""
    return 0 < model.ir_version < CONSTANTS_ARE_NO_INPUTS


def declare(model: ModelProto, tensor: TensorProto) -> None:
    """Make an initializer an input of the model as well, or correct the type of that input."""
    kind = onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims).type
    found = [value for value in model.graph.input if value.name == tensor.name]
    value = found[0] if found else model.graph.input.add(name=tensor.name)
    value.type.CopyFrom(kind)


def constants_undeclared(model: ModelProto) -> None:
    """Bring an old model to the first version in which initializers need not be inputs."""
    if are_constants_inputs(model):
        stored = {tensor.name for tensor in model.graph.initializer}
        kept = [value for value in model.graph.input if value.name not in stored]
        del model.graph.input[:]
        model.graph.input.extend(kept)
        model.ir_version = CONSTANTS_ARE_NO_INPUTS


def upgraded(model: ModelProto, opset: int) -> ModelProto:
    """The same model in a newer version of onnx's operators."""
    try:
        return onnx.version_converter.convert_version(model, opset)
    except ONNX_ERRORS as error:
        reason = in_one_line(error).split(" failed: ")[-1]
        raise ModelError(f"the model cannot be brought to opset {opset}: {reason}") from None


def with_shapes(model: ModelProto, data_prop: bool = False) -> ModelProto:
    """The model with all shapes that onnx can infer and without its weights.

    As it is, if onnx finds a contradiction.
    """
    try:
        light = without_weights(model)
        put_known(light)
        return onnx.shape_inference.infer_shapes(light, data_prop=data_prop)
    except ONNX_ERRORS:
        return model


def put_known(light: ModelProto) -> None:
    """Put operators whose shapes onnx infers in the place of some that it does not know."""
    for node in light.graph.node:
        if (name := op(node)) in KEEPS_SHAPE:
            ends, wanted = (node.input[:1], node.output[:1]), KEEPS_SHAPE[name]
            known = make_node("Cast", *ends, to=wanted) if wanted else make_node("Identity", *ends)
            node.CopyFrom(known)


def without_weights(model: ModelProto) -> ModelProto:
    """A copy in which large initializers have a shape and no values."""
    light = ModelProto(
        ir_version=model.ir_version, opset_import=model.opset_import, functions=model.functions
    )
    whole, graph = model.graph, light.graph
    graph.name = whole.name
    for part in ("node", "input", "output", "value_info", "sparse_initializer"):
        getattr(graph, part).extend(getattr(whole, part))
    for tensor in whole.initializer:
        if math.prod(tensor.dims) <= FEW and tensor.data_location != TensorProto.EXTERNAL:
            graph.initializer.append(tensor)
        else:
            graph.initializer.add(name=tensor.name, dims=tensor.dims, data_type=tensor.data_type)
    return light


def refuse_bad_text(model: ModelProto, what: str) -> None:
    """Refuse a model with a name that is not UTF-8; protobuf gives such names as bytes."""
    pending: list[Message] = [model]
    while pending:
        message = pending.pop()
        for name in text_and_messages(message.DESCRIPTOR):
            value = getattr(message, name)
            if isinstance(value, Message):
                pending.extend([value] if message.HasField(name) else [])
                continue
            for each in (value,) if isinstance(value, str | bytes) else value:
                if isinstance(each, Message):
                    pending.append(each)
                elif isinstance(each, bytes):
                    raise ModelError(f"{what} holds text that is not UTF-8: {each!r} ({name})")


@cache
def text_and_messages(descriptor: Any) -> list[str]:
    """The names of the fields that hold text or messages in a kind of message."""
    kinds = (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_MESSAGE)
    return [field.name for field in descriptor.fields if field.type in kinds]
