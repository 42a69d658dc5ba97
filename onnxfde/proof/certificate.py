"""How much a result can differ from its original over a whole box of inputs: a proof, not a sample.

    |y′(x) − y(x)| ≤ bound   for all x in the box, the stored weights in exact arithmetic

Values of the two graphs are paired from the outputs back to the inputs (`pairing`): where both are
chains of affine maps and squares, as chains; where the same operator makes both, by its rule; else
each by itself, and the intervals are subtracted. One sample is followed: a dynamic leading axis has
length 1. Execution in the stored type adds rounding, which is estimated apart as 16·u·(A + |y|), A
the original on absolute values.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from onnxfde.errors import VerificationError
from onnxfde.graph.match import find_layers
from onnxfde.graph.model import Graph
from onnxfde.graph.nodes import attributes, names_used, op
from onnxfde.graph.protos import ValueInfoProto
from onnxfde.graph.tensors import FLOATS, numpy_dtype
from onnxfde.neurons.intervals import Uncertified
from onnxfde.numbers import ROUNDING_STEPS, ROUNDOFF, Array, FloatArray
from onnxfde.proof.affine_bounds import squares
from onnxfde.proof.layer_bounds import MOST_WORK, gram_work, work
from onnxfde.proof.pairing import Box, Pairing

CHEAP_FLOPS = 4e9


@dataclass(frozen=True)
class OutputBound:
    """The largest possible change of one output, and the largest that was seen."""

    name: str
    bound: float
    measured_max: float | None = None


@dataclass(frozen=True)
class Certificate:
    """Bounds for every floating-point output; `unavailable` says why there are none."""

    box: str
    outputs: tuple[OutputBound, ...] = ()
    rounding: float | None = None
    """An estimate of what execution in the stored type may add."""
    unavailable: str | None = None

    @property
    def largest(self) -> float:
        """The largest bound of all outputs; infinite without a certificate."""
        known = [output.bound for output in self.outputs]
        return np.inf if self.unavailable else max(known, default=0.0)

    def beside(self, before: list[Array], after: list[Array]) -> Certificate:
        """With the largest change that was seen, if the models were run."""
        with np.errstate(invalid="ignore"):
            floats = [
                float(np.max(np.abs(a.astype(np.float64) - b), initial=0.0))
                for a, b in zip(before, after, strict=True)
                if np.issubdtype(a.dtype, np.floating) or a.dtype.name == "bfloat16"
            ]
        if len(floats) != len(self.outputs):
            return self
        pairs = zip(self.outputs, floats, strict=True)
        return replace(
            self,
            outputs=tuple(
                replace(o, measured_max=seen if np.isfinite(seen) else None) for o, seen in pairs
            ),
        )


@dataclass(frozen=True)
class Proof:
    """Whether a certificate is wanted (None: if it is cheap), and how large it may be."""

    wanted: bool | None = None
    limit: float | None = None

    def of(self, original: Graph, result: Graph, box: Box) -> Certificate | None:
        """The certificate of a result, if it is wanted."""
        if self.wanted is False or result.model is original.model:
            return None
        if self.wanted is None and not cheap(original):
            text = "not certified: it would take a while (ask for it with --certify)"
            return Certificate(described(box), unavailable=text)
        return certify(original, result, box)

    def holds(self, found: Certificate | None) -> bool:
        """Whether a certificate is small enough (no change needs none)."""
        return self.limit is None or found is None or found.largest <= self.limit

    def failure(self, found: Certificate) -> VerificationError:
        """What to say when it is not."""
        if found.unavailable:
            return VerificationError(f"{found.unavailable}; --max-certified-error cannot be kept")
        return VerificationError(
            f"the certified error {found.largest:.3g} exceeds --max-certified-error "
            f"{self.limit:g} in the {found.box}; allow more, or leave more neurons"
        )


def certify(original: Graph, result: Graph, box: Box) -> Certificate:
    """Bound the change of every output over a box of inputs."""
    pairing, text = Pairing(original, result, box), described(box)
    try:
        with np.errstate(all="ignore"):
            found = [(value, pairing.output(value.name)) for value in floating(original, result)]
    except Uncertified as reason:
        return Certificate(text, unavailable=f"not certified: {reason}")
    bounds = tuple(OutputBound(v.name, largest(p.change.size)) for v, p in found)
    if not all(np.isfinite(output.bound) for output in bounds):
        return Certificate(text, unavailable="not certified: the values overflow in this range")
    most = [
        ROUNDOFF[numpy_dtype(v.type.tensor_type.elem_type).name] * largest(p.size + p.value.size)
        for v, p in found
    ]
    return Certificate(text, bounds, ROUNDING_STEPS * max(most, default=0.0))


def floating(original: Graph, result: Graph) -> list[ValueInfoProto]:
    """The floating-point outputs; others have no bound and must be computed as before."""
    found = []
    for value in original.model.graph.output:
        kind = value.type.tensor_type.elem_type
        if kind in FLOATS:
            found.append(value)
        elif not unchanged(original, result, value.name):
            text = numpy_dtype(kind).name if kind else "not a tensor"
            raise Uncertified(f"output '{value.name}' is {text}")
    return found


def unchanged(original: Graph, result: Graph, name: str) -> bool:
    """Whether the same nodes and constants make a value in both models."""
    stack, seen = [name], set[str]()
    while stack:
        name = stack.pop()
        if name in seen:
            continue
        seen.add(name)
        nodes = [graph.producers.get(name) for graph in (original, result)]
        stored = [graph.initializers.get(name) for graph in (original, result)]
        if nodes[0] != nodes[1] or stored[0] != stored[1]:
            return False
        stack.extend(names_used(nodes[0]) if nodes[0] is not None else ())
    return True


def cost(original: Graph) -> float:
    """About how many floating-point operations a certificate of this model takes."""
    total = 0.0
    for match in find_layers(original)[0]:
        layer = squares(match.layer)
        lengths = known_lengths(original, match.activation.input[0])
        rows = max(1, int(np.prod(lengths)) // max(match.layer.neurons, 1))
        whole = work(layer, layer, same=True, rows=rows)
        total += 4 * (whole if whole <= MOST_WORK else gram_work(layer, layer))
    for node in original.model.graph.node:
        lengths = known_lengths(original, node.output[0])
        weight = original.constant(node.input[1]) if op(node) == "Conv" else None
        if weight is not None:
            total += 10 * float(np.prod(lengths[-weight.values.ndim + 2 :])) * weight.values.size
        elif op(node) in ("AveragePool", "MaxPool"):
            kernel = attributes(node).get("kernel_shape", [1])
            total += 10 * float(np.prod(lengths)) * float(np.prod(kernel))
    return total


def known_lengths(graph: Graph, name: str) -> list[int]:
    """The lengths of a value's axes that are known."""
    return [d for d in graph.shape(name) or () if isinstance(d, int)]


def cheap(original: Graph) -> bool:
    """Whether a certificate takes a fraction of a second."""
    return cost(original) <= CHEAP_FLOPS


def largest(a: FloatArray) -> float:
    """The largest element."""
    return float(np.max(a, initial=0.0))


def described(box: Box) -> str:
    """The box as a user reads it."""
    texts = {
        f"range [{low:g}, {high:g}]" if np.ndim(low) == np.ndim(high) == 0 else "range of the data"
        for low, high in box.values()
    }
    return texts.pop() if len(texts) == 1 else "range of the data"
