"""The function between two affine maps, read node by node.

    h  →  Mul, Add, Sub, Div, Neg, Pow, Max, Min, Where, activations, with single numbers  →  s

Each value is read as a normal form (`function_forms`), which `known_forms` compares with the table.
The nodes stay in the graph when neurons are merged, so their constants must fit any number of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from onnxfde.graph.activation_patterns import activation_of, added_bias, keeps_shape
from onnxfde.graph.affine_maps import NoMatch
from onnxfde.graph.function_forms import (
    ONE,
    RECIPROCAL,
    FunctionForm,
    H,
    applied,
    atom_form,
    larger,
    smaller,
)
from onnxfde.graph.model import Graph
from onnxfde.graph.nodes import label, op
from onnxfde.graph.protos import NodeProto
from onnxfde.graph.step_forms import COMPARISONS, chosen_form, indicator
from onnxfde.neurons.piecewise_activations import PRELU, leaky_relu

LARGEST_DEGREE = 32
"""The largest degree of a polynomial that is read: beyond, rounded coefficients say little about
the function. Chosen; not tuned."""
MOST_TERMS = 64
"""Most terms of a normal form. Chosen; not tuned."""


def function_of(
    graph: Graph,
    core: Iterable[NodeProto],
    argument: str,
    value: str,
    numbers: Mapping[str, float] | None = None,
) -> FunctionForm:
    """A value as a function of the argument; NoMatch says what cannot be read.

    `numbers`: what constants with one number per feature are for a single feature.
    """
    reading = FunctionReading(graph, {argument: H}, numbers or {})
    for node in core:
        form = reading.result(node)
        if form.degree > LARGEST_DEGREE or len(form.terms) > MOST_TERMS:
            raise NoMatch(f"{op(node)} '{label(node)}' makes a polynomial of too high a degree")
        if not all(np.isfinite(a) for _, a in form.terms):
            raise NoMatch(f"a constant of {op(node)} '{label(node)}' is NaN or infinite")
        reading.known[node.output[0]] = form
    return reading.known[value]


@dataclass(frozen=True, eq=False)
class FunctionReading:
    """Values of a region that are known as functions so far."""

    graph: Graph
    known: dict[str, FunctionForm]
    numbers: Mapping[str, float]

    def result(self, node: NodeProto) -> FunctionForm:
        """The function that a node computes."""
        kind = op(node)
        match kind:
            case "Flatten" | "Reshape" | "BatchNormalization":
                raise NoMatch(f"{kind} '{label(node)}' stands inside the activation")
            case "Identity" | "Dropout":
                return self.known[node.input[0]]
            case "Neg":
                return self.known[node.input[0]].scaled(-1.0)
            case "Pow":
                return self.power(node)
            case "Where":
                return chosen_form(*(self.operand(node, name) for name in node.input))
            case "Add" | "Sum" | "Sub" | "Mul" | "Max" | "Min" | "Div":
                return self.combined(node)
        if kind in COMPARISONS:
            return self.comparison(node)
        argument, activation = self.known[node.input[0]], activation_of(self.graph, node)
        if activation == PRELU:
            return applied(leaky_relu(self.number(node, node.input[1])), argument)
        if activation is None or added_bias(node):
            raise NoMatch(f"{kind} '{label(node)}' stands inside the activation")
        return applied(activation, argument)

    def combined(self, node: NodeProto) -> FunctionForm:
        """A sum, product, quotient, maximum or minimum."""
        found, *others = (self.operand(node, name) for name in node.input)
        for other in others:
            match op(node):
                case "Add" | "Sum":
                    found = found.plus(other)
                case "Sub":
                    found = found.minus(other)
                case "Mul":
                    found = found.times(other)
                case "Max":
                    found = larger(found, other)
                case "Min":
                    found = smaller(found, other)
                case "Div":
                    found = found.times(inverse(other))
        return found

    def comparison(self, node: NodeProto) -> FunctionForm:
        """A comparison with a number, as 1 or 0."""
        first, second = (self.operand(node, name) for name in node.input)
        found = indicator(op(node), first, second)
        if found is None:
            raise NoMatch(f"{op(node)} '{label(node)}' compares no lines of one value")
        return found

    def operand(self, node: NodeProto, name: str) -> FunctionForm:
        """A value that a node reads, or a constant."""
        if name in self.known:
            return self.known[name]
        return FunctionForm.constant(self.number(node, name))

    def number(self, node: NodeProto, name: str) -> float:
        """A constant that is a single number."""
        if name in self.numbers:
            return self.numbers[name]
        constant = self.graph.constant(name)
        value = next((known for known in node.input if known in self.known), None)
        if constant is None or value is None:
            raise NoMatch(f"{op(node)} '{label(node)}' reads '{name}', which is not known here")
        if constant.values.size != 1:
            shape = "×".join(map(str, constant.values.shape))
            raise NoMatch(
                f"{op(node)} '{label(node)}' inside the activation has a constant of shape "
                f"{shape}; only single numbers fit any number of neurons"
            )
        if not keeps_shape(self.graph, value, constant.values.shape):
            raise NoMatch(f"'{name}' has more axes than the value it meets is known to have")
        return float(constant.array.item())

    def power(self, node: NodeProto) -> FunctionForm:
        """A whole power."""
        exponent = self.number(node, node.input[1])
        if exponent not in range(1, LARGEST_DEGREE + 1):
            raise NoMatch(
                f"Pow '{label(node)}' has the exponent {exponent:g}; only whole numbers from 1 to "
                f"{LARGEST_DEGREE} are read"
            )
        base = found = self.known[node.input[0]]
        for _ in range(round(exponent) - 1):
            found = found.times(base)
            if len(found.terms) > MOST_TERMS:
                break
        return found


def inverse(form: FunctionForm) -> FunctionForm:
    """1 / form."""
    if set(dict(form.terms)) <= {ONE}:
        a = form.coefficient(ONE)
        return FunctionForm.constant(1 / a if a else np.inf)
    return atom_form(RECIPROCAL, form)
