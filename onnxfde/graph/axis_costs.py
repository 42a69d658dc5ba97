"""What a model costs as a function of the units that its axes keep.

    multiply-adds = fixed + Σ over products  a · (units of the axis that it makes, if any)
                                               · (units of the axis that it reads, if any)
    parameters    = the same sum over stored tensors

The a are counted once, from shapes. A tensor that several nodes read is stored once for each way
in which it is sliced.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from onnxfde.graph.axes import Axis, Port
from onnxfde.graph.cost import is_counted, product_cost, product_nodes
from onnxfde.graph.edit_axes import ports_of
from onnxfde.graph.inferred_shapes import inferred_dims
from onnxfde.graph.model import Graph
from onnxfde.graph.nodes import names_used
from onnxfde.graph.shapes import Dims
from onnxfde.graph.size import count_parameters
from onnxfde.graph.stored_constants import stored_numbers
from onnxfde.graph.tensors import FLOATS
from onnxfde.numbers import Indices

Counts = Mapping[str, int]
"""How many units each axis keeps, by its name; all where it is not in it."""


@dataclass(frozen=True)
class CostTerm:
    """A number that grows with the units of each of some axes."""

    full: int
    """What it is with all units."""
    axes: tuple[str, ...]


Slice = tuple[str, int, int]
"""The axis whose units a constant has numbers for, and where they lie in it (`Port`)."""


@dataclass(frozen=True)
class SlicedInput:
    """An input of a node that is sliced: its name, and for which axes."""

    name: str
    slices: tuple[Slice, ...]


@dataclass(frozen=True, eq=False)
class SharedTensor:
    """A tensor that is read several times."""

    size: int
    readings: tuple[SlicedInput, ...]
    others: bool
    """Whether something else reads it, which is not sliced."""

    def stored(self, kept: Counts, units: Counts) -> int:
        """The size of all forms in which it is stored when some axes keep fewer units."""
        forms: dict[SlicedInput | None, int] = {None: self.size} if self.others else {}
        for reading in self.readings:
            sliced = tuple(part for part in reading.slices if kept[part[0]] < units[part[0]])
            size = self.size
            for axis, _, _ in sliced:
                size = size // units[axis] * kept[axis]
            forms[SlicedInput(reading.name, sliced) if sliced else None] = size
        return sum(forms.values())


@dataclass(frozen=True, eq=False)
class TermSum:
    """A sum of terms as arrays, so that it is evaluated at once."""

    names: tuple[str, ...]
    units: Indices
    """The units of each axis, and a 1 for terms that fewer axes touch than others."""
    factors: Indices
    """For each term, the places of its axes in `units`."""
    coefficients: Indices

    @classmethod
    def of(cls, units: Mapping[str, int], terms: Sequence[CostTerm]) -> TermSum:
        """The sum of these terms."""
        lengths, places = np.array([*units.values(), 1]), {name: i for i, name in enumerate(units)}
        width = max((len(term.axes) for term in terms), default=1)
        factors = np.full((len(terms), width), len(units))
        for row, term in zip(factors, terms, strict=True):
            row[: len(term.axes)] = [places[name] for name in term.axes]
        full = np.array([term.full for term in terms], np.intp)
        return cls(tuple(units), lengths, factors, full // lengths[factors].prod(axis=1))

    def total(self, counts: Counts) -> int:
        """The sum for these numbers of units."""
        pairs = zip(self.names, self.units, strict=False)
        kept = np.array([*(counts.get(name, n) for name, n in pairs), 1])
        return int((self.coefficients * kept[self.factors].prod(axis=1)).sum())


@dataclass(frozen=True, eq=False)
class AxisCosts:
    """Multiply-adds and parameters of a model for any number of units of its axes."""

    units: dict[str, int]
    """How many units each axis has now."""
    fixed_macs: int | None
    """Multiply-adds of products that no axis touches; None if they cannot be counted."""
    macs: tuple[CostTerm, ...]
    fixed_parameters: int
    parameters: tuple[CostTerm, ...]
    shared: tuple[SharedTensor, ...] = ()

    def total_macs(self, counts: Counts) -> int | None:
        """Multiply-adds of one run; None if they cannot be counted."""
        return None if self.fixed_macs is None else self.fixed_macs + self._mac_sum.total(counts)

    def total_parameters(self, counts: Counts) -> int:
        """Stored weights."""
        kept = {**self.units, **counts}
        shared = sum(tensor.stored(kept, self.units) for tensor in self.shared)
        return self.fixed_parameters + self._parameter_sum.total(counts) + shared

    @cached_property
    def _mac_sum(self) -> TermSum:
        return TermSum.of(self.units, self.macs)

    @cached_property
    def _parameter_sum(self) -> TermSum:
        return TermSum.of(self.units, self.parameters)


def axis_costs(graph: Graph, axes: Sequence[Axis], inputs: Mapping[str, Dims]) -> AxisCosts:
    """The costs of a model in one run on inputs of these shapes."""
    units = {axis.name: axis.units for axis in axes}
    fixed_macs, macs = mac_terms(graph, axes, inputs)
    parameters, shared = tensor_terms(graph, axes)
    total = count_parameters(graph.model)
    fixed = total - sum(term.full for term in parameters) - sum(tensor.size for tensor in shared)
    return AxisCosts(units, fixed_macs, macs, fixed, parameters, shared)


def mac_terms(
    graph: Graph, axes: Sequence[Axis], inputs: Mapping[str, Dims]
) -> tuple[int | None, tuple[CostTerm, ...]]:
    """Multiply-adds that no axis touches (None if not all can be counted), and the other ones."""
    known, touched = inferred_dims(graph.model, inputs), axes_at_products(axes)
    fixed: int | None = 0 if is_counted(graph.model) else None
    terms: list[CostTerm] = []
    for node in product_nodes(graph.model):
        cost, names = product_cost(node, known), touched.get(node.output[0], ())
        if cost is None:
            fixed = None
        elif names:
            terms.append(CostTerm(cost, names))
        elif fixed is not None:
            fixed += cost
    return fixed, tuple(terms)


def axes_at_products(axes: Sequence[Axis]) -> dict[str, tuple[str, ...]]:
    """The axes that a product makes, reads or passes on, by the value that it makes."""
    found: dict[str, tuple[str, ...]] = {}
    for axis in axes:
        depthwise = [inner.node for inner in axis.inner if inner.depthwise]
        readers = [reader.node for reader in axis.readers]
        for node in (axis.producer.node, *depthwise, *readers):
            found[node.output[0]] = (*found.get(node.output[0], ()), axis.name)
    return found


def tensor_terms(
    graph: Graph, axes: Sequence[Axis]
) -> tuple[tuple[CostTerm, ...], tuple[SharedTensor, ...]]:
    """Stored tensors with numbers for units: those that one node reads, and shared ones."""
    terms: list[CostTerm] = []
    shared: list[SharedTensor] = []
    for root, readings in readings_by_tensor(graph, axes).items():
        size = stored_size(graph, root)
        others = times_read(graph, root) - len(readings)
        if len(readings) == 1 and not others:
            terms.append(CostTerm(size, tuple(axis for axis, _, _ in readings[0].slices)))
        else:
            shared.append(SharedTensor(size, tuple(readings), bool(others)))
    return tuple(terms), tuple(shared)


def readings_by_tensor(graph: Graph, axes: Sequence[Axis]) -> dict[str, list[SlicedInput]]:
    """The sliced inputs of nodes, by the stored tensor that they come from."""
    slices: dict[tuple[str, str, int], list[Slice]] = {}
    for axis in axes:
        for port in ports_of(axis):
            name = port.node.input[port.place]
            key = name, port.node.output[0], port.place
            if has_units(graph, port):
                slices.setdefault(key, []).append((axis.name, port.dim, port.run))
    found: dict[str, list[SlicedInput]] = {}
    for (name, _, _), each in slices.items():
        found.setdefault(graph.origin(name), []).append(SlicedInput(name, tuple(each)))
    return {root: readings for root, readings in found.items() if stored_size(graph, root)}


def has_units(graph: Graph, port: Port) -> bool:
    """Whether a constant has a number for each unit, not one for all."""
    found = graph.constant(port.node.input[port.place])
    return found is not None and found.values.ndim > 0 and found.values.shape[port.dim] > 1


def stored_size(graph: Graph, name: str) -> int:
    """How many parameters the tensor is that holds a constant."""
    tensor = graph.initializers.get(name)
    if tensor is None:
        attribute = stored_numbers(graph.producers[name])
        tensor = attribute.t if attribute is not None else None
    return math.prod(tensor.dims) if tensor is not None and tensor.data_type in FLOATS else 0


def times_read(graph: Graph, name: str) -> int:
    """How often a constant is read, also what is only copied, transposed or cast from it."""
    found = int(name in graph.outputs)
    for node in graph.consumers.get(name, ()):
        if graph.is_derivation(node) and node.input[0] == name:
            found += times_read(graph, node.output[0])
        else:
            found += list(names_used(node)).count(name)
    return found
