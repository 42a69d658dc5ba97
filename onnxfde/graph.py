"""The only door to onnx and onnx-graphsurgeon: reading a model, looking at it, building its parts.

A model is never round-tripped through onnx-graphsurgeon, which loses metadata: graphsurgeon builds
the few nodes and tensors a rewrite adds, and they are written into the original ModelProto.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnx.numpy_helper
import onnx.shape_inference
import onnx.version_converter
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto
from onnx.shape_inference import InferenceError as ShapeError

from onnxfde.errors import ModelError, RuntimeUnavailable

__all__ = [
    "Constant",
    "Graph",
    "GraphProto",
    "ModelProto",
    "NodeProto",
    "ShapeError",
    "TensorProto",
    "ValueInfoProto",
]

Array = npt.NDArray[Any]
Dims = tuple[int | str | None, ...]

ROUNDOFF = {"float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8, "float64": 2.0**-50}
"""Unit roundoff of the dtypes a layer may have; three bits of float64 are left to our own work."""

FLOATS = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.DOUBLE)
REFERENCE_ERRORS = (
    AssertionError,
    NotImplementedError,
    RuntimeError,
    TypeError,
    ValueError,
    AttributeError,
    LookupError,
)
PASS_THROUGH = {"Identity", "Transpose", "Cast"}


def check(model: ModelProto, what: str) -> None:
    """Raise ModelError unless onnx's own checker accepts the model."""
    try:
        onnx.checker.check_model(without_external_data(model))
    except onnx.checker.ValidationError as error:
        first = str(error).strip().splitlines()[0]
        raise ModelError(f"{what} is not a valid ONNX model: {first}") from None


def without_external_data(model: ModelProto) -> ModelProto:
    """A copy whose external tensors are empty, for a checker that would look for the files."""
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
    """An independent copy that holds the weights which lie outside."""
    copy = copy_of(model)
    for tensor in external_tensors(copy):
        tensor.CopyFrom(make_tensor(tensor.name, to_array(tensor, folder)))
    return copy


def upgraded(model: ModelProto, opset: int) -> ModelProto:
    """The same model in a newer version of onnx's operators."""
    try:
        return onnx.version_converter.convert_version(model, opset)
    except (RuntimeError, ValueError) as error:
        first = str(error).strip().splitlines()[0]
        raise ModelError(f"the model cannot be brought to opset {opset}: {first}") from None


def keyed_tensors(model: ModelProto) -> Iterator[tuple[str, TensorProto]]:
    """Every tensor that a model stores, in bodies and functions too, with a name for it."""

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
    """Tensors whose bytes live in a file beside the model."""
    return (t for _, t in keyed_tensors(model) if t.data_location == TensorProto.EXTERNAL)


@dataclass(frozen=True)
class External:
    """Where an external tensor's bytes are."""

    file: Path
    offset: int
    length: int


def locate(tensor: TensorProto, folder: Path) -> External:
    """Find an external tensor's bytes, refusing a path that leaves the model's folder."""
    info = {entry.key: entry.value for entry in tensor.external_data}
    location, start, length = (info.get(key, "") for key in ("location", "offset", "length"))
    file = folder / location
    inside = not Path(location).is_absolute() and file.resolve().is_relative_to(folder.resolve())
    if not location or not inside:
        raise ModelError(f"external data '{location}' lies outside the model's folder {folder}")
    if not file.is_file():
        raise ModelError(f"external data file {file} is missing (tensor '{tensor.name}')")
    if not (start or "0").isdecimal() or not (length or "0").isdecimal():
        raise ModelError(f"tensor '{tensor.name}' has a bad offset or length in its external data")
    offset = int(start or 0)
    available = file.stat().st_size - offset
    if available < 0 or int(length or 0) > available:
        raise ModelError(f"external data file {file} is too short for tensor '{tensor.name}'")
    return External(file, offset, int(length) if length else available)


def set_external(tensor: TensorProto, location: str, offset: int, length: int) -> None:
    """Point a tensor to its bytes in a file beside the model."""
    tensor.ClearField("raw_data")
    del tensor.external_data[:]
    for key, value in (("location", location), ("offset", offset), ("length", length)):
        tensor.external_data.add(key=key, value=str(value))
    tensor.data_location = TensorProto.EXTERNAL


def to_array(tensor: TensorProto, folder: Path | None) -> Array:
    """A tensor's values, read from its file if they are external."""
    if tensor.data_location != TensorProto.EXTERNAL:
        return onnx.numpy_helper.to_array(tensor)
    place = locate(tensor, folder or Path())
    with place.file.open("rb") as stream:
        stream.seek(place.offset)
        raw = stream.read(place.length)
    inline = TensorProto(data_type=tensor.data_type, dims=tensor.dims, raw_data=raw)
    return onnx.numpy_helper.to_array(inline)


