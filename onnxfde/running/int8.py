"""Weights and values in 8 bits: the last step, for runtimes with integer arithmetic.

    weights  w ≈ s·q,         q = −64 … 64     s for each output channel
    values   x ≈ s·(q − z),   q = 0 … 255      s, z for each: `dynamic` finds them in each run,
                                               `static` has them from data

Neurons are merged with a view to it: a step s of a hidden value h_r moves the outputs by V_r·s, so
large V that cancel are avoided (`free_search`), and hidden values made equally large (`balance`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from onnxfde.errors import ModelError
from onnxfde.graph.gemm_form import bias_of, products, settle
from onnxfde.graph.model import Graph, upgraded
from onnxfde.graph.nodes import attributes, names_used, op
from onnxfde.graph.protos import GraphProto, ModelProto, NodeProto, TensorProto
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
"""Rows that `static` measures ranges on: onnxruntime keeps all values of all rows in memory."""
OPSET = 13
"""The first with a scale for each channel."""
QUANTIZERS = {"QuantizeLinear", "DynamicQuantizeLinear", "DequantizeLinear"}


def quantize(graph: Graph, mode: Int8, data: Samples | None) -> ModelProto:
    """The model in 8 bits, with the names and the metadata it had."""
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
    result = copy_of(graph.model)
    result.ir_version = found.ir_version
    for field in ("graph", "opset_import"):
        result.ClearField(field)
    result.graph.CopyFrom(found.graph)
    result.graph.ClearField("value_info")
    result.opset_import.extend(found.opset_import)
    return result


def put_in_order(graph: GraphProto) -> None:
    """Every node after those that make what it reads, in its bodies too; else as they were."""
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
    """What to measure ranges on, under the aliases of the inputs."""
    if data is None or mode != "static":
        return None
    aliases = {name: alias for alias, name in names.items() if alias.startswith("v")}
    feeds = data.some(CALIBRATION_ROWS).feeds()
    return ({aliases[name]: values for name, values in feed.items()} for feed in feeds)


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
    return {node.input[1] for node in products(model)}


def prepared(graph: Graph) -> ModelProto:
    """A copy as the quantizer wants it: weights and biases inside and in initializers.

    Stored shapes of weights would contradict those that it transposes.
    """
    model = complete_copy(graph.model, graph.folder)
    model.graph.ClearField("value_info")
    biases = {bias_of(node) for node in products(model)}
    for name in sorted((weight_names(model) | biases) - graph.initializers.keys()):
        constant = graph.constant(name)
        if constant is not None:
            model.graph.initializer.append(make_tensor(name, constant.values))
            model.graph.node.remove(next(n for n in model.graph.node if name in n.output))
    if graph.opset < OPSET:
        model = upgraded(model, OPSET)
    for number, node in enumerate(model.graph.node):
        node.name = node.name or f"{node.op_type}_{number}"
    return model


def unfit_nodes(graph: Graph, mode: Int8) -> dict[str, str]:
    """Nodes with weights that must stay in floating point, and why."""
    found = {node.name: why_unfit(graph, node, mode) for node in products(graph.model)}
    return {name: reason for name, reason in found.items() if reason}


def why_unfit(graph: Graph, node: NodeProto, mode: Int8) -> str:
    """Why no integer kernel can compute a node; nothing if one can."""
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
    """Why no integer kernel can compute a Gemm."""
    options, bias = attributes(node), bias_of(node)
    if options.get("alpha", 1.0) != 1 or options.get("beta", 1.0) != 1:
        return "alpha or beta multiplies what is not constant"
    if mode == "dynamic":
        return "transA has no integer kernel (--int8 static has)" if options.get("transA") else ""
    vector = graph.is_constant(bias) and len(graph.initializers[bias].dims) == 1
    return "" if not bias or vector else "its bias is no constant vector (--int8 dynamic takes any)"


def excluded(unfit: Iterable[str]) -> list[str]:
    """Nodes to leave alone, also under the name that the quantizer gives the MatMul of a Gemm."""
    return [name + suffix for name in unfit for suffix in ("", "_MatMul")]
