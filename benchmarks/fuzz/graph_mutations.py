"""Models changed as a graph: wires, operators, shapes, types, weights, versions, places of data."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from random import Random
from typing import Any, TypeVar

import numpy as np
from google.protobuf.message import DecodeError
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto

from benchmarks.fuzz.proto_mutations import (
    EDGE_FLOATS,
    EDGE_INTEGERS,
    ODD_TEXTS,
    messages,
    mutate_any_field,
    transplant,
)

Kind = TypeVar("Kind")
OPERATORS = (
    "Gemm", "MatMul", "Conv", "Mul", "Add", "Sub", "Div", "Pow", "Neg", "Identity", "Dropout",
    "Flatten", "Sum", "BatchNormalization", "Relu", "Reshape", "Transpose", "Shape", "Constant",
    "ConstantOfShape", "Range", "Expand", "Loop", "If", "Scan", "Cast", "Concat", "Split", "Gather",
    "ReduceMean", "Softmax", "SequenceConstruct", "Optional", "Nothing", "", "Tile", "Pad",
    "QuantizeLinear", "DequantizeLinear", "MatMulInteger", "LSTM", "Einsum", "NonZero", "TopK",
)  # fmt: skip
ATTRIBUTE_TYPES: list[Any] = list(AttributeProto.AttributeType.values())
FLOATS: dict[int, np.dtype[Any]] = {
    TensorProto.FLOAT: np.dtype(np.float32),
    TensorProto.DOUBLE: np.dtype(np.float64),
    TensorProto.FLOAT16: np.dtype(np.float16),
}
LENGTHS = (-1, 0, 1, 2, 3, 5, 6, 7, 1000, 50_000_000, 2**31, 2**33, 2**62, 2**63 - 1, -5)
"""Lengths of axes."""
VERSIONS = (-1, 0, 1, 2, 3, 6, 7, 8, 12, 13, 18, 21, 22, 24, 30, 1000, 2**31, 2**63 - 1)
"""Of opsets and of the file format."""
PLACES = (
    "", ".", "w.data", "in.onnx", "base.onnx", "missing.data", "../outside.data", "deep/w.data",
    "deep", "w.data\0", "a" * 300, "a" * 5000, "./w.data", "deep/../w.data", "rows.npz", "*", "\n",
)  # fmt: skip
"""Names of data files."""
OFFSETS = ("", "0", "4", "-1", "9" * 30, "9" * 5000, "1e3", "0x10", " 8", "٣", "1048576", "72")
"""Offsets and lengths in data files, which are texts."""


def of_type(root: ModelProto, kind: type[Kind], rng: Random) -> Kind | None:
    """One message of a type, anywhere in the model."""
    found = [m for m in messages(root) if isinstance(m, kind)]
    return rng.choice(found) if found else None


def value_names(model: ModelProto) -> list[str]:
    """The names of all values of the main graph."""
    graph = model.graph
    made = [name for node in graph.node for name in (*node.input, *node.output)]
    return [*made, *(t.name for t in graph.initializer), *(v.name for v in graph.input)]


def rewire(model: ModelProto, rng: Random) -> None:
    """Let a node read another value, which may be its own result, or make another one."""
    node = of_type(model, NodeProto, rng)
    names = value_names(model)
    if node is None or not names:
        return
    ends = node.input if rng.random() < 0.7 else node.output
    if len(ends) and rng.random() < 0.8:
        ends[rng.randrange(len(ends))] = rng.choice([*names, "", "nothing"])
    else:
        ends.append(rng.choice(names))


def exchange_operator(model: ModelProto, rng: Random) -> None:
    """Another operator, or another domain."""
    node = of_type(model, NodeProto, rng)
    if node is not None and rng.random() < 0.9:
        node.op_type = rng.choice(OPERATORS)
    elif node is not None:
        node.domain = rng.choice(("ai.onnx", "com.microsoft", "local", "x", ""))


def reshape_tensor(model: ModelProto, rng: Random) -> None:
    """Other dimensions, another type or another amount of bytes in a stored tensor."""
    tensor = of_type(model, TensorProto, rng)
    if tensor is None:
        return
    match rng.randrange(5):
        case 0 if len(tensor.dims):
            tensor.dims[rng.randrange(len(tensor.dims))] = rng.choice(LENGTHS)
        case 1:
            tensor.dims.append(rng.choice((0, 1, *LENGTHS)))
        case 2:
            tensor.data_type = rng.choice((*range(30), 77, 99, -1))
        case 3:
            tensor.raw_data = tensor.raw_data[: -rng.randint(1, 9)]
        case _:
            tensor.raw_data += rng.randbytes(rng.choice((1, 4, 100, 5000)))


def reweigh(model: ModelProto, rng: Random) -> None:
    """Extreme numbers in a stored tensor: one, some, or all of them."""
    tensor = of_type(model, TensorProto, rng)
    if tensor is None or tensor.data_type not in FLOATS or not tensor.raw_data:
        return
    dtype = FLOATS[tensor.data_type]
    whole = len(tensor.raw_data) // dtype.itemsize * dtype.itemsize
    values = np.frombuffer(tensor.raw_data[:whole], dtype).copy()
    with np.errstate(all="ignore"):
        match rng.randrange(3) if values.size else 3:
            case 0:
                values[rng.randrange(values.size)] = np.float64(rng.choice(EDGE_FLOATS))
            case 1:
                values[:] = np.float64(rng.choice(EDGE_FLOATS))
            case 2:
                factor = 10.0 ** rng.choice((-40, -20, 10, 18, 30, 37, 300))
                values = (values * factor).astype(dtype)
    tensor.raw_data = values.tobytes()


def retype(model: ModelProto, rng: Random) -> None:
    """Another shape or type of an input, an output or a value."""
    value = of_type(model, ValueInfoProto, rng)
    if value is None:
        return
    kind = value.type.tensor_type
    match rng.randrange(5):
        case 0:
            kind.elem_type = rng.choice((*range(30), 77, 99))
        case 1 if len(kind.shape.dim):
            kind.shape.dim[rng.randrange(len(kind.shape.dim))].dim_value = rng.choice(LENGTHS)
        case 2:
            kind.shape.dim.add(dim_value=rng.choice(LENGTHS))
        case 3 if len(kind.shape.dim):
            kind.shape.dim[0].dim_param = rng.choice(("N", "", "M", "a\nb"))
        case _:
            kind.ClearField("shape")


def change_attribute(model: ModelProto, rng: Random) -> None:
    """Another type, value or name of an attribute."""
    attribute = of_type(model, AttributeProto, rng)
    if attribute is None:
        return
    match rng.randrange(4):
        case 0:
            attribute.type = rng.choice(ATTRIBUTE_TYPES)
        case 1:
            attribute.i = rng.choice(EDGE_INTEGERS)
            attribute.type = AttributeProto.INT
        case 2:
            attribute.f = rng.choice((0.0, 1e38, float("nan"), -1.0))
            attribute.type = AttributeProto.FLOAT
        case _:
            attribute.name = rng.choice(("transA", "transB", "alpha", "axis", "to", "value", ""))


def rename(model: ModelProto, rng: Random) -> None:
    """An odd name, or one that another thing has, everywhere the old one stood."""
    names = value_names(model)
    if not names:
        return
    old, new = rng.choice(names), rng.choice([*ODD_TEXTS, *names])
    for node in (m for m in messages(model) if isinstance(m, NodeProto)):
        for ends in (node.input, node.output):
            ends[:] = [new if name == old else name for name in ends]
    things: tuple[Any, ...] = (*model.graph.initializer, *model.graph.input, *model.graph.output)
    for thing in things:
        thing.name = new if thing.name == old else thing.name


def change_ports(model: ModelProto, rng: Random) -> None:
    """Inputs and outputs of the graph dropped, doubled, or taken from inside."""
    graph = model.graph
    match rng.randrange(4):
        case 0 if len(graph.output):
            del graph.output[rng.randrange(len(graph.output))]
        case 1 if len(graph.input):
            del graph.input[rng.randrange(len(graph.input))]
        case 2 if len(graph.initializer):
            tensor = rng.choice(graph.initializer)
            value = graph.input.add(name=tensor.name)
            value.type.tensor_type.elem_type = rng.choice((tensor.data_type, 7, 0))
        case _:
            name = rng.choice(value_names(model) or ["x"])
            graph.output.add(name=name).type.tensor_type.elem_type = TensorProto.FLOAT


def move_data(model: ModelProto, rng: Random) -> None:
    """Let a tensor lie in a data file, at a place that may not be there."""
    tensor = of_type(model, TensorProto, rng)
    if tensor is None:
        return
    if rng.random() < 0.8:
        tensor.data_location = TensorProto.EXTERNAL
    if rng.random() < 0.6:
        del tensor.external_data[:]
    for key, known in (("location", PLACES), ("offset", OFFSETS), ("length", OFFSETS)):
        if rng.random() < 0.6:
            tensor.external_data.add(key=key, value=rng.choice(known))


def change_versions(model: ModelProto, rng: Random) -> None:
    """Another opset, domain or file format."""
    match rng.randrange(3):
        case 0 if len(model.opset_import):
            rng.choice(model.opset_import).version = rng.choice(VERSIONS)
        case 1:
            model.opset_import.add(domain=rng.choice(("", "x")), version=rng.choice(VERSIONS))
        case _:
            model.ir_version = rng.choice(VERSIONS)


def nest(model: ModelProto, rng: Random) -> None:
    """Put the nodes into a branch of an If, several times over."""
    times = rng.choice((1, 1, 2, 5, 20))
    branches = ("then_branch", "else_branch")[: 1 if times > 5 else rng.choice((1, 2, 2))]
    for _ in range(times):
        body = GraphProto(name="body", node=model.graph.node, output=model.graph.output)
        names = [value.name for value in model.graph.output]
        condition = rng.choice(value_names(model) or ["x"])
        del model.graph.node[:]
        node = model.graph.node.add(op_type="If", input=[condition], output=names)
        for branch in branches:
            node.attribute.add(name=branch, type=AttributeProto.GRAPH, g=body)


GRAPH_MUTATIONS: tuple[Callable[[ModelProto, Random], None], ...] = (
    mutate_any_field, mutate_any_field, mutate_any_field, mutate_any_field, transplant, transplant,
    rewire, rewire, exchange_operator, exchange_operator, reshape_tensor, reshape_tensor, reweigh,
    reweigh, reweigh, retype, retype, change_attribute, change_attribute, rename, rename,
    change_ports, move_data, move_data, change_versions, nest,
)  # fmt: skip
"""Those that find more are listed more than once."""
LARGEST_MUTANT = 1 << 22
"""Bytes above which a model is mutated no further: nesting may double it each time."""


def mutated(model: ModelProto, rng: Random) -> ModelProto:
    """A copy after one to five mutations."""
    copy = ModelProto()
    copy.CopyFrom(model)
    for _ in range(rng.choice((1, 1, 1, 2, 2, 3, 5))):
        if copy.ByteSize() < LARGEST_MUTANT:
            with contextlib.suppress(DecodeError):  # nested too deeply for protobuf
                rng.choice(GRAPH_MUTATIONS)(copy, rng)
    return copy
