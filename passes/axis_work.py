"""One axis of channels while it is merged, and what the report says of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from onnxfde.estimates import Estimate
from onnxfde.graph.axes import Axis
from onnxfde.graph.edit_axes import ports_of, weight_type
from onnxfde.graph.find_axes import is_plain_dense
from onnxfde.graph.model import Graph
from onnxfde.graph.other_activations import found_activations
from onnxfde.graph.weight_matrices import array_at
from onnxfde.numbers import FloatArray
from onnxfde.options import UnitKind
from onnxfde.passes.result import FrontierPoint, LayerChange, frontier_of_errors

NOT_MEASURED = Estimate(0.0, 0)


@dataclass(eq=False)
class AxisWork:
    """One axis while it is merged."""

    axis: Axis
    """As it was before the last edit to another one."""
    dtype: np.dtype[Any]
    activation: str | None
    units: int
    """How many it had at first."""
    inputs: int
    outputs: int
    parameters: int
    """All numbers that belong to its units, at first."""
    lossless: int = 0
    range_only: bool = False
    curve: FloatArray | None = None
    """The relative errors of 0, 1, 2 … units in the original network."""
    count: int | None = None
    """How many are to be left."""
    remarks: list[str] = field(default_factory=list)
    measured: Estimate = NOT_MEASURED
    own: Estimate | None = None
    """The error that its own units make, if that was measured."""
    cut: bool = False
    """Whether the time limit ended the descent."""
    descended: bool = False
    """Whether a descent moved its weights."""

    @property
    def estimate(self) -> float:
        """The error of as many units as are left in the original network, or the measured one."""
        if self.curve is None:
            return self.measured.value
        if self.axis.units >= len(self.curve) - 1:
            return 0.0
        return float(self.curve[self.axis.units])

    @classmethod
    def started(cls, graph: Graph, axis: Axis, activation: str | None) -> AxisWork:
        """An axis before anything is edited."""
        return cls(
            axis,
            dtype=weight_type(graph, axis.producer.node),
            activation=activation,
            units=axis.units,
            inputs=array_at(graph, axis.producer.node, 1).size // axis.units,
            outputs=sum(len(reader.scale) for reader in axis.readers),
            parameters=numbers_of_units(graph, axis),
        )

    @property
    def kind(self) -> UnitKind:
        """What its units are."""
        return "dense" if is_plain_dense(self.axis) else "channels"

    def frontier(self) -> tuple[FrontierPoint, ...]:
        """The errors of some counts, if they are known."""
        return () if self.curve is None else frontier_of_errors(self.curve)

    def change(self, graph: Graph, axis: Axis, eps: float | None, align: int) -> LayerChange:
        """What the report says of it, as it is now."""
        return LayerChange(
            name=axis.name,
            inputs=self.inputs,
            outputs=self.outputs,
            neurons_before=self.units,
            neurons_after=axis.units,
            neurons_lossless=self.lossless,
            parameters_before=self.parameters,
            parameters_after=numbers_of_units(graph, axis),
            blocks=(),
            eps=eps,
            error=self.estimate,
            lower_bound=None,
            measured_error=self.measured.value,
            measured_error_interval=self.measured.interval,
            measured_rows=self.measured.rows,
            dtype=self.dtype.name,
            useful_eps=self.useful_eps(eps, align),
            remark="; ".join(self.remarks) or None,
            kind=self.kind,
            activation=self.activation,
            cut=self.cut,
            range_only=self.range_only,
            own_error=self.own.value if self.own else None,
            own_error_interval=self.own.interval if self.own else None,
        )

    def useful_eps(self, eps: float | None, align: int) -> float | None:
        """An ε at which something would merge, if nothing did."""
        fewer = (self.axis.units - 1) // align * align
        if self.curve is None or eps is None or self.axis.units < self.units or not fewer:
            return None
        return float(self.curve[fewer])


def numbers_of_units(graph: Graph, axis: Axis) -> int:
    """All numbers that belong to the units of an axis."""
    return sum(array_at(graph, p.node, p.place).size for p in ports_of(axis))


def activations_of(graph: Graph, axes: Sequence[Axis]) -> list[str | None]:
    """The activations that act on the units of each axis, by their names."""
    names = dict(found_activations(graph))
    inside = ([names[value] for value in axis.hidden if value in names] for axis in axes)
    return [", ".join(dict.fromkeys(found)) or None for found in inside]
