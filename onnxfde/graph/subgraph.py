"""The part of a model that makes some values from its inputs and from values that are known.

    inputs, known values  →  the nodes between  →  wanted values

The part is a model that can be run in place of the whole. A node runs again if one of its outputs
is known and another one is needed. Initializers that a caller may override are constants in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set

import onnx

from onnxfde.graph.model import Graph
from onnxfde.graph.nodes import names_used
from onnxfde.graph.protos import ModelProto, ValueInfoProto
from onnxfde.numbers import Array


def part_making(graph: Graph, wanted: Iterable[str], known: Mapping[str, Array]) -> ModelProto:
    """The part that makes the wanted values; known values, given by example, are inputs of it."""
    wanted, whole = list(wanted), graph.model
    given = {name: known[name] for name in sorted(known.keys() - set(wanted))}
    needed = names_behind(graph, wanted, given.keys())
    nodes = [n for n in whole.graph.node if needed.intersection(n.output) - given.keys()]
    made = {name for node in nodes for name in node.output}
    inputs = [value for value in graph.inputs if value.name in needed]
    fed = {value.name for value in inputs}
    inputs += [value_like(n, a) for n, a in given.items() if n in needed - made - fed]
    part = ModelProto(
        ir_version=whole.ir_version, opset_import=whole.opset_import, functions=whole.functions
    )
    part.graph.name = whole.graph.name
    part.graph.node.extend(nodes)
    part.graph.input.extend(inputs)
    part.graph.initializer.extend(t for t in whole.graph.initializer if t.name in needed)
    sparse = (t for t in whole.graph.sparse_initializer if t.values.name in needed)
    part.graph.sparse_initializer.extend(sparse)
    part.graph.output.extend(ValueInfoProto(name=name) for name in wanted)
    return part


def names_behind(graph: Graph, wanted: Iterable[str], known: Set[str]) -> set[str]:
    """Every value that is needed to make some values, back to inputs and what is known."""
    needed: set[str] = set()
    pending = list(wanted)
    while pending:
        name = pending.pop()
        if name in needed:
            continue
        needed.add(name)
        if name not in known and name in graph.producers:
            pending.extend(names_used(graph.producers[name]))
    return needed


def part_behind(graph: Graph, example: tuple[str, Array], wanted: Iterable[str]) -> Graph:
    """The part that makes the wanted values from a single one, of which it has an example.

    The first axis counts samples; the others are as long as in the example.
    """
    name, array = example
    part = part_making(graph, wanted, {name: array})
    for value in part.graph.input:
        if value.name == name:
            value.CopyFrom(value_like(name, array, tuple(array.shape[1:])))
    return Graph(part, graph.folder)


def value_like(name: str, example: Array, lengths: tuple[int, ...] | None = None) -> ValueInfoProto:
    """An input with the type and the number of axes of an array, and perhaps their lengths."""
    kind = onnx.helper.np_dtype_to_tensor_dtype(example.dtype)
    dims = [None] * example.ndim if lengths is None else [None, *lengths]
    return onnx.helper.make_tensor_value_info(name, kind, dims)


def values_after(graph: Graph, value: str) -> set[str]:
    """A value and everything that is computed from it."""
    found: set[str] = set()
    pending = [value]
    while pending:
        name = pending.pop()
        if name in found:
            continue
        found.add(name)
        for node in graph.consumers.get(name, ()):
            pending.extend(out for out in node.output if out)
    return found
