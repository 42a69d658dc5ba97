"""Weights and values in 8 bits: the last step, for runtimes with integer arithmetic.

    weights  w ≈ s·q,         q = −64 … 64     s for each output channel
    values   x ≈ s·(q − z),   q = 0 … 255      s, z for each: `dynamic` finds them in each run,
                                               `static` has them from data

Neurons are merged with a view to it: a step s of a hidden value h_r moves the outputs by V_r·s, so
large V that cancel are avoided (`minimal`), and hidden values made equally large (`quotients`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from onnxfde.aliases import hide, parts, show
from onnxfde.errors import ModelError, UsageError
from onnxfde.graph import (
    FLOATS,
    Array,
    Graph,
    ModelProto,
    NodeProto,
    TensorProto,
    attributes,
    complete_copy,
    copy_of,
    keyed_tensors,
    make_tensor,
    names_used,
    numpy_dtype,
    op_of,
    to_array,
    upgraded,
)
from onnxfde.inputs import Samples
from onnxfde.options import Int8
from onnxfde.runtime import quantized

CALIBRATION_ROWS = 512
OPSET = 13
"""The first with a scale for each channel."""
CHANNELS = {"Conv": 0, "ConvTranspose": 1, "Gemm": 1, "MatMul": 1}
"""The nodes with weights, and the axis of a weight along which outputs lie."""
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
    given = prepared(graph)
    names = hide(given.graph)
    settle(given)
    unfit = unfit_nodes(Graph(given), mode)
    found = quantized(given, calibration(data, mode, names), excluded(unfit))
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


def products(model: ModelProto) -> list[NodeProto]:
    """The nodes with weights."""
    return [node for node in model.graph.node if op_of(node) in CHANNELS]


def weight_names(model: ModelProto) -> set[str]:
    """The values that stand where weights do."""
    return {node.input[1] for node in products(model)}


def bias_of(node: NodeProto) -> str:
    """The bias of a Gemm; nothing for other nodes."""
    return node.input[2] if op_of(node) == "Gemm" and len(node.input) > 2 else ""


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


class Use(NamedTuple):
    """How a node reads a weight."""

    channels: int
    transposed: bool = False
    factor: float = 1.0


def use_of(node: NodeProto) -> Use:
    """How a node with a weight reads it."""
    channels = CHANNELS[op_of(node)]
    if op_of(node) != "Gemm":
        return Use(channels)
    options = attributes(node)
    return Use(channels, bool(options.get("transB", 0)), options.get("alpha", 1.0))


def readings(graph: Graph) -> dict[str, set[Use | None]]:
    """How each value is read; None for any way but as a weight."""
    found: dict[str, set[Use | None]] = {name: {None} for name in graph.outputs}
    for node in graph.model.graph.node:
        weighted = op_of(node) in CHANNELS
        for place, name in enumerate(names_used(node)):
            use = use_of(node) if weighted and place == 1 else None
            found.setdefault(name, set()).add(use)
    return found


def settle(model: ModelProto) -> None:
    """Gemm without alpha, beta and transB, and a weight of its own for each way of reading one.

    The quantizer keeps one set of scales for each weight, and transposes it for all, in bodies too.
    """
    inner = [node for part in parts(model.graph) for node in part.node if part is not model.graph]
    settle_nodes(model, products(model))
    settle_nodes(model, [node for node in inner if op_of(node) == "Gemm"])
    drop_unread(model)


def settle_nodes(model: ModelProto, nodes: list[NodeProto]) -> None:
    """Give these nodes weights as they read them."""
    graph = Graph(model)
    read, made = readings(graph), dict[tuple[str, Use], str]()
    values = {node.input[1]: floats(graph, node.input[1]) for node in nodes}
    for node in nodes:
        name, use = node.input[1], use_of(node)
        weight = values[name]
        if weight is None:
            continue
        if (name, use) not in made:
            made[name, use] = name if read[name] == {use} else unused(model, name)
            scaled = weight.T if use.transposed else weight
            store(model, made[name, use], times(scaled, use.factor))
        node.input[1] = made[name, use]
        if op_of(node) == "Gemm":
            drop_attributes(node, {"alpha", "transB"})
            settle_bias(graph, node, weight.shape[0 if use.transposed else 1])


def unused(model: ModelProto, alias: str) -> str:
    """A name for another version of an initializer."""
    return f"{alias}_{len(model.graph.initializer)}"


def settle_bias(graph: Graph, node: NodeProto, columns: int) -> None:
    """A constant bias without beta, and a number for each column where it has no rows."""
    if not bias_of(node):
        del node.input[2:]
        drop_attributes(node, {"beta"})
        return
    bias, beta = floats(graph, bias_of(node)), attributes(node).get("beta", 1.0)
    if bias is None:
        return
    drop_attributes(node, {"beta"})
    flat = np.broadcast_to(bias.ravel(), columns) if bias.size in (1, columns) else bias
    fits = bias.ndim < 2 or bias.shape[0] == 1
    if beta != 1 or (fits and bias.shape != (columns,)):
        own = unused(graph.model, node.input[2])
        store(graph.model, own, times(flat if fits else bias, beta))
        node.input[2] = own


def floats(graph: Graph, name: str) -> Array | None:
    """The values of an initializer, if they are in floating point and constant."""
    tensor = graph.initializers.get(name)
    if tensor is None or tensor.data_type not in FLOATS or name in graph.overridable:
        return None
    return to_array(tensor, None)


def times(values: Array, factor: float) -> Array:
    """Values times a factor, rounded once."""
    return values if factor == 1 else (values.astype(np.float64) * factor).astype(values.dtype)


def store(model: ModelProto, name: str, values: Array) -> None:
    """Add or replace an initializer."""
    found = [tensor for tensor in model.graph.initializer if tensor.name == name]
    target = found[0] if found else model.graph.initializer.add()
    target.CopyFrom(make_tensor(name, values))


def drop_unread(model: ModelProto) -> None:
    """Remove the initializers that nothing reads any more."""
    read = {name for node in model.graph.node for name in names_used(node)}
    read |= {value.name for value in (*model.graph.input, *model.graph.output)}
    for tensor in [t for t in model.graph.initializer if t.name not in read]:
        model.graph.initializer.remove(tensor)


def drop_attributes(node: NodeProto, names: set[str]) -> None:
    """Leave attributes at their defaults."""
    kept = [a for a in node.attribute if a.name not in names]
    del node.attribute[:]
    node.attribute.extend(kept)


def unfit_nodes(graph: Graph, mode: Int8) -> dict[str, str]:
    """Nodes with weights that must stay in floating point, and why."""
    found = {node.name: why_unfit(graph, node, mode) for node in products(graph.model)}
    return {name: reason for name, reason in found.items() if reason}


def why_unfit(graph: Graph, node: NodeProto, mode: Int8) -> str:
    """Why no integer kernel can compute a node; nothing if one can."""
    op, weight = op_of(node), graph.initializers.get(node.input[1])
    if op == "MatMul" and graph.is_constant(node.input[0]):
        return "its weight is the first factor, and has to be the second"
    if weight is not None and weight.data_type != TensorProto.FLOAT:
        return f"its weight is in {numpy_dtype(weight.data_type).name}, and has to be in float32"
    if op == "MatMul" and weight is not None and len(weight.dims) != 2:
        return f"its weight has {len(weight.dims)} axes, and has to be a matrix"
    return why_unfit_gemm(graph, node, mode) if op == "Gemm" else ""


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
