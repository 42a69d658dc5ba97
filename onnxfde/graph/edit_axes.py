"""Keeping some units of an axis, and writing new weights of those who make and read them.

    producer  →  inner nodes  →  readers        rows, numbers for each unit, columns: sliced
    group of a depthwise Conv, lengths in Reshape and Resize, recorded shapes: corrected

Only the nodes and tensors of the axis change. A constant that something else reads stays as it is,
and the axis gets a new one. Weights are cast once, to the type of the old ones. A bias is added
only to a node that has none and needs one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from onnxfde.graph.axes import Axis, Length, Port, Producer, Reader
from onnxfde.graph.constant_edit import ConstantEdit
from onnxfde.graph.model import Graph
from onnxfde.graph.new_nodes import make_add
from onnxfde.graph.nodes import op
from onnxfde.graph.protos import NodeProto
from onnxfde.graph.weight_matrices import as_weight, shape_at
from onnxfde.numbers import Array, FloatArray, Indices


def keep_units(graph: Graph, axis: Axis, kept: Indices) -> Axis:
    """Remove all units but some, which are given in rising order; returns the axis that is left."""
    if not len(kept) or np.any(np.diff(kept) <= 0) or kept[0] < 0 or kept[-1] >= axis.units:
        raise ValueError(f"kept units of {axis.units} must rise, and one at least is kept")
    if len(kept) == axis.units:
        return axis
    edit = AxisEdit(graph, weight_type(graph, axis.producer.node), units=axis.units, kept=kept)
    for port in ports_of(axis):
        edit.keep(port)
    for inner in axis.inner:
        if inner.depthwise:
            set_group(inner.node, len(kept))
        for length in inner.lengths:
            edit.write_length(length)
    blocks = axis.flattened
    graph.resize({n: (at, blocks.get(n, 1) * len(kept)) for n, at in axis.values.items()})
    edit.drop_unused()
    readers = tuple(narrowed(reader, kept) for reader in axis.readers)
    return replace(axis, units=len(kept), readers=readers)


def ports_of(axis: Axis) -> Iterator[Port]:
    """Every constant with numbers for each unit."""
    yield axis.producer.weight
    if axis.producer.bias is not None:
        yield axis.producer.bias
    for inner in axis.inner:
        yield from inner.ports
    for reader in axis.readers:
        yield reader.weight


def narrowed(reader: Reader, kept: Indices) -> Reader:
    """A reader of fewer units, with its columns numbered as they are now."""
    columns = reader.columns[kept]
    return replace(reader, columns=np.searchsorted(np.sort(columns, axis=None), columns))


def set_group(node: NodeProto, groups: int) -> None:
    """Set the number of groups of a Conv."""
    for attribute in node.attribute:
        if attribute.name == "group":
            attribute.i = groups


def weight_type(graph: Graph, node: NodeProto) -> np.dtype[np.floating]:
    """The type of a node's weight."""
    found = graph.constant(node.input[1])
    assert found is not None
    return found.values.dtype


@dataclass
class AxisEdit(ConstantEdit):
    """Changes to the constants of one axis."""

    units: int = 0
    kept: Indices = field(default_factory=lambda: np.zeros(0, np.intp))
    written: dict[tuple[str, int, int], str] = field(default_factory=dict)
    """New constants, by the old name and by where the units were in it."""

    def keep(self, port: Port) -> None:
        """Slice a constant; one number for all units stays."""
        name = port.node.input[port.place]
        values = self.values_at(port.node, port.place)
        if not values.ndim or values.shape[port.dim] == 1:
            return
        every = np.arange(values.shape[port.dim]).reshape(-1, self.units, port.run)
        sliced = np.take(values, every[:, self.kept].ravel(), axis=port.dim)
        key = name, port.dim, port.run
        self.written[key] = self.put(port.node, port.place, sliced, self.written.get(key))

    def write_length(self, length: Length) -> None:
        """Say how many units there are."""
        values = self.values_at(length.node, length.place).copy()
        values.ravel()[length.entry] = length.block * len(self.kept)
        self.put(length.node, length.place, values)

    def values_at(self, node: NodeProto, place: int) -> Array:
        """A constant input; new ones will be stored like it."""
        found = self.graph.constant(node.input[place])
        assert found is not None
        self.as_initializer = found.in_initializer
        return found.values


def write_reader(graph: Graph, reader: Reader, matrix: FloatArray, bias: FloatArray) -> Reader:
    """Write a reader's weight, outputs × columns, and the bias in front of what follows it."""
    return replace(reader, bias=write_product(graph, reader.node, reader.bias, matrix, bias))


def write_producer(
    graph: Graph, producer: Producer, rows: FloatArray, bias: FloatArray
) -> Producer:
    """Write a producer's weight, units × fan-in, and its bias."""
    return replace(producer, bias=write_product(graph, producer.node, producer.bias, rows, bias))


def write_product(
    graph: Graph, node: NodeProto, port: Port | None, matrix: FloatArray, bias: FloatArray
) -> Port | None:
    """Write the weight and the bias of a Conv, Gemm or MatMul; returns where the bias is."""
    edit = ConstantEdit(graph, weight_type(graph, node))
    edit.as_initializer = edit.is_stored(node.input[1])
    edit.store(node, 1, as_weight(graph, node, matrix))
    for attribute in [a for a in node.attribute if a.name in ("alpha", "beta")]:
        if op(node) == "Gemm":
            node.attribute.remove(attribute)
    if port is not None:
        axes = max(len(shape_at(graph, port.node, port.place)), 1)
        edit.store(port.node, port.place, bias.reshape([1] * (axes - 1) + [-1]))
        port = replace(port, dim=axes - 1)
    elif np.any(bias):
        port = add_bias(edit, node, bias)
    edit.drop_unused()
    return port


def add_bias(edit: ConstantEdit, node: NodeProto, bias: FloatArray) -> Port:
    """Give a bias to a product that has none: an input, or an Add behind a MatMul."""
    graph, value = edit.graph, node.output[0]
    name = edit.new_constant(node, f"{value}_bias", bias)
    if op(node) == "MatMul":
        fresh = edit.unused_name(f"{value}_product")
        graph.copy_shape(value, fresh)
        graph.rename_output(node, fresh)
        graph.insert(make_add(f"{value}_add", fresh, name, value), graph.position(node) + 1)
        return Port(graph.producers[value], 1, 0)
    if len(node.input) > 2:
        graph.set_input(node, 2, name)
    else:
        graph.add_input(node, name)
    return Port(node, 2, 0)
