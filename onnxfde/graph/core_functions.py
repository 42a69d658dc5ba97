"""What the core of a region is: an activation of the table, or a polynomial of degree 2.

x²                       a square
one operator             its row, with the slopes of PRelu or the bias that BiasGelu adds
a·x² + b·x + c           one coefficient per feature (`polynomials`); the square is completed
anything else            a normal form (`function_reading`) that is compared with the table
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from onnxfde.graph.activation_patterns import activation_of, added_bias, is_square
from onnxfde.graph.affine_maps import Layout, NoMatch, constant_of_features
from onnxfde.graph.function_forms import FunctionForm
from onnxfde.graph.function_reading import function_of
from onnxfde.graph.inner_nodes import TRANSPARENT
from onnxfde.graph.known_forms import known_activation
from onnxfde.graph.model import Graph
from onnxfde.graph.nodes import label, op
from onnxfde.graph.polynomials import HigherDegree, polynomial_of
from onnxfde.graph.protos import NodeProto
from onnxfde.graph.regions import ARITHMETIC, Parts
from onnxfde.neurons.activation import Activation
from onnxfde.neurons.piecewise_activations import IDENTITY, PRELU, leaky_relu
from onnxfde.neurons.polynomial_activations import SQUARE
from onnxfde.neurons.quadratics import Quadratic
from onnxfde.numbers import ROUNDOFF, FloatArray


@dataclass(frozen=True, eq=False)
class CoreFunction:
    """The function that the core of a region computes."""

    activation: Activation
    unit_parameters: tuple[FloatArray, ...] = ()
    bias: FloatArray | None = None
    """What is added to its argument."""
    taken_apart: bool = False
    """Whether its parameters are spread over several nodes, which one operator has to replace."""
    polynomial: Quadratic | None = None
    """The polynomial whose square has to be completed to make it a square."""


@dataclass(frozen=True, eq=False)
class CoreReader:
    """Reads the core of a region whose argument has so many features."""

    graph: Graph
    parts: Parts
    features: int
    layout: Layout
    dtype: np.dtype[Any]

    def function(self) -> CoreFunction:
        """The function; NoMatch says why there is none."""
        core = self.parts.core
        if not core:
            return CoreFunction(IDENTITY)
        if is_plain_square(self.graph, self.parts):
            return CoreFunction(SQUARE)
        if len(core) == 1 and (found := activation_of(self.graph, core[0])) is not None:
            return self.operator(core[0], found)
        if all(self.is_arithmetic(node) for node in core):
            return self.quadratic()
        return self.sloped() or CoreFunction(self.known())

    def is_arithmetic(self, node: NodeProto) -> bool:
        """Whether a node makes polynomials of polynomials."""
        if op(node) == "Div":
            return self.graph.is_constant(node.input[1])
        return op(node) in ARITHMETIC | TRANSPARENT | {"Reshape"}

    def operator(self, node: NodeProto, activation: Activation) -> CoreFunction:
        """A single operator."""
        if activation == PRELU:
            constant = self.graph.constant(node.input[1])
            slopes = self.of_features(node, node.input[1])
            if constant is None or constant.values.size > 1:
                return CoreFunction(PRELU, (slopes,))
            return CoreFunction(leaky_relu(float(slopes[0])))
        name = added_bias(node)
        if not name:
            return CoreFunction(activation)
        if self.layout != "rows":
            raise NoMatch(f"{op(node)} '{label(node)}' adds its bias to another axis")
        return CoreFunction(activation, bias=self.of_features(node, name))

    def of_features(self, node: NodeProto, name: str) -> FloatArray:
        """A constant of an operator, as one number per feature."""
        return constant_of_features(self.graph, name, node.input[0], self.features, self.layout)

    def quadratic(self) -> CoreFunction:
        """A polynomial of degree 2, or of a higher one if its coefficients are numbers."""
        parts, n = self.parts, self.features
        try:
            p = polynomial_of(self.graph, parts.core, parts.argument, parts.value, n, self.layout)
        except HigherDegree:
            return CoreFunction(self.known())
        lines = np.flatnonzero(p.square == 0)
        if len(lines) == n:
            raise NoMatch("it is linear: its square terms are 0 or cancel")
        if len(lines):
            raise NoMatch(f"it is linear, not quadratic, for {len(lines)} of {n} features")
        return CoreFunction(SQUARE, polynomial=p)

    def sloped(self) -> CoreFunction | None:
        """PRelu in several nodes, max(x, 0) − a·max(−x, 0), if a has one number per feature."""
        parts = self.parts
        names = {name for node in parts.core for name in node.input if self.graph.is_constant(name)}
        constants = {name: self.graph.constant(name) for name in names}
        vectors = [name for name, a in constants.items() if a is not None and a.values.size > 1]
        shape = (parts.argument, self.features, self.layout)
        rows = {name: constant_of_features(self.graph, name, *shape) for name in vectors}
        slopes = []
        for i in range(self.features if rows else 0):
            numbers = {name: float(row[i]) for name, row in rows.items()}
            form = function_of(self.graph, parts.core, parts.argument, parts.value, numbers)
            slope = leaky_slope(form, ROUNDOFF[self.dtype.name])
            if slope is None:
                return None
            slopes.append(slope)
        return CoreFunction(PRELU, (np.array(slopes),), taken_apart=True) if slopes else None

    def known(self) -> Activation:
        """The activation that the core's normal form is."""
        parts = self.parts
        form = function_of(self.graph, parts.core, parts.argument, parts.value)
        found = known_activation(form, ROUNDOFF[self.dtype.name])
        if found is None or found == IDENTITY:
            inside = ", ".join(dict.fromkeys(op(node) for node in parts.core))
            raise NoMatch(f"its nodes ({inside}) make no activation that is known")
        return found


def leaky_slope(form: FunctionForm, roundoff: float) -> float | None:
    """The slope of a form below 0 if it is h above 0 and a line there."""
    found = known_activation(form, roundoff)
    if found is None or found.name not in ("Relu", "LeakyRelu", "Abs", "Identity"):
        return None
    below, above = (float(found.value(np.array([x]))[0] / x) for x in (-1.0, 1.0))
    return below if above == 1 else None


def is_plain_square(graph: Graph, parts: Parts) -> bool:
    """Whether the core is a square of any number of features."""
    if len(parts.core) != 1 or not is_square(graph, parts.core[0]):
        return False
    exponent = graph.constant(parts.core[0].input[1])
    return exponent is None or exponent.values.size == 1
