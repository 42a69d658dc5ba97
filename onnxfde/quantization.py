"""Weights and values in 8 bits: the last step, for runtimes with integer arithmetic.

    weights  w ≈ s·q,         q = −64 … 64     s for each output channel
    values   x ≈ s·(q − z),   q = 0 … 255      s, z for each: `dynamic` finds them in each run,
                                               `static` has them from data

Neurons are merged with a view to it: a step s of a hidden value h_r moves the outputs by V_r·s, so
large V that cancel are avoided (`minimal`), and hidden values made equally large (`quotients`).
"""

from __future__ import annotations

from onnxfde.errors import ModelError, UsageError
from onnxfde.graph import (
    FLOATS,
    Graph,
    ModelProto,
    TensorProto,
    complete_copy,
    copy_of,
    keyed_tensors,
    make_tensor,
    numpy_dtype,
    upgraded,
)
from onnxfde.inputs import Samples
from onnxfde.options import Int8
from onnxfde.runtime import quantized

CALIBRATION_ROWS = 512
OPSET = 13
"""The first with a scale for each channel."""
WEIGHTED = {"Conv", "ConvTranspose", "Gemm", "MatMul"}
QUANTIZERS = {"QuantizeLinear", "DynamicQuantizeLinear", "DequantizeLinear"}


def check_options(
    int8: Int8 | None, data: object, certify: bool | None, limit: float | None
) -> None:
    """Refuse what cannot go together with 8 bits."""
    if int8 is None:
        return
    if certify or limit is not None:
        option = "--certify" if limit is None else "--max-certified-error"
        raise UsageError(f"{option} cannot hold for --int8, which rounds every value: drop one")
    if int8 == "static" and data is None:
        raise UsageError("--int8 static measures ranges on real inputs: give --data")


def quantize(graph: Graph, mode: Int8, data: Samples | None) -> ModelProto:
    """The model in 8 bits, with the names and the metadata it had."""
    calibration = data.some(CALIBRATION_ROWS).feeds() if data and mode == "static" else None
    given = prepared(graph)
    found = quantized(given, calibration, left_products(Graph(given)))
    if not small_weights(found):
        raise ModelError(
            "--int8 finds nothing to do: no Conv, Gemm or MatMul has a constant weight in float32 "
            "(as the second input)"
        )
    result = copy_of(graph.model)
    result.ir_version = found.ir_version
    for field in ("graph", "opset_import"):
        result.ClearField(field)
    result.graph.CopyFrom(found.graph)
    result.graph.ClearField("value_info")
    result.opset_import.extend(found.opset_import)
    return result


def small_weights(model: ModelProto) -> int:
    """How many weights are stored in 8 bits."""
    return sum(t.data_type == TensorProto.INT8 and len(t.dims) > 1 for t in model.graph.initializer)


def refuse(graph: Graph) -> None:
    """Refuse models that the quantizer would spoil."""
    if any(node.op_type in QUANTIZERS for node in graph.model.graph.node):
        raise ModelError("--int8 needs a model in float32: this one is quantized already")
    kinds = {t.data_type for _, t in keyed_tensors(graph.model) if len(t.dims) > 1} & {*FLOATS}
    if kinds and TensorProto.FLOAT not in kinds:
        names = ", ".join(sorted(numpy_dtype(kind).name for kind in kinds))
        raise ModelError(f"--int8 needs weights in float32: convert the model, which has {names}")
    if shared := sorted(weight_names(graph.model) & graph.overridable):
        raise ModelError(
            f"--int8 needs constant weights: '{shared[0]}' is an input of the model as well, "
            "remove it from the inputs"
        )


def weight_names(model: ModelProto) -> set[str]:
    """The values that stand where weights do."""
    return {node.input[1] for node in model.graph.node if node.op_type in WEIGHTED}


def left_products(graph: Graph) -> list[str]:
    """MatMul with the weight first: no kernel takes a scale for each channel there."""
    nodes = (node for node in graph.model.graph.node if node.op_type == "MatMul")
    return [node.name for node in nodes if graph.is_constant(node.input[0])]


def prepared(graph: Graph) -> ModelProto:
    """A copy as the quantizer wants it: weights inside and in initializers, every node named.

    Stored shapes of weights would contradict those that it transposes.
    """
    model = complete_copy(graph.model, graph.folder)
    model.graph.ClearField("value_info")
    for name in weight_names(model):
        constant = None if name in graph.initializers else graph.constant(name)
        if constant is not None:
            model.graph.initializer.append(make_tensor(name, constant.values))
            model.graph.node.remove(next(n for n in model.graph.node if name in n.output))
    if graph.opset < OPSET:
        model = upgraded(model, OPSET)
    for number, node in enumerate(model.graph.node):
        node.name = node.name or f"{node.op_type}_{number}"
    return model
