"""Reading a model as a network of affine maps and polynomials (`polynomial_network`).

Every value is kept as a polynomial of the last map's values, with coefficients of its own for each
of them; constants, sums, products and powers act on the coefficients. A Gemm, a MatMul, or any
other linear operator, whose matrix is what it makes of unit vectors, starts anew from there.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import reduce

import numpy as np

from onnxfde.errors import ModelError, RuntimeUnavailable
from onnxfde.graph.affine_maps import NoMatch, affine
from onnxfde.graph.input_specs import input_specs
from onnxfde.graph.model import Graph
from onnxfde.graph.nodes import attributes, label, op
from onnxfde.graph.polynomial_network import (
    NetworkStep,
    PolynomialNetwork,
    with_line,
    with_map,
    with_polynomial,
)
from onnxfde.graph.pool_matrix import pool_matrix
from onnxfde.graph.protos import NodeProto
from onnxfde.graph.reference import evaluate
from onnxfde.graph.tensors import FLOATS
from onnxfde.numbers import Array, FloatArray

DENSE = {"Gemm", "MatMul"}
POOLS = {"AveragePool"}
BY_UNIT_VECTORS = {"Conv", "ConvTranspose", "GlobalAveragePool"}
"""Linear operators whose matrix is found by running them."""
LINES = {"Add", "Sub", "Mul", "Div", "Neg", "BatchNormalization"}
"""Operators that, with constants, are a factor and a term for each value."""
COMBINED = {"Add", "Sub", "Sum", "Mul"}
SAME_ORDER = {"Identity", "Dropout", "Cast", "Flatten", "Reshape", "Squeeze", "Unsqueeze"}
SUPPORTED = DENSE | POOLS | BY_UNIT_VECTORS | LINES | COMBINED | SAME_ORDER | {"Pow"}
MOST_WEIGHTS = 2**24
"""Weights of a map that are read at most: 128 MB in float64. Chosen; not tuned."""
MOST_COMPONENTS = 2**20
"""Values of one sample at most: 16 MB for the coefficients of a line. Chosen; not tuned."""
UNITS_AT_ONCE = 64
"""Unit vectors that are run at once: a convolution takes a copy for each place of its window.
Chosen; not tuned."""
HIGHEST_POWER = 32
"""Chosen: the depth of a higher one alone is more than most parameters allow."""


class NotPolynomial(ModelError):  # noqa: N818 - why something cannot be done, not what went wrong
    """A model is not a chain of affine maps and polynomials."""


@dataclass(frozen=True, eq=False)
class PolynomialValue:
    """A value of the graph: a polynomial of what a map made, and its shape for one sample."""

    maps: int
    """How many maps come before it."""
    coefficients: FloatArray
    shape: tuple[int, ...]


def read_polynomials(graph: Graph) -> PolynomialNetwork:
    """The network that a model computes; raises NotPolynomial with the reason if it is none."""
    others = {op(n) for n in graph.model.graph.node if not is_constant_node(graph, n)} - SUPPORTED
    if others:
        names = ", ".join(sorted(others))
        raise NotPolynomial(f"it has operators that are no affine maps or polynomials: {names}")
    specs = input_specs(graph)
    if len(specs) != 1 or len(graph.model.graph.output) != 1:
        found = f"{len(specs)} inputs and {len(graph.model.graph.output)} outputs"
        raise NotPolynomial(f"it has {found}; only one of each is supported")
    shape = specs[0].dims[1:]
    if not shape or not all(isinstance(length, int) for length in shape):
        raise NotPolynomial(f"the lengths of input '{specs[0].name}' are not all known")
    lengths = tuple(length for length in shape if isinstance(length, int))
    reader = PolynomialReader(graph)
    reader.values[specs[0].name] = reader.fresh(lengths)
    try:
        for node in graph.model.graph.node:
            if not is_constant_node(graph, node):
                reader.read(node)
    except (NoMatch, RuntimeUnavailable) as reason:
        raise NotPolynomial(str(reason)) from None
    return PolynomialNetwork(math.prod(lengths), reader.finished(graph.model.graph.output[0].name))


def is_constant_node(graph: Graph, node: NodeProto) -> bool:
    """Whether what a node makes does not depend on the inputs."""
    return op(node) == "Constant" or (bool(node.output) and graph.is_constant(node.output[0]))


@dataclass
class PolynomialReader:
    """The steps of a network up to the last map, and the values since then."""

    graph: Graph
    steps: list[NetworkStep] = field(default_factory=list)
    maps: int = 0
    values: dict[str, PolynomialValue] = field(default_factory=dict)

    def fresh(self, shape: tuple[int, ...]) -> PolynomialValue:
        """What the last map makes."""
        size = math.prod(shape)
        if size > MOST_COMPONENTS:
            raise NotPolynomial(f"it has more than {MOST_COMPONENTS:,} values in one place")
        return PolynomialValue(self.maps, np.stack([np.zeros(size), np.ones(size)]), shape)

    def read(self, node: NodeProto) -> None:
        """Add a node."""
        known = [self.values[name] for name in node.input if name in self.values]
        if not known:
            raise NoMatch(f"{op(node)} '{label(node)}' reads something that is not known")
        if any(value.maps != self.maps for value in known):
            raise NoMatch(f"{op(node)} '{label(node)}' reads a value from before the last map")
        self.values[node.output[0]] = self.result(node, known)

    def result(self, node: NodeProto, known: list[PolynomialValue]) -> PolynomialValue:
        """What a node makes of the values that it reads."""
        if op(node) in DENSE | POOLS | BY_UNIT_VECTORS:
            return self.mapped(node, known[0])
        if op(node) in SAME_ORDER:
            return PolynomialValue(self.maps, known[0].coefficients, self.new_shape(node, known[0]))
        if op(node) == "Pow":
            exponent = self.exponent(node)
            found = reduce(polynomial_product, [known[0].coefficients] * exponent)
            return PolynomialValue(self.maps, checked(node, found), known[0].shape)
        if len(known) > 1:
            return self.combined(node, known)
        return self.with_constants(node, known[0])

    def exponent(self, node: NodeProto) -> int:
        """The power of a Pow."""
        constant = self.graph.constant(node.input[1])
        found = float(constant.array.flat[0]) if constant and constant.array.size == 1 else 0.0
        if found not in range(1, HIGHEST_POWER + 1):
            raise NoMatch(f"Pow '{label(node)}' has no exponent from 1 to {HIGHEST_POWER}")
        return int(found)

    def combined(self, node: NodeProto, known: list[PolynomialValue]) -> PolynomialValue:
        """A sum, difference or product of values."""
        same = len({value.shape for value in known}) == 1 and len(known) == len(node.input)
        if op(node) not in COMBINED or not same:
            raise NoMatch(f"{op(node)} '{label(node)}' of several values is no polynomial of them")
        parts = [value.coefficients for value in known]
        if op(node) == "Mul":
            found = reduce(polynomial_product, parts)
        else:
            found = reduce(
                polynomial_sum, [parts[0], *((-p if op(node) == "Sub" else p) for p in parts[1:])]
            )
        return PolynomialValue(self.maps, checked(node, found), known[0].shape)

    def with_constants(self, node: NodeProto, value: PolynomialValue) -> PolynomialValue:
        """A factor and a term for each value."""
        in_training = attributes(node).get("training_mode", 0) or any(node.output[1:])
        reciprocal = op(node) == "Div" and node.input[0] not in self.values
        if in_training or reciprocal:
            raise NoMatch(f"{op(node)} '{label(node)}' is no polynomial of what it reads")
        shift = self.evaluated(node, np.zeros((1, *value.shape)))
        scale = self.evaluated(node, np.ones((1, *value.shape))) - shift
        if shift.shape != (1, *value.shape):
            raise NoMatch(f"a constant of {op(node)} '{label(node)}' has more axes than the value")
        found = value.coefficients * scale.ravel()
        found[0] += shift.ravel()
        return PolynomialValue(self.maps, checked(node, found), value.shape)

    def new_shape(self, node: NodeProto, value: PolynomialValue) -> tuple[int, ...]:
        """The shape of a value that only gets another one."""
        if op(node) == "Cast" and attributes(node)["to"] not in FLOATS:
            raise NoMatch(f"Cast '{label(node)}' rounds")
        if op(node) in ("Identity", "Dropout", "Cast"):
            return value.shape
        shape = self.evaluated(node, np.zeros((1, *value.shape))).shape
        if shape[:1] != (1,):
            raise NoMatch(f"{op(node)} '{label(node)}' mixes samples")
        return shape[1:]

    def mapped(self, node: NodeProto, value: PolynomialValue) -> PolynomialValue:
        """An affine map: the values behind it are those of a new start."""
        if op(node) in DENSE:
            weight, bias = self.dense(node, value)
            shape: tuple[int, ...] = (len(bias),)
        elif op(node) in POOLS:
            weight, shape = pool_matrix(node, value.shape, MOST_WEIGHTS)
            bias = np.zeros(len(weight))
        else:
            weight, bias, shape = self.by_unit_vectors(node, value.shape)
        if not np.isfinite(weight).all() or not np.isfinite(bias).all():
            raise NoMatch(f"a weight of {op(node)} '{label(node)}' is NaN or infinite")
        steps, line = with_polynomial(self.steps, value.coefficients)
        self.steps = with_map(steps, line, weight, bias)
        self.maps += 1
        return self.fresh(shape)

    def by_unit_vectors(
        self, node: NodeProto, given: tuple[int, ...]
    ) -> tuple[FloatArray, FloatArray, tuple[int, ...]]:
        """Weights, bias and the shape of what comes out of a node that is run."""
        size, nothing = math.prod(given), self.evaluated(node, np.zeros((1, *given)))
        if max(nothing.size, size) * size > MOST_WEIGHTS:
            raise NoMatch(f"{op(node)} '{label(node)}' is too large as one matrix")
        units = np.eye(size).reshape(size, *given)
        blocks = [units[at : at + UNITS_AT_ONCE] for at in range(0, size, UNITS_AT_ONCE)]
        made = np.concatenate([self.evaluated(node, block) for block in blocks])
        if made.shape != (size, *nothing.shape[1:]):
            raise NoMatch(f"{op(node)} '{label(node)}' does not treat samples one by one")
        bias = nothing.ravel()
        return (made.reshape(size, -1) - bias).T, bias, nothing.shape[1:]

    def dense(self, node: NodeProto, value: PolynomialValue) -> tuple[FloatArray, FloatArray]:
        """The weights of a Gemm or MatMul."""
        for name in node.input[:2]:
            tensor = self.graph.initializers.get(name)
            if tensor is not None and math.prod(tensor.dims) > MOST_WEIGHTS:
                raise NoMatch(f"{op(node)} '{label(node)}' has more than {MOST_WEIGHTS:,} weights")
        found = affine(self.graph, node)
        if found.layout != "rows" or value.shape != (found.weight.shape[1],):
            raise NoMatch(f"{op(node)} '{label(node)}' does not read all values of one sample")
        return found.weight, found.bias

    def evaluated(self, node: NodeProto, x: Array) -> Array:
        """What a node makes of one array, with its own constants."""
        inputs = []
        for name in node.input:
            constant = self.graph.constant(name) if name else None
            if name and name not in self.values and constant is None:
                raise NoMatch(f"'{name}', which {op(node)} '{label(node)}' reads, is no constant")
            whole = constant is not None and constant.values.dtype.kind != "f"
            values = None if constant is None else constant.values if whole else constant.array
            inputs.append(x if name in self.values else values)
        return evaluate(node, inputs, self.graph.opset)[0]

    def finished(self, output: str) -> tuple[NetworkStep, ...]:
        """All steps, to the output."""
        value = self.values.get(output)
        if value is None or value.maps != self.maps:
            raise NotPolynomial(f"the output '{output}' is not what its last map leads to")
        return tuple(with_line(*with_polynomial(self.steps, value.coefficients)))


def polynomial_sum(first: FloatArray, second: FloatArray) -> FloatArray:
    """The sum of two polynomials."""
    longer, shorter = (first, second) if len(first) >= len(second) else (second, first)
    found = longer.copy()
    found[: len(shorter)] += shorter
    return found


def polynomial_product(first: FloatArray, second: FloatArray) -> FloatArray:
    """The product of two polynomials."""
    found = np.zeros((len(first) + len(second) - 1, first.shape[1]))
    for power, factor in enumerate(second):
        found[power : power + len(first)] += first * factor
    return found


def checked(node: NodeProto, coefficients: FloatArray) -> FloatArray:
    """Coefficients without powers that no value has; refuses those that are no numbers."""
    if not np.isfinite(coefficients).all():
        raise NoMatch(f"a constant of {op(node)} '{label(node)}' is NaN or infinite")
    powers = np.flatnonzero(coefficients.any(axis=1))
    degree = max(int(powers[-1]) if len(powers) else 0, 1)
    if degree > HIGHEST_POWER:
        raise NoMatch(f"{op(node)} '{label(node)}' makes a polynomial of degree {degree}")
    return coefficients[: degree + 1]
