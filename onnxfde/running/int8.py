"""Weights and values in 8 bits: the last step, for runtimes with integer arithmetic.

    weights  w ≈ s·q,         q = −64 … 64     one s per output channel
    values   x ≈ s·(q − z),   q = 0 … 255      one s and z per value: `dynamic` finds them in each
                                               run, `static` measures them once on the data

Merging takes the rounding into account: a step s of a hidden value h_r moves the outputs by V_r·s,
so `free_attempts` avoids large V that cancel, and `balance` makes the hidden values equally large.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from onnxfde.errors import ModelError
from onnxfde.graph.activation_patterns import ACTIVATION_OPERATORS
from onnxfde.graph.gemm_form import bias_of, products, settle
from onnxfde.graph.model import Graph
from onnxfde.graph.new_nodes import typed_value
from onnxfde.graph.nodes import attributes, is_standard, names_used, op
from onnxfde.graph.onnx_calls import (
    are_constants_inputs,
    constants_undeclared,
    declare,
    upgraded,
)
from onnxfde.graph.protos import GraphProto, ModelProto, NodeProto, TensorProto
from onnxfde.graph.quantized_models import is_quantized
from onnxfde.graph.renaming import hide, show
from onnxfde.graph.tensors import (
    FLOATS,
    complete_copy,
    copy_of,
    keyed_tensors,
    make_tensor,
    numpy_dtype,
    to_array,
)
from onnxfde.numbers import Array
from onnxfde.options import Int8
from onnxfde.running.runtime import quantized
from onnxfde.running.samples import Samples

CALIBRATION_ROWS = 512
"""Most rows on which `static` measures ranges: onnxruntime keeps all values of all rows in memory.
Chosen; not tuned."""
PER_CHANNEL_OPSET = 13
"""The first opset of ONNX in which QuantizeLinear takes one scale per channel."""


def quantize(graph: Graph, mode: Int8, data: Samples | None) -> ModelProto:
    """The model in 8 bits, with its names and metadata unchanged."""
    given = prepared(graph)
    names = hide(given.graph)
    settle(given)
    unfit = unfit_nodes(Graph(given), mode)
    found = quantized(given, calibration(data, mode, names), excluded(unfit))
    put_in_order(found.graph)
    show(found.graph, names)
    if not small_weights(found):
        reasons = [f"{names[alias]}: {reason}" for alias, reason in unfit.items()]
        default = "no Conv, Gemm or MatMul has a constant weight in float32 as the second input"
        raise ModelError(f"--int8 finds nothing to do: {(*reasons, default)[0]}")
    return with_graph_of(found, graph.model)


def with_graph_of(found: ModelProto, original: ModelProto) -> ModelProto:
    """The original with the nodes and weights of what the quantizer made of it.

    An old model stays one: its constants become inputs again, and new ones too.
    """
    result = copy_of(original)
    for field in ("graph", "opset_import"):
        result.ClearField(field)
    result.graph.CopyFrom(found.graph)
    result.graph.ClearField("value_info")
    result.opset_import.extend(found.opset_import)
    if not are_constants_inputs(original):
        result.ir_version = found.ir_version
    else:
        for tensor in result.graph.initializer:
            declare(result, tensor)
    return result


def put_in_order(graph: GraphProto) -> None:
    """Sort nodes so that each, with its bodies, comes after the nodes it reads from.

    Apart from that the order stays as it is.
    """
    nodes = list(graph.node)
    makers = {name: i for i, node in enumerate(nodes) for name in node.output}
    order: dict[int, None] = {}

    def visit(place: int) -> None:
        for name in names_used(nodes[place]):
            if name in makers and makers[name] not in order and makers[name] != place:
                visit(makers[name])
        order.setdefault(place)

    for place in range(len(nodes)):
        visit(place)
    del graph.node[:]
    graph.node.extend(nodes[place] for place in order)


def calibration(
    data: Samples | None, mode: Int8, names: dict[str, str]
) -> Iterator[dict[str, Array]] | None:
    """The inputs on which ranges are measured, under the aliases of their names."""
    if data is None or mode != "static":
        return None
    aliases = {name: alias for alias, name in names.items() if alias.startswith("v")}
    feeds = data.some(CALIBRATION_ROWS).feeds()
    return ({aliases[name]: values for name, values in feed.items()} for feed in feeds)


def small_weights(model: ModelProto) -> int:
    """How many weights are stored in 8 bits."""
    return sum(t.data_type == TensorProto.INT8 and len(t.dims) > 1 for t in model.graph.initializer)


def require_quantizable(graph: Graph) -> None:
    """Raise for a model that the quantizer would damage."""
    if is_quantized(graph.model):
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
    """The names of values in the place of weights."""
    return {node.input[1] for node in products(model)}


def prepared(graph: Graph) -> ModelProto:
    """A copy as the quantizer needs it: all weights and biases in initializers inside the model.

    Stored shapes are dropped: they would contradict weights that the quantizer transposes. The
    types of activations that onnx does not define are added, because nothing else tells them.
    """
    model = complete_copy(graph.model, graph.folder)
    constants_undeclared(model)
    model.graph.ClearField("value_info")
    model.graph.value_info.extend(
        typed_value(node.output[0], TensorProto.FLOAT)
        for node in model.graph.node
        if op(node) in ACTIVATION_OPERATORS and not is_standard(node)
    )
    biases = {bias_of(node) for node in products(model)}
    for name in sorted((weight_names(model) | biases) - graph.initializers.keys()):
        constant = graph.constant(name)
        if constant is not None:
            model.graph.initializer.append(make_tensor(name, constant.values))
            model.graph.node.remove(next(n for n in model.graph.node if name in n.output))
    if graph.opset < PER_CHANNEL_OPSET:
        model = upgraded(model, PER_CHANNEL_OPSET)
    for number, node in enumerate(model.graph.node):
        node.name = node.name or f"{node.op_type}_{number}"
    return model


def unfit_nodes(graph: Graph, mode: Int8) -> dict[str, str]:
    """Nodes with weights that must stay in floating point, and why."""
    found = {node.name: why_unfit(graph, node, mode) for node in products(graph.model)}
    return {name: reason for name, reason in found.items() if reason}


def why_unfit(graph: Graph, node: NodeProto, mode: Int8) -> str:
    """Why no integer kernel can compute a node; empty if one can."""
    kind, weight = op(node), graph.initializers.get(node.input[1])
    if kind == "MatMul" and graph.is_constant(node.input[0]):
        return "its weight is the first factor, and has to be the second"
    if weight is not None and weight.data_type != TensorProto.FLOAT:
        return f"its weight is in {numpy_dtype(weight.data_type).name}, and has to be in float32"
    if weight is not None and not np.isfinite(to_array(weight, None)).all():
        return "its weight is not finite"
    if kind == "MatMul" and weight is not None and len(weight.dims) != 2:
        return f"its weight has {len(weight.dims)} axes, and has to be a matrix"
    return why_unfit_gemm(graph, node, mode) if kind == "Gemm" else ""


def why_unfit_gemm(graph: Graph, node: NodeProto, mode: Int8) -> str:
    """Why no integer kernel can compute a Gemm; empty if one can."""
    options, bias = attributes(node), bias_of(node)
    if options.get("alpha", 1.0) != 1 or options.get("beta", 1.0) != 1:
        return "alpha or beta multiplies what is not constant"
    if mode == "dynamic":
        missing = "transA has no integer kernel (--int8 static has one)"
        return missing if options.get("transA") else ""
    if not bias or (graph.is_constant(bias) and len(graph.initializers[bias].dims) == 1):
        return ""
    return "its bias is not a constant vector (--int8 dynamic takes any)"


def excluded(unfit: Iterable[str]) -> list[str]:
    """Names of nodes to leave alone, and those that the quantizer gives to the MatMul of a Gemm."""
    return [name + suffix for name in unfit for suffix in ("", "_MatMul")]
