"""A model and its index: who makes a value, who reads it, which values are constants.

The index is built once, when it is first needed. The methods that edit the model keep it true, so
that nothing has to be searched for again after a change.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx

from onnxfde.errors import ModelError, in_one_line
from onnxfde.graph.nodes import attributes, label, names_used, op, refers_to_function
from onnxfde.graph.onnx_calls import are_constants_inputs, declare, with_shapes
from onnxfde.graph.protos import ModelProto, NodeProto, TensorProto, ValueInfoProto
from onnxfde.graph.shapes import Dims, dims
from onnxfde.graph.stored_constants import PASS_THROUGH, RESHAPED, derived, stored_numbers
from onnxfde.graph.tensors import NOT_NUMBERS, copy_of, to_array
from onnxfde.numbers import Array


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
    """The main graph of a model with its index."""

    model: ModelProto
    folder: Path | None = None

    @cached_property
    def producers(self) -> dict[str, NodeProto]:
        """The node that makes each value."""
        return {name: node for node in self.model.graph.node for name in node.output if name}

    @cached_property
    def consumers(self) -> dict[str, list[NodeProto]]:
        """The nodes that read each value, themselves or in a body, each node once."""
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

    @property
    def overridable(self) -> set[str]:
        """Initializers that a caller may replace, because they are inputs as well.

        In old versions all of them are, and onnxruntime lets none be replaced.
        """
        if are_constants_inputs(self.model):
            return set()
        return {name for name in self._input_names if name in self.initializers}

    @property
    def inputs(self) -> list[ValueInfoProto]:
        """The inputs that a caller must give."""
        return [v for v in self.model.graph.input if v.name not in self.initializers]

    @cached_property
    def opset(self) -> int:
        """The version of onnx's own operators that the model uses."""
        versions = (o.version for o in self.model.opset_import if o.domain in ("", "ai.onnx"))
        return next(versions, 1)

    @cached_property
    def _shapes(self) -> dict[str, Dims]:
        inferred = with_shapes(self.model).graph
        values = (*inferred.input, *inferred.value_info, *inferred.output)
        return {v.name: dims(v) for v in values if v.type.tensor_type.HasField("shape")}

    def rank(self, name: str) -> int | None:
        """How many axes a value has, when that is known."""
        found = self._shapes.get(name)
        return None if found is None else len(found)

    def shape(self, name: str) -> Dims | None:
        """The shape of a value, when that is known."""
        return self._shapes.get(name)

    def copied(self) -> Graph:
        """An independent copy, for a pass to edit."""
        return Graph(copy_of(self.model), self.folder)

    def uses(self, name: str) -> int:
        """How often nodes read a value, in bodies too."""
        return sum(list(names_used(n)).count(name) for n in self.consumers.get(name, ()))

    def is_taken(self, name: str) -> bool:
        """Whether a value, tensor or input of the model has this name."""
        known = (self.producers, self.consumers, self.initializers)
        return any(name in part for part in known) or name in self._input_names

    @cached_property
    def _input_names(self) -> set[str]:
        return {value.name for value in self.model.graph.input}

    def position(self, node: NodeProto) -> int:
        """The position of a node."""
        return next(i for i, other in enumerate(self.model.graph.node) if other is node)

    def insert(self, node: NodeProto, position: int) -> None:
        """Insert a node."""
        nodes = self.model.graph.node
        nodes.insert(position, node)
        stored = nodes[position]
        for name in names_used(stored):
            self._link(name, stored)
        self.producers.update((name, stored) for name in stored.output if name)

    def remove(self, node: NodeProto) -> None:
        """Remove a node."""
        for name in node.output:
            self.producers.pop(name, None)
        for name in dict.fromkeys(names_used(node)):
            self._unlink(name, node)
        del self.model.graph.node[self.position(node)]

    def set_input(self, node: NodeProto, place: int, name: str) -> None:
        """Replace an input of a node."""
        old = node.input[place]
        node.input[place] = name
        self._link(name, node)
        if old not in names_used(node):
            self._unlink(old, node)

    def add_input(self, node: NodeProto, name: str) -> None:
        """Append an input to a node."""
        node.input.append(name)
        self._link(name, node)

    def drop_last_input(self, node: NodeProto) -> str:
        """Remove the last input of a node; returns its name."""
        name = node.input.pop()
        if name not in names_used(node):
            self._unlink(name, node)
        return name

    def rename_output(self, node: NodeProto, name: str) -> None:
        """Rename the first output of a node; nodes that read it keep the old name."""
        self.producers.pop(node.output[0], None)
        node.output[0] = name
        self.producers[name] = node

    def add_tensor(self, tensor: TensorProto) -> None:
        """Add an initializer, and an input where the model's version asks for it."""
        self.model.graph.initializer.append(tensor)
        self.initializers[tensor.name] = self.model.graph.initializer[-1]
        self.declare_tensor(tensor)

    def declare_tensor(self, tensor: TensorProto) -> None:
        """Tell the type and shape of an initializer that was added or changed."""
        if are_constants_inputs(self.model):
            declare(self.model, tensor)
            self._input_names.add(tensor.name)
            self._forget_shape(tensor.name)

    def remove_tensor(self, name: str) -> None:
        """Remove an initializer, and its input where the model's version asked for that."""
        gone, tensors = self.initializers.pop(name), self.model.graph.initializer
        del tensors[next(i for i, tensor in enumerate(tensors) if tensor is gone)]
        if are_constants_inputs(self.model) and name in self._input_names:
            inputs = self.model.graph.input
            del inputs[next(i for i, value in enumerate(inputs) if value.name == name)]
            self._input_names.discard(name)
            self._forget_shape(name)

    def copy_shape(self, value: str, name: str) -> None:
        """Record that a new value has the shape of another one."""
        if value in self._shapes:
            self._shapes[name] = self._shapes[value]

    def resize(self, lengths: Mapping[str, tuple[int, int]]) -> None:
        """Correct one length of the shapes of values: for each, the axis and its new length."""
        for info in self.model.graph.value_info:
            shape = info.type.tensor_type.shape
            if info.name in lengths and len(shape.dim):
                axis, length = lengths[info.name]
                shape.dim[axis].Clear()
                shape.dim[axis].dim_value = length
        known = self.__dict__.get("_shapes", {})
        for name in known.keys() & lengths.keys():
            axis, length = lengths[name]
            found = list(known[name])
            found[axis] = length
            known[name] = tuple(found)

    def _forget_shape(self, name: str) -> None:
        self.__dict__.get("_shapes", {}).pop(name, None)

    def _link(self, name: str, node: NodeProto) -> None:
        readers = self.consumers.setdefault(name, [])
        if not any(reader is node for reader in readers):
            readers.append(node)

    def _unlink(self, name: str, node: NodeProto) -> None:
        readers = [reader for reader in self.consumers.get(name, ()) if reader is not node]
        if readers:
            self.consumers[name] = readers
        else:
            self.consumers.pop(name, None)

    def known_lengths(self, name: str) -> list[int]:
        """The lengths of those axes of a value that have a known length."""
        return [d for d in self.shape(name) or () if isinstance(d, int)]

    def is_constant(self, name: str) -> bool:
        """Whether a value consists of numbers that are the same in every run."""
        name, nodes = self._behind(name)
        if name in self.initializers:
            replaceable = name in self._input_names and not are_constants_inputs(self.model)
            if replaceable or self.initializers[name].data_type in NOT_NUMBERS:
                return False
        else:
            node = self.producers.get(name)
            if node is None or op(node) != "Constant" or stored_numbers(node) is None:
                return False
        if any(refers_to_function(n) for n in nodes):
            return False
        return not any(attributes(n).get("to") in NOT_NUMBERS for n in nodes if op(n) == "Cast")

    def constant(self, name: str) -> Constant | None:
        """The value of a constant, or None."""
        if not self.is_constant(name):
            return None
        source, nodes = self._behind(name)
        values = self._stored(source)
        for node in reversed(nodes):
            try:
                values = derived(node, values, [self._number_list(n) for n in node.input[1:]])
            except (LookupError, TypeError, ValueError, OverflowError) as error:
                text = f"{op(node)} '{label(node)}' cannot be computed: {in_one_line(error)}"
                raise ModelError(text) from None
        return Constant(values, in_initializer=source in self.initializers)

    def _number_list(self, name: str) -> list[int]:
        found = self.constant(name)
        assert found is not None
        return [int(number) for number in found.values.ravel()]

    def is_read_elsewhere(self, name: str, here: int) -> bool:
        """Whether a constant, or what it is derived from, is read more often than `here`."""
        derivation = [node.input[0] for node in self._behind(name)[1]]
        if self.outputs.intersection((name, *derivation)):
            return True
        return self.uses(name) > here or any(self.uses(value) > 1 for value in derivation)

    def origin(self, name: str) -> str:
        """The value that is only copied, transposed, cast or reshaped to make this one."""
        return self._behind(name)[0]

    def is_derivation(self, node: NodeProto) -> bool:
        """Whether a node only copies, transposes, casts or reshapes what it reads."""
        if op(node) in RESHAPED:
            return len(node.input) > 0 and all(self.is_constant(n) for n in node.input[1:])
        return op(node) in PASS_THROUGH

    def _behind(self, name: str) -> tuple[str, list[NodeProto]]:
        """The value that is only copied, transposed, cast or reshaped, and by what."""
        nodes: list[NodeProto] = []
        while name not in self.initializers:
            node = self.producers.get(name)
            if node is None or not self.is_derivation(node):
                break
            nodes.append(node)
            name = node.input[0]
        return name, nodes

    def _stored(self, name: str) -> Array:
        """The values of an initializer or of a Constant node."""
        if name in self.initializers:
            return to_array(self.initializers[name], self.folder)
        attribute = stored_numbers(self.producers[name])
        assert attribute is not None
        value = onnx.helper.get_attribute_value(attribute)
        if isinstance(value, TensorProto):
            return to_array(value, self.folder)
        return np.asarray(value, dtype=np.float32 if "float" in attribute.name else np.int64)
