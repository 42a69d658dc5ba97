"""A node together with the values it reads, which is what a rule is given.

A value is either a `Pair` (floating-point numbers of the original and their change in the result)
or a known array of integers, such as a shape or indices, which is the same for every input.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from onnxfde.errors import RuntimeUnavailable
from onnxfde.graph.nodes import attributes, op
from onnxfde.graph.protos import NodeProto
from onnxfde.graph.reference import evaluate
from onnxfde.neurons.intervals import Interval, Pair, Uncertified
from onnxfde.numbers import Array, FloatArray

Known = Array
"""An array that is the same for every input of the model."""
Value = Pair | Known


@dataclass(frozen=True, eq=False)
class NodeCall:
    """A node, the values it reads, and which of its outputs is wanted."""

    node: NodeProto
    inputs: tuple[Value | None, ...]
    opset: int
    output: int = 0

    @property
    def options(self) -> dict[str, Any]:
        """The node's attributes."""
        return attributes(self.node)

    def has(self, i: int) -> bool:
        """Whether an optional input is present."""
        return i < len(self.inputs) and self.inputs[i] is not None

    def pair(self, i: int = 0) -> Pair:
        """A floating-point input."""
        found = self.inputs[i] if self.has(i) else None
        if not isinstance(found, Pair):
            raise Uncertified("it reads integers")
        return found

    def fixed(self, i: int) -> FloatArray:
        """A floating-point input that is the same constant in both models."""
        if not self.is_fixed(i):
            raise Uncertified(f"its input {i + 1} is not a constant")
        return self.pair(i).value.low

    def is_fixed(self, i: int) -> bool:
        """Whether a floating-point input is the same constant in both models."""
        found = self.pair(i)
        return bool(found.value.is_point and found.change.is_zero)

    def weight(self, i: int) -> Pair:
        """A floating-point input that is a constant in each model, perhaps a different one."""
        found = self.pair(i)
        if not found.value.is_point:
            raise Uncertified(f"its input {i + 1} is not a constant")
        return found

    def run(self, *arrays: FloatArray | None) -> FloatArray:
        """The node's output with these arrays in place of its first inputs."""
        rest = [a.value.low if isinstance(a, Pair) else a for a in self.inputs[len(arrays) :]]
        return np.asarray(self.evaluated([*arrays, *rest]), dtype=np.float64)

    def evaluated(self, arrays: Sequence[Known | None]) -> Known:
        """The node's output when it reads these arrays."""
        first = arrays[0] if arrays else None
        if first is not None and op(self.node) == "Unsqueeze" and "axes" in self.options:
            return np.expand_dims(first, tuple(self.options["axes"]))
        if first is not None and op(self.node) == "Slice" and len(arrays) > 4:
            check_slice(first, arrays[2], arrays[4])
        try:
            return evaluate(self.node, arrays, self.opset)[self.output]
        except RuntimeUnavailable as reason:
            raise Uncertified(str(reason)) from None


def check_slice(a: Known, ends: Known | None, steps: Known | None) -> None:
    """Refuse a negative step with an end past the last element: runtimes disagree on it."""
    if ends is None or steps is None:
        return
    if np.any((steps < 0) & (ends >= max(a.shape, default=0))):
        raise Uncertified("it has a negative step and an end past the last element")


def as_value(a: Known) -> Value:
    """A constant as a value: floating-point numbers become a pair, anything else stays."""
    if a.dtype.kind in "iubSUO":
        return a
    return Pair.same(Interval.point(a.astype(np.float64)))
