"""An axis as a chain of operations on maps, for a descent, and its weights back in the graph.

    producer → inner nodes → reader → constants behind it    ⇔    `neurons/conv_chain.ConvChain`

Signals are maps with one row. A descent moves the weights of convolutions and matrices; constants
behind them, as those of BatchNormalization, stay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from onnxfde.graph.activation_patterns import activation_of, added_bias
from onnxfde.graph.affine_maps import NoMatch, normalization_steps
from onnxfde.graph.axes import Axis, Inner, Port
from onnxfde.graph.axis_readers import reader_bias, reader_matrix
from onnxfde.graph.axis_steps import Step
from onnxfde.graph.edit_axes import weight_type, write_producer, write_product, write_reader
from onnxfde.graph.find_axes import producer_rows
from onnxfde.graph.function_reading import function_of
from onnxfde.graph.known_forms import known_activation, polynomial_form
from onnxfde.graph.model import Graph
from onnxfde.graph.node_windows import node_window
from onnxfde.graph.nodes import attributes, label, op
from onnxfde.graph.protos import NodeProto
from onnxfde.graph.weight_matrices import array_at, bias_vector, only_reader
from onnxfde.neurons.conv_chain import ConvChain
from onnxfde.neurons.map_operations import (
    Activated,
    AveragePool,
    Convolution,
    Dense,
    Depthwise,
    GlobalAverage,
    MaxPool,
    Operation,
    ScaleShift,
)
from onnxfde.neurons.map_windows import Size
from onnxfde.neurons.piecewise_activations import IDENTITY
from onnxfde.numbers import ROUNDOFF, FloatArray

IDLE = {"Identity", "Dropout"}
"""Operators that a chain leaves out."""
LAYOUT = {"Concat", "Expand", "Slice", "Split", "Tile"}
"""Operators that a chain leaves out where they change no length."""
LIMITS = {"Max", "Min"}
"""Operators that are read by what they compute: Clip as exporters spell it."""
FLATTENING = {"Flatten", "Reshape", "Squeeze"}
"""Operators that a chain leaves out in front of a matrix, which reads flattened maps."""


@dataclass(frozen=True, eq=False)
class AxisChain:
    """The chain of an axis with one reader, for what its producer reads."""

    axis: Axis
    chain: ConvChain
    nodes: tuple[Inner | None, ...]
    """The depthwise Conv that each operation is; None for all others."""
    reader_at: int
    """The place of the reader among the operations."""
    after: Activated
    """The activation behind the axis's target."""

    @property
    def fixed(self) -> tuple[int, ...]:
        """Places of operations that a descent does not move."""
        operations = enumerate(self.chain.operations)
        return tuple(i for i, operation in operations if isinstance(operation, ScaleShift))

    def write(self, graph: Graph, moved: ConvChain) -> None:
        """Store the weights of the chain after a descent."""
        producer, reader = moved.operations[0], moved.operations[self.reader_at]
        assert isinstance(producer, Convolution)
        assert isinstance(reader, Convolution | Dense)
        write_producer(graph, self.axis.producer, *plain(producer))
        for inner, operation in zip(self.nodes, moved.operations, strict=True):
            if inner is not None:
                assert isinstance(operation, Depthwise)
                write_product(graph, inner.node, bias_port(inner.node), *plain(operation))
        blocks, bias = plain(reader)
        columns = self.axis.readers[0].columns
        matrix = np.zeros(blocks.shape)
        matrix[:, columns.ravel()] = blocks
        write_reader(graph, self.axis.readers[0], matrix, bias)


def plain(operation: Convolution | Depthwise | Dense) -> tuple[FloatArray, FloatArray]:
    """Weights as a matrix, and the bias, in float64."""
    weight = operation.weight.astype(np.float64)
    assert operation.bias is not None
    return weight.reshape(len(weight), -1), operation.bias.astype(np.float64)


