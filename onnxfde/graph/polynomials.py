"""Polynomials of degree 2 in graphs: trees of Mul, Add, Sub, Div, Neg and Pow over one value.

    h  →  a·h² + b·h + c        x·x + x, x·(x + 1), (0.5·x)·x, Pow(x, 2) − x, …

Each value of a region (`regions`) is read as a polynomial in h with one coefficient a, b, c per
feature, node by node.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from onnxfde.graph.affine_maps import Layout, NoMatch, constant_of_features, lines_of
from onnxfde.graph.model import Graph
from onnxfde.graph.nodes import label, op
from onnxfde.graph.protos import NodeProto
from onnxfde.neurons.quadratics import Quadratic
from onnxfde.numbers import FloatArray


class HigherDegree(NoMatch):
    """The reason why a polynomial is not of degree 2: it has a higher one."""


def polynomial_of(
    graph: Graph, core: Iterable[NodeProto], argument: str, value: str, features: int,
    layout: Layout, absolute: bool = False,
) -> Quadratic:  # fmt: skip
    """A value as a polynomial in the argument; `absolute`: with the absolute value of each part."""
    line = Quadratic.of_line(np.ones(features), np.zeros(features))
    reading = Reading(graph, features, layout, absolute, {argument: line})
    for node in core:
        reading.known[node.output[0]] = reading.result(node)
    return reading.known[value]


@dataclass(frozen=True, eq=False)
class Reading:
    """Values of a region that are known as polynomials so far."""

    graph: Graph
    features: int
    layout: Layout
    absolute: bool
    known: dict[str, Quadratic]

    def result(self, node: NodeProto) -> Quadratic:
        """The polynomial that a node computes."""
        if not any(name in self.known for name in node.input):
            raise NoMatch(f"{op(node)} '{label(node)}' reads nothing of the polynomial around it")
        match op(node):
            case "Flatten" | "Reshape":
                raise NoMatch(f"{op(node)} '{label(node)}' stands inside the polynomial")
            case "Identity" | "Dropout":
                return self.known[node.input[0]]
            case "Pow":
                return self.power(node)
            case "Mul":
                first, second = self.operands(node)
                return self.product(node, first, second)
            case "Add" | "Sub" | "Sum":
                return self.total(node)
        found = self.known[node.input[0]]
        for scale, shift in lines_of(self.graph, node, self.features, self.layout):
            found = found.scaled(self.size(scale), self.size(shift))
        return found

    def operands(self, node: NodeProto) -> list[Quadratic]:
        """What a node reads, constants included."""
        value = next(name for name in node.input if name in self.known)
        zero = np.zeros(self.features)
        found = []
        for name in node.input:
            if name in self.known:
                found.append(self.known[name])
            else:
                a = constant_of_features(self.graph, name, value, self.features, self.layout)
                found.append(Quadratic.of_line(zero, self.size(a)))
        return found

    def total(self, node: NodeProto) -> Quadratic:
        """A sum or a difference."""
        result, *others = self.operands(node)
        factor = np.full(self.features, -1.0 if op(node) == "Sub" else 1.0)
        for other in others:
            result = result.plus(other.scaled(self.size(factor), np.zeros(self.features)))
        return result

    def power(self, node: NodeProto) -> Quadratic:
        """The first or second power, which may differ between features."""
        base, name = self.known[node.input[0]], node.input[1]
        read = (self.graph, name, node.input[0], self.features, self.layout)
        exponent = constant_of_features(*read)
        if not np.isin(exponent, (1.0, 2.0)).all():
            raise HigherDegree(f"Pow '{label(node)}' has an exponent other than 1 and 2")
        line, twice = (exponent == 1).astype(np.float64), (exponent == 2).astype(np.float64)
        zero = np.zeros(self.features)
        squared = base.scaled(twice, zero)
        return base.scaled(line, zero).plus(self.product(node, squared, squared))

    def product(self, node: NodeProto, first: Quadratic, second: Quadratic) -> Quadratic:
        """A product of degree 2 at most."""
        found = first.times(second)
        if found is None:
            raise HigherDegree(f"{op(node)} '{label(node)}' makes a polynomial of degree 3 or more")
        return found

    def size(self, a: FloatArray) -> FloatArray:
        """Constants, or their absolute values."""
        return np.abs(a) if self.absolute else a
