"""The function between two maps of a chain, as a row of the table of activations.

    s = σ(h) + d(h),   |d| ≤ deviation

A function that takes several nodes is a row of the table only as exactly as its constants are
written: 1/√2 in float32, say. d, the difference, is computed at many places, and twice the largest
that is found counts as its bound.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from onnxfde.errors import RuntimeUnavailable
from onnxfde.graph.activation_patterns import activation_of
from onnxfde.graph.affine_maps import NoMatch
from onnxfde.graph.core_functions import CoreFunction
from onnxfde.graph.inner_nodes import TRANSPARENT
from onnxfde.graph.model import Graph
from onnxfde.graph.nodes import op
from onnxfde.graph.protos import NodeProto
from onnxfde.graph.reference import evaluate
from onnxfde.graph.regions import Parts
from onnxfde.neurons.activation import Activation
from onnxfde.neurons.activation_curves import Curve
from onnxfde.neurons.intervals import Interval, Uncertified
from onnxfde.neurons.piecewise_activations import PRELU
from onnxfde.neurons.polynomial_activations import SQUARE
from onnxfde.numbers import Array, FloatArray
from onnxfde.proof.node_signatures import Signature, nodes_signature

PLACES = 2001
"""Places at which a function is compared with the row of the table; the wider its range, the denser
they are near 0, where functions bend. Chosen; not tuned."""
EXACTLY = 1e-15
"""The relative difference between the same two products that is put down to their order."""
SAFETY = 2
"""How much larger than what is found between two places the difference may be. Chosen: the
difference is about as smooth as the function, so it is far less; not tuned."""


@dataclass(frozen=True, eq=False)
class HiddenFunction:
    """An activation of a chain, and the nodes that compute it if they are several."""

    activation: Activation
    unit_parameters: tuple[FloatArray, ...] = ()
    spelled: Callable[[FloatArray], FloatArray] | None = None
    """What the nodes compute; None if it is the activation exactly."""
    made_of: Signature = ()
    """What the nodes are; equal for the same function."""

    @property
    def is_square(self) -> bool:
        """Whether it is the square, and nothing but that."""
        return self.activation == SQUARE and self.spelled is None

    @property
    def curve(self) -> Curve:
        """The activation as a curve."""
        return self.activation.curve_of(*self.unit_parameters)

    def fits(self, other: HiddenFunction) -> bool:
        """Whether both are the same function, but for what each neuron has of its own."""
        return self.activation == other.activation and self.made_of == other.made_of

    def value(self, x: FloatArray) -> FloatArray:
        """The activation of rows of hidden values."""
        return self.activation.value(x, *self.unit_parameters)

    def deviation(self, x: Interval) -> float:
        """At least the difference between what the nodes compute and the activation."""
        if self.spelled is None or not x.low.size:
            return 0.0
        return SAFETY * float(np.max(np.abs(self._differences(x)[1])))

    def change_of_deviation(self, x: Interval, shift: Interval) -> FloatArray | float:
        """At least |d(h + e) − d(h)|: from the slope of d, if it has no kinks."""
        if self.spelled is None or not x.low.size:
            return 0.0
        places, found = self._differences(x)
        steps = np.diff(places)
        if self.curve.kinks or not np.all(steps > 0):
            return np.where(shift.size > 0, 2 * self.deviation(x), 0.0)
        return SAFETY * float(np.max(np.abs(np.diff(found)) / steps)) * shift.size

    def _differences(self, x: Interval) -> tuple[FloatArray, FloatArray]:
        """Places over all intervals, and the difference there."""
        assert self.spelled is not None
        low, high = x.low.min(), x.high.max()
        places = np.sinh(np.linspace(np.arcsinh(low), np.arcsinh(high), PLACES)).clip(low, high)
        try:
            found = self.spelled(places)
        except RuntimeUnavailable as reason:
            raise Uncertified(str(reason)) from None
        return places, found - self.activation.value(places)

    def range(self, x: Interval) -> Interval:
        """The range of the function over a row of intervals."""
        return self.curve.range(x).widened(self.deviation(x))


def hidden_function(graph: Graph, parts: Parts, core: CoreFunction, neurons: int) -> HiddenFunction:
    """The function of a core, and its nodes if they are several.

    A PRelu with one slope is read as one with as many as there are neurons: its other form may
    have several.
    """
    if len(parts.core) == 1:
        if op(parts.core[0]) == "PRelu" and not core.unit_parameters:
            return HiddenFunction(PRELU, (np.full(neurons, core.activation.constants[0]),))
        return HiddenFunction(core.activation, core.unit_parameters)
    names = {name for node in parts.core for name in node.input if name}
    stored = {name: graph.constant(name) for name in names}
    constants = {name: a.array for name, a in stored.items() if a is not None}

    def spelled(x: FloatArray) -> FloatArray:
        known: dict[str, Array] = {**constants, parts.argument: x}
        for node in parts.core:
            read = [known[name] for name in node.input if name]
            known[node.output[0]] = node_value(graph, node, read)
        return np.reshape(known[parts.value], (len(x), -1))

    if core.unit_parameters:
        check_exactly(spelled, core)
        return HiddenFunction(core.activation, core.unit_parameters)
    made_of = nodes_signature(graph, parts.argument, parts.core)
    return HiddenFunction(
        core.activation, spelled=lambda x: spelled(x[:, None])[:, 0], made_of=made_of
    )


def check_exactly(spelled: Callable[[FloatArray], FloatArray], core: CoreFunction) -> None:
    """Refuse nodes with numbers for each neuron that compute anything else than the activation.

    Such functions are made of two straight lines that meet at 0.
    """
    places = np.linspace(-8.0, 8.0, 17)[:, None]
    expected = core.activation.value(places, *core.unit_parameters)
    found = spelled(places)
    if found.shape != expected.shape or not np.allclose(found, expected, rtol=EXACTLY, atol=0):
        raise NoMatch("its constants are not exactly those of the activation")


def node_value(graph: Graph, node: NodeProto, read: list[Array]) -> Array:
    """What a node of a function computes in float64; onnx.reference has some in float32 only."""
    if op(node) in TRANSPARENT:
        return read[0]
    activation = activation_of(graph, node)
    if activation is None:
        return evaluate(node, read, graph.opset)[0]
    return activation.value(read[0], *read[1 : 1 + activation.parameters])