def attributes(node: NodeProto) -> dict[str, Any]:
    """A node's attributes as Python values."""
    return {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}


def bodies(node: NodeProto) -> Iterator[GraphProto]:
    """The graphs inside a node (If, Loop, Scan)."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def names_used(node: NodeProto) -> Iterator[str]:
    """Values a node reads, also from inside its bodies."""
    yield from node.input
    for body in bodies(node):
        for inner in body.node:
            yield from names_used(inner)
        yield from (output.name for output in body.output)


@dataclass(frozen=True, eq=False)
class Constant:
    """A constant value: where it is stored and what it is."""

    values: Array
    in_initializer: bool

    @property
    def array(self) -> npt.NDArray[np.float64]:
        """The values as float64."""
        return self.values.astype(np.float64)


@dataclass(frozen=True, eq=False)
class Graph:
    """The main graph of a model with the look-ups that matching needs; never changes the model."""

    model: ModelProto
    folder: Path | None = None

    @cached_property
    def producers(self) -> dict[str, NodeProto]:
        """Which node makes a value."""
        return {name: node for node in self.model.graph.node for name in node.output if name}

    @cached_property
    def consumers(self) -> dict[str, list[NodeProto]]:
        """Which nodes read a value, each once."""
        found: dict[str, list[NodeProto]] = {}
        for node in self.model.graph.node:
            for name in dict.fromkeys(names_used(node)):
                found.setdefault(name, []).append(node)
        return found

    @cached_property
    def outputs(self) -> set[str]:
        """Names of the graph's outputs."""
        return {value.name for value in self.model.graph.output}

    @cached_property
    def initializers(self) -> dict[str, TensorProto]:
        """Initializers by name."""
        return {tensor.name: tensor for tensor in self.model.graph.initializer}

    @cached_property
    def overridable(self) -> set[str]:
        """Initializers that a caller may replace, because they are inputs as well."""
        return {v.name for v in self.model.graph.input if v.name in self.initializers}

    @cached_property
    def inputs(self) -> list[ValueInfoProto]:
        """The inputs a caller must give."""
        return [v for v in self.model.graph.input if v.name not in self.initializers]

    @cached_property
    def opset(self) -> int:
        """The version of onnx's own operators that the model uses."""
        versions = (o.version for o in self.model.opset_import if o.domain in ("", "ai.onnx"))
        return next(versions, 1)

    @cached_property
    def _shapes(self) -> dict[str, Dims]:
        inferred = onnx.shape_inference.infer_shapes(self.model).graph
        values = (*inferred.input, *inferred.value_info, *inferred.output)
        return {v.name: dims(v) for v in values if v.type.tensor_type.HasField("shape")}

    def rank(self, name: str) -> int | None:
        """How many axes a value has, when that is known."""
        shape = self._shapes.get(name)
        return None if shape is None else len(shape)

    def shape(self, name: str) -> Dims | None:
        """The shape of a value, when that is known."""
        return self._shapes.get(name)

    def is_constant(self, name: str) -> bool:
        """Whether a value is the same in every run."""
        name = self._behind(name)[0]
        if name in self.initializers:
            return name not in self.overridable
        node = self.producers.get(name)
        if node is None or op_of(node) != "Constant":
            return False
        return not any(a.name.startswith(("sparse", "value_string")) for a in node.attribute)

    def constant(self, name: str) -> Constant | None:
        """The value of a constant, or None."""
        if not self.is_constant(name):
            return None
        source, nodes = self._behind(name)
        values = self._stored(source)
        for node in reversed(nodes):
            values = derived(node, values)
        return Constant(values, in_initializer=source in self.initializers)

    def _behind(self, name: str) -> tuple[str, list[NodeProto]]:
        """The value that is only copied, transposed or cast to make this one, and by what."""
        nodes: list[NodeProto] = []
        while name not in self.initializers:
            node = self.producers.get(name)
            if node is None or op_of(node) not in PASS_THROUGH:
                break
            nodes.append(node)
            name = node.input[0]
        return name, nodes

    def _stored(self, name: str) -> Array:
        """The values of an initializer or of a Constant node."""
        if name in self.initializers:
            return to_array(self.initializers[name], self.folder)
        attribute = self.producers[name].attribute[0]
        value = onnx.helper.get_attribute_value(attribute)
        if isinstance(value, TensorProto):
            return to_array(value, self.folder)
        return np.asarray(value, dtype=np.float32 if "float" in attribute.name else np.int64)


