"""A part of a model as a model: what makes some values out of inputs and values that are known."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import onnx

from onnxfde.graph.model import Graph
from onnxfde.graph.nodes import names_used
from onnxfde.graph.protos import ModelProto, ValueInfoProto
from onnxfde.numbers import Array


def part_making(graph: Graph, wanted: Iterable[str], known: Mapping[str, Array]) -> ModelProto:
    """The part that makes the wanted values, with known values (given by example) as its inputs."""
    wanted = list(wanted)
    needed = names_behind(graph, wanted, known.keys() - set(wanted))
    model, inputs = graph.model, {value.name for value in graph.model.graph.input}
    part = ModelProto(
        ir_version=model.ir_version, opset_import=model.opset_import, functions=model.functions
    )
    part.graph.name = model.graph.name
    given = {name for name in known if name in needed and name not in inputs}
    part.graph.node.extend(n for n in model.graph.node if needed.intersection(n.output) - given)
    given -= {name for node in part.graph.node for name in node.output}
    part.graph.input.extend(v for v in model.graph.input if v.name in needed)
    part.graph.input.extend(value_like(name, known[name]) for name in sorted(given))
    part.graph.initializer.extend(t for t in model.graph.initializer if t.name in needed)
    part.graph.output.extend(ValueInfoProto(name=name) for name in wanted)
    return part


def names_behind(graph: Graph, wanted: Iterable[str], known: set[str]) -> set[str]:
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


def value_like(name: str, example: Array) -> ValueInfoProto:
    """An input with the type and the number of axes of an array."""
    kind = onnx.helper.np_dtype_to_tensor_dtype(example.dtype)
    return onnx.helper.make_tensor_value_info(name, kind, [None] * example.ndim)


def values_after(graph: Graph, value: str) -> set[str]:
    """A value and all that is computed from it."""
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