def axis_chain(graph: Graph, axis: Axis, size: Size) -> AxisChain:
    """The chain of an axis whose producer reads maps of a size; NoMatch says why it has none."""
    if len(axis.readers) != 1:
        raise NoMatch("several nodes read its channels")
    if op(axis.producer.node) != "Conv":
        raise NoMatch("no convolution makes its channels")
    operations: list[Operation] = [producer_operation(graph, axis, size)]
    nodes: list[Inner | None] = [None]
    size, value = operations[0].size(size), axis.producer.value
    dense = op(axis.readers[0].node) != "Conv"
    for group in closed_groups(axis):
        inner, argument, value = group[0], value, group[-1].node.output[0]
        if len(group) > 1 or op(inner.node) in LIMITS or list(inner.node.input).count(argument) > 1:
            operations.append(joined_activation(graph, axis, argument, group))
            nodes.append(None)
            continue
        if is_idle(graph, inner.node) or (dense and op(inner.node) in FLATTENING):
            continue
        made = inner_operation(graph, inner, axis.units, size)
        operations.append(made)
        nodes.append(inner if inner.depthwise else None)
        size = made.size(size)
    reader, at = axis.readers[0], len(operations)
    operations.append(reader_operation(graph, axis, size))
    operations.append(ScaleShift(single(reader.scale), single(reader.shift)))
    behind = activation_behind(graph, reader.target)
    return AxisChain(axis, ConvChain(tuple(operations)), (*nodes, None, None), at, behind)


def is_idle(graph: Graph, node: NodeProto) -> bool:
    """Whether a node changes nothing."""
    before, after = ((graph.shape(n) or ())[1:] for n in (node.input[0], node.output[0]))
    same = before == after and bool(before) and None not in before
    return op(node) in IDLE or (op(node) in LAYOUT and same)


def closed_groups(axis: Axis) -> Iterator[tuple[Inner, ...]]:
    """The nodes inside in order; those together between which more than one value is in use."""
    group: list[Inner] = []
    for number, inner in enumerate(axis.inner):
        group.append(inner)
        later = {name for other in axis.inner[number + 1 :] for name in other.node.input}
        values = {axis.producer.value, *(i.node.output[0] for i in axis.inner[: number + 1])}
        if not (values & later) - {inner.node.output[0]}:
            yield tuple(group)
            group = []


def joined_activation(
    graph: Graph, axis: Axis, argument: str, group: tuple[Inner, ...]
) -> Activated:
    """The activation that nodes compute together, as x² and SiLU are spelled."""
    nodes = [inner.node for inner in group]
    form = function_of(graph, nodes, argument, nodes[-1].output[0])
    roundoff = ROUNDOFF[weight_type(graph, axis.producer.node).name]
    found = polynomial_form(form) or known_activation(form, roundoff)
    if found is None:
        last = nodes[-1]
        raise NoMatch(f"{op(last)} '{label(last)}' makes no activation that is known")
    return Activated(found)


def single(a: FloatArray) -> FloatArray:
    """Numbers as a descent keeps them."""
    return a.astype(np.float32)


def kernel_of(graph: Graph, node: NodeProto) -> tuple[int, ...]:
    """The window of a Conv."""
    return array_at(graph, node, 1).shape[2:]


def producer_operation(graph: Graph, axis: Axis, size: Size) -> Convolution:
    """The convolution that makes the channels."""
    node = axis.producer.node
    window = node_window(node, kernel_of(graph, node), size)
    rows, bias = producer_rows(graph, axis.producer)
    weight = rows.reshape(axis.units, -1, *window.kernel)
    return Convolution(single(weight), single(bias), window=window)


def reader_operation(graph: Graph, axis: Axis, size: Size) -> Convolution | Dense:
    """The product that reads the channels."""
    reader = axis.readers[0]
    matrix, bias = reader_matrix(graph, reader), reader_bias(graph, reader)
    blocks = matrix[:, reader.columns.ravel()]
    if op(reader.node) != "Conv":
        if reader.columns.shape[1] != size[0] * size[1]:
            raise NoMatch(f"'{label(reader.node)}' reads rows of several positions")
        return Dense(single(blocks), single(bias))
    window = node_window(reader.node, kernel_of(graph, reader.node), size)
    weight = blocks.reshape(len(blocks), axis.units, *window.kernel)
    return Convolution(single(weight), single(bias), window=window)