def op_of(node: NodeProto) -> str:
    """The name of one of onnx's own operators; nothing for others."""
    return str(node.op_type) if node.domain in ("", "ai.onnx") else ""


def derived(node: NodeProto, values: Array) -> Array:
    """Identity, Transpose or Cast of a constant."""
    options = attributes(node)
    if node.op_type == "Transpose":
        return values.transpose(options.get("perm"))
    return values.astype(numpy_dtype(options["to"])) if node.op_type == "Cast" else values


def dims(value: ValueInfoProto) -> Dims:
    """The shape of a value: numbers, symbols, or None where nothing is said."""
    shape = value.type.tensor_type.shape
    return tuple(
        d.dim_value if d.HasField("dim_value") else (d.dim_param or None) for d in shape.dim
    )


def inferred_dims(model: ModelProto, inputs: Mapping[str, Dims]) -> dict[str, Dims]:
    """The shapes of all values that onnx can tell, for inputs of these shapes."""
    light = copy_of(model)
    for value in light.graph.input:
        if value.name in inputs:
            del value.type.tensor_type.shape.dim[:]
            for length in inputs[value.name]:
                value.type.tensor_type.shape.dim.add(dim_value=int(length or 0))
    for value in light.graph.output:
        value.type.tensor_type.ClearField("shape")
    del light.graph.value_info[:]
    try:
        known = onnx.shape_inference.infer_shapes(light, data_prop=True).graph
    except (onnx.shape_inference.InferenceError, RuntimeError, ValueError):
        return {}
    found = {t.name: tuple(t.dims) for t in known.initializer}
    values = (*known.input, *known.value_info, *known.output)
    return found | {v.name: dims(v) for v in values if v.type.tensor_type.HasField("shape")}


def numpy_dtype(data_type: int) -> np.dtype[Any]:
    """The numpy dtype of an ONNX one (bfloat16 included)."""
    return onnx.helper.tensor_dtype_to_np_dtype(data_type)


def make_tensor(name: str, values: Array) -> TensorProto:
    """A tensor with these values."""
    return onnx.numpy_helper.from_array(np.asarray(values, order="C"), name)


def make_constant(name: str, values: Array) -> NodeProto:
    """A Constant node that makes these values."""
    return onnx.helper.make_node("Constant", [], [name], name, value=make_tensor("", values))


def make_add(name: str, value: str, addend: str, output: str) -> NodeProto:
    """Output = value + addend."""
    import onnx_graphsurgeon as gs

    inputs = [gs.Variable(value), gs.Variable(addend)]
    node = gs.Node("Add", name, inputs=inputs, outputs=[gs.Variable(output)])
    built: ModelProto = gs.export_onnx(gs.Graph([node]), do_type_check=False)
    return built.graph.node[0]


def reference_runner(
    model: ModelProto, folder: Path | None
) -> Callable[[dict[str, Array]], list[Array]]:
    """Onnx's reference implementation of a model."""
    from onnx.reference import ReferenceEvaluator

    complete = complete_copy(model, folder)

    def unavailable(error: BaseException) -> RuntimeUnavailable:
        first = str(error).strip().splitlines() or [type(error).__name__]
        return RuntimeUnavailable(f"onnx.reference: {first[0]}")

    try:
        evaluator = ReferenceEvaluator(complete)
    except REFERENCE_ERRORS as error:
        raise unavailable(error) from None

    def run(feeds: dict[str, Array]) -> list[Array]:
        try:
            return [np.asarray(a) for a in evaluator.run(None, feeds)]
        except REFERENCE_ERRORS as error:
            raise unavailable(error) from None

    return run


def evaluate(node: NodeProto, inputs: Sequence[Array | None], opset: int) -> list[Array]:
    """What onnx's reference implementation of one node makes of arrays; None for no input."""
    from onnx.reference import ReferenceEvaluator

    single = NodeProto()
    single.CopyFrom(node)
    single.input[:] = ["" if a is None else f"input{i}" for i, a in enumerate(inputs)]
    feeds = {f"input{i}": a for i, a in enumerate(inputs) if a is not None}
    graph = GraphProto(name="node", node=[single])
    graph.input.extend(ValueInfoProto(name=name) for name in feeds)
    graph.output.extend(ValueInfoProto(name=name) for name in single.output)
    model = ModelProto(graph=graph, opset_import=[onnx.helper.make_opsetid("", opset)])
    try:
        evaluator = ReferenceEvaluator(model)
        return [np.asarray(a) for a in evaluator.run(None, feeds)]
    except REFERENCE_ERRORS as error:
        first = str(error).strip().splitlines() or [type(error).__name__]
        raise RuntimeUnavailable(f"onnx.reference: {first[0]}") from None
