"""How far a result can be from its original over a whole box of inputs: a proof, not a sample.

    |y′(x) − y(x)| ≤ bound   for all x in the box, with the stored weights in exact arithmetic

`pairing` follows each value of the two graphs from the outputs back to the inputs, for one sample;
`batch_axis` checks that batches behave the same. Running the models in their stored type adds
rounding, which is not part of the bound but estimated beside it, as 16·u·(A + |y|), where A is the
original evaluated on absolute values.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from onnxfde.errors import VerificationError
from onnxfde.graph.match import LayerSize
from onnxfde.graph.model import Graph
from onnxfde.graph.nodes import attributes, names_used, op
from onnxfde.graph.protos import ValueInfoProto
from onnxfde.graph.size import count_parameters
from onnxfde.graph.tensors import FLOATS, numpy_dtype
from onnxfde.memory import allowance, limited_memory
from onnxfde.neurons.intervals import Box, Uncertified
from onnxfde.numbers import ROUNDING_STEPS, ROUNDOFF, Array, FloatArray
from onnxfde.proof.layer_bounds import MOST_FORM_WORK, form_work, gram_work
from onnxfde.proof.pairing import Pairing

CHEAP_FLOPS = 4e9
"""Operations up to which a certificate is made without being asked for: a fraction of a second at
1e10 per second. Chosen; not tuned."""
LAYER_FACTOR = 4
"""Work of a layer's certificate in units of the work for the forms of one layer: two layers, value
and change. An estimate from `layer_bounds`, and from `curved_chains` for other activations: there
the forms of one layer take one product of its two matrices."""
WEIGHT_FACTOR = 100
"""Work per weight of the whole model, each of which is read and bounded in float64. Chosen: a chain
of dense layers took 70 ns per weight, as long as 700 operations, but the certificate of some ten
million weights is worth a few seconds."""
WINDOW_FACTOR = 10
"""Runs of a convolution or pool per certificate: eight in `weighted_sum`, rounded up."""


@dataclass(frozen=True)
class OutputBound:
    """The largest possible change of one output, and the largest that was measured."""

    name: str
    bound: float
    measured_max: float | None = None
    spread: float | None = None
    """The standard deviation of the original's output, where the models were run."""
    useful: bool = True
    """Whether the bound, with rounding, is not larger than what the output varies by anyway."""


@dataclass(frozen=True)
class Certificate:
    """A bound for every floating-point output; `unavailable` says why there is none."""

    box: str
    outputs: tuple[OutputBound, ...] = ()
    rounding: float | None = None
    """An estimate of what running the models in their stored type may add."""
    unavailable: str | None = None

    @property
    def largest(self) -> float:
        """The largest bound of all outputs; infinite without a certificate."""
        known = [output.bound for output in self.outputs]
        return np.inf if self.unavailable else max(known, default=0.0)

    def beside(self, before: list[Array], after: list[Array]) -> Certificate:
        """The certificate beside what running the two models showed."""
        runs = [
            (a.astype(np.float64), b.astype(np.float64))
            for a, b in zip(before, after, strict=True)
            if np.issubdtype(a.dtype, np.floating) or a.dtype.name == "bfloat16"
        ]
        if len(runs) != len(self.outputs):
            return self
        pairs, rounding = zip(self.outputs, runs, strict=True), self.rounding or 0.0
        seen = tuple(seen_beside(output, rounding, *outputs) for output, outputs in pairs)
        return replace(self, outputs=seen)


def seen_beside(
    output: OutputBound, rounding: float, before: FloatArray, after: FloatArray
) -> OutputBound:
    """A bound with the largest change that was seen, and how much the output varies."""
    with np.errstate(invalid="ignore", over="ignore"):
        most = float(np.max(np.abs(after - before), initial=0.0))
        spread = (
            float(np.sqrt(np.mean((before - before.mean(axis=0)) ** 2))) if before.size else 0.0
        )
    known = [value if np.isfinite(value) else None for value in (most, spread)]
    useful = known[1] is None or bool(output.bound + rounding <= known[1])
    return replace(output, measured_max=known[0], spread=known[1], useful=useful)