def inner_operation(graph: Graph, inner: Inner, units: int, size: Size) -> Operation:
    """One node between producer and reader."""
    node = inner.node
    if inner.depthwise:
        window = node_window(node, kernel_of(graph, node), size)
        weight = array_at(graph, node, 1).reshape(units, *window.kernel)
        bias = bias_vector(graph, node, bias_port(node), units)
        return Depthwise(single(weight), single(bias), window=window)
    if op(node) in CONSTANT_STEPS:
        return constant_step(graph, inner, units)
    if op(node) in OPERATIONS:
        return OPERATIONS[op(node)](graph, node, units, size)
    activation = None if added_bias(node) else activation_of(graph, node)
    if activation is None:
        raise NoMatch(f"minimal does not know {op(node)} '{label(node)}'")
    numbers = tuple(array_at(graph, node, 1 + i).ravel() for i in range(activation.parameters))
    return Activated(activation, tuple(np.broadcast_to(a, units) for a in numbers))


def constant_step(graph: Graph, inner: Inner, units: int) -> ScaleShift:
    """A factor or a term, one number for all channels or one for each."""
    node, ones = inner.node, np.ones(units)
    (place,) = (i for i, name in enumerate(node.input) if graph.is_constant(name))
    if op(node) == "Div" and place == 0:
        raise NoMatch(f"minimal does not know {op(node)} '{label(node)}' of a constant")
    numbers = array_at(graph, node, place)
    if numbers.size not in (1, units) or (numbers.size > 1 and not inner.ports):
        raise NoMatch(f"{op(node)} '{label(node)}' has other numbers than one for each channel")
    factor, term = CONSTANT_STEPS[op(node)](numbers.ravel(), place == 0)
    return ScaleShift(single(factor * ones), single(term * ones))


def bias_port(node: NodeProto) -> Port | None:
    """Where a Conv has its bias."""
    return Port(node, 2, 0) if len(node.input) > 2 and node.input[2] else None


def normalization(graph: Graph, node: NodeProto, units: int, size: Size) -> Operation:
    """BatchNormalization as a factor and a shift."""
    (_, shift), (factor, term) = normalization_steps(graph, node, units)
    return ScaleShift(single(factor), single(factor * shift + term))


def mean_operation(graph: Graph, node: NodeProto, units: int, size: Size) -> Operation:
    """A mean over all positions of a map, as exporters spell a global pool."""
    axes = Step(graph, node, {}, units).integers("axes", 1) or []
    of_maps = {axis % 4 for axis in axes} == {2, 3}
    of_signals = axes == [-1] and size[0] == 1
    if not (of_maps or of_signals):
        raise NoMatch(f"minimal does not know {op(node)} '{label(node)}' over axes {axes}")
    return GlobalAverage()


def pool_operation(make: Callable[..., Operation]) -> Callable[..., Operation]:
    """A pool whose padding is not counted, or counted if the node says so."""

    def read(graph: Graph, node: NodeProto, units: int, size: Size) -> Operation:
        options = attributes(node)
        window = node_window(node, tuple(options["kernel_shape"]), size)
        if make is AveragePool:
            return AveragePool(bool(options.get("count_include_pad", 0)), window=window)
        return make(window=window)

    return read


OPERATIONS: dict[str, Callable[[Graph, NodeProto, int, Size], Operation]] = {
    "BatchNormalization": normalization,
    "AveragePool": pool_operation(AveragePool),
    "MaxPool": pool_operation(MaxPool),
    "ReduceMean": mean_operation,
    "GlobalAveragePool": lambda graph, node, units, size: GlobalAverage(),
}
"""What a node between producer and reader is in a chain, besides activations."""


CONSTANT_STEPS: dict[str, Callable[[FloatArray, bool], tuple[FloatArray, FloatArray]]] = {
    "Mul": lambda numbers, first: (numbers, np.zeros(1)),
    "Div": lambda numbers, first: (1 / numbers, np.zeros(1)),
    "Add": lambda numbers, first: (np.ones(1), numbers),
    "Sub": lambda numbers, first: (-np.ones(1), numbers) if first else (np.ones(1), -numbers),
}
"""The factor and the term of a node with a constant, which may be its first input."""


def activation_behind(graph: Graph, target: str) -> Activated:
    """The activation that alone reads a value, if one does and it has no parameters."""
    node = only_reader(graph, target)
    if node is None or added_bias(node):
        return Activated(IDENTITY)
    try:
        found = activation_of(graph, node)
    except NoMatch:
        found = None
    return Activated(IDENTITY if found is None or found.parameters else found)
