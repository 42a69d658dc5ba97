"""Changing the constants of a model: in place, or beside the old one where others read that.

Constants that nothing reads after the changes are removed at the end (`drop_unused`).
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from onnxfde.graph.large_files import take_inside
from onnxfde.graph.model import Graph
from onnxfde.graph.new_nodes import make_constant
from onnxfde.graph.protos import NodeProto
from onnxfde.graph.tensors import make_tensor
from onnxfde.numbers import Array, FloatArray

MERGED = "_merged"
"""The end of the name of a new weight, in place of one that something else reads."""


@dataclass
class ConstantEdit:
    """Changes to one model, and the constants that they may leave unused."""

    graph: Graph
    dtype: np.dtype[Any]
    orphans: list[str] = field(default_factory=list)
    as_initializer: bool = True

    def rewire(self, old: str, new: str) -> None:
        """Let every node that reads `old` read `new`."""
        for node in list(self.graph.consumers.get(old, ())):
            for place, name in enumerate(node.input):
                if name == old:
                    self.graph.set_input(node, place, new)

    def forget_shape(self, value: str) -> None:
        """Drop the recorded shape of a value that was removed or replaced."""
        recorded = self.graph.model.graph.value_info
        for info in [v for v in recorded if v.name == value]:
            recorded.remove(info)

    def store(self, node: NodeProto, at: int, values: FloatArray) -> None:
        """Replace a constant input by values that are rounded to the type of the weights."""
        rounded = values.astype(self.dtype)
        self.put(node, at, rounded, self.twin(rounded))

    def put(self, node: NodeProto, at: int, values: Array, twin: str | None = None) -> str:
        """Replace a constant input; in place when this node is the only one to read it.

        A `twin` is a constant with these values that is there already. Returns the constant's name.
        """
        graph, name = self.graph, node.input[at]
        tensor = graph.initializers.get(name)
        if twin or tensor is None or graph.uses(name) != 1 or name in graph.outputs:
            fresh_name = twin or self.add_constant(node, f"{name}{MERGED}", values)
            graph.set_input(node, at, fresh_name)
            self.orphans.append(name)
            return fresh_name
        fresh = make_tensor(name, values)
        fresh.doc_string = tensor.doc_string
        fresh.metadata_props.extend(tensor.metadata_props)
        take_inside(fresh)
        tensor.CopyFrom(fresh)
        graph.declare_tensor(tensor)
        self.forget_shape(name)
        return name

    def twin(self, values: Array) -> str | None:
        """A new weight of another layer that has exactly these values."""
        wanted = make_tensor("", values)
        for name, tensor in self.graph.initializers.items():
            same = tensor.dims == wanted.dims and tensor.data_type == wanted.data_type
            own = name.endswith(MERGED) and name not in self.graph.overridable
            if own and same and tensor.raw_data == wanted.raw_data:
                return name
        return None

    def is_stored(self, name: str) -> bool:
        """Whether a constant comes from an initializer, not from a Constant node."""
        constant = self.graph.constant(name)
        return constant is None or constant.in_initializer

    def new_constant(self, node: NodeProto, wish: str, values: FloatArray) -> str:
        """A new constant for a node, rounded to the type of the weights."""
        return self.add_constant(node, wish, values.astype(self.dtype))

    def add_constant(self, node: NodeProto, wish: str, values: Array) -> str:
        """A new constant, stored like the layer's weights: as an initializer or a Constant node."""
        name = self.unused_name(wish)
        if self.as_initializer:
            self.graph.add_tensor(make_tensor(name, values))
        else:
            self.graph.insert(make_constant(name, values), self.graph.position(node))
        return name

    def unused_name(self, wish: str) -> str:
        """A name that no value, tensor or input of the model has."""
        names = (wish if i == 0 else f"{wish}_{i}" for i in itertools.count())
        return next(name for name in names if not self.graph.is_taken(name))

    def drop_unused(self) -> None:
        """Remove the constants that only the old layer read."""
        for name in self.orphans:
            if name in self.graph.outputs or self.graph.uses(name):
                continue
            if name in self.graph.initializers:
                self.graph.remove_tensor(name)
            node = self.graph.producers.get(name)
            if node is not None:
                self.orphans.extend(node.input)
                self.graph.remove(node)
            self.forget_shape(name)