@dataclass(frozen=True)
class Proof:
    """Whether a certificate is wanted (None: if it is cheap), and how large its bound may be."""

    wanted: bool | None = None
    limit: float | None = None

    def of(
        self, original: Graph, result: Graph, box: Box, layers: Iterable[LayerSize]
    ) -> Certificate | None:
        """The certificate of a result, if it is wanted; `layers` are those of the original."""
        if self.wanted is False or result.model is original.model:
            return None
        if self.wanted is None and not cheap_to_certify(original, layers):
            text = "not certified: it would take a while (ask for it with --certify)"
            return Certificate(box_text(box), unavailable=text)
        return certify(original, result, box)

    def holds(self, found: Certificate | None) -> bool:
        """Whether a certificate keeps the limit; a model that did not change needs none."""
        return self.limit is None or found is None or found.largest <= self.limit

    def failure(self, found: Certificate) -> VerificationError:
        """The error for a certificate that does not keep the limit."""
        if found.unavailable:
            return VerificationError(f"{found.unavailable}; --max-certified-error cannot be kept")
        return VerificationError(
            f"the certified error {found.largest:.3g} exceeds --max-certified-error "
            f"{self.limit:g} in the {found.box}; allow a larger error or keep more neurons"
        )


def certify(original: Graph, result: Graph, box: Box) -> Certificate:
    """Bound the change of every output over a box of inputs."""
    pairing, text = Pairing(original, result, box), box_text(box)
    try:
        room = allowance(8 * count_parameters(original.model))
        with limited_memory(room), np.errstate(all="ignore"):
            found = [
                (value, pairing.output(value.name)) for value in floating_outputs(original, result)
            ]
    except MemoryError:
        return Certificate(text, unavailable="not certified: the bounds take too much memory")
    except Uncertified as reason:
        return Certificate(text, unavailable=f"not certified: {reason}")
    bounds = tuple(OutputBound(v.name, largest_of(p.change.size)) for v, p in found)
    if not all(np.isfinite(output.bound) for output in bounds):
        return Certificate(text, unavailable="not certified: the values overflow in this range")
    most = [
        ROUNDOFF[numpy_dtype(v.type.tensor_type.elem_type).name] * largest_of(p.size + p.value.size)
        for v, p in found
    ]
    return Certificate(text, bounds, ROUNDING_STEPS * max(most, default=0.0))


def floating_outputs(original: Graph, result: Graph) -> list[ValueInfoProto]:
    """The floating-point outputs; others have no bound and must be computed as before."""
    found = []
    for value in original.model.graph.output:
        kind = value.type.tensor_type.elem_type
        if kind in FLOATS:
            found.append(value)
        elif not unchanged(original, result, value.name):
            text = numpy_dtype(kind, value.name).name if kind else "not a tensor"
            raise Uncertified(f"output '{value.name}' is {text}")
    return found


def unchanged(original: Graph, result: Graph, name: str) -> bool:
    """Whether a value is computed by the same nodes from the same constants in both models."""
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


def certificate_cost(original: Graph, layers: Iterable[LayerSize]) -> float:
    """About how many floating-point operations the certificate of a model takes."""
    total = float(WEIGHT_FACTOR * count_parameters(original.model))
    for inputs, neurons, outputs, positions, squares in layers:
        whole = form_work(inputs, neurons, outputs, positions)
        by_gram = gram_work(inputs, 2 * neurons, outputs)
        work = whole if whole <= MOST_FORM_WORK else by_gram
        total += LAYER_FACTOR * (work if squares else float(inputs * neurons * outputs))
    for node in original.model.graph.node:
        lengths = original.known_lengths(node.output[0])
        weight = original.constant(node.input[1]) if op(node) == "Conv" else None
        if weight is not None:
            places = float(np.prod(lengths[-weight.values.ndim + 2 :]))
            total += WINDOW_FACTOR * places * weight.values.size
        elif op(node) in ("AveragePool", "MaxPool"):
            kernel = attributes(node).get("kernel_shape", [1])
            total += WINDOW_FACTOR * float(np.prod(lengths)) * float(np.prod(kernel))
    return total


def cheap_to_certify(original: Graph, layers: Iterable[LayerSize]) -> bool:
    """Whether a certificate takes a fraction of a second."""
    return certificate_cost(original, layers) <= CHEAP_FLOPS


def largest_of(a: FloatArray) -> float:
    """The largest element."""
    return float(np.max(a, initial=0.0))


def box_text(box: Box) -> str:
    """The box as a user reads it."""
    texts = {
        f"range [{low:g}, {high:g}]" if np.ndim(low) == np.ndim(high) == 0 else "range of the data"
        for low, high in box.values()
    }
    return texts.pop() if len(texts) == 1 else "range of the data"
