"""How much a result can differ from its original over a whole box of inputs: a proof, not a sample.

    |y′(x) − y(x)| ≤ bound   for all x in the box, the stored weights in exact arithmetic

Values of the two graphs are paired from the outputs back to the inputs (`pairing`): where both are
chains of affine maps and squares, as chains; where the same operator makes both, by its rule; else
each by itself, and the intervals are subtracted. One sample is followed: a dynamic leading axis has
length 1. Execution in the stored type adds rounding, which is estimated apart as 16·u·(A + |y|), A
the original on absolute values.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from onnxfde.affine import op
from onnxfde.bounds import MOST_WORK, work
from onnxfde.budget import ROUNDING_STEPS
from onnxfde.graph import FLOATS, ROUNDOFF, Graph, numpy_dtype
from onnxfde.maps import squares
from onnxfde.operators import Uncertified
from onnxfde.pairing import Box, Pairing
from onnxfde.pattern import find_layers
from onnxfde.polynomial import FloatArray

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


def certify(original: Graph, result: Graph, box: Box) -> Certificate:
    """Bound the change of every output over a box of inputs."""
    pairing, text = Pairing(original, result, box), described(box)
    outputs = [v for v in original.model.graph.output if v.type.tensor_type.elem_type in FLOATS]
    try:
        with np.errstate(over="ignore", invalid="ignore"):
            found = [(value, pairing.output(value.name)) for value in outputs]
    except Uncertified as reason:
        return Certificate(text, unavailable=f"not certified: {reason}")
    bounds = tuple(OutputBound(v.name, largest(p.change.size)) for v, p in found)
    most = [
        ROUNDOFF[numpy_dtype(v.type.tensor_type.elem_type).name] * largest(p.size + p.value.size)
        for v, p in found
    ]
    return Certificate(text, bounds, ROUNDING_STEPS * max(most, default=0.0))


def cost(original: Graph) -> float:
    """About how many floating-point operations a certificate of this model takes."""
    layers = [squares(match.layer) for match in find_layers(original)[0]]
    total = sum(4 * min(work(layer, layer, same=True), MOST_WORK) for layer in layers)
    for node in original.model.graph.node:
        weight = original.constant(node.input[1]) if op(node) == "Conv" else None
        lengths = [d for d in original.shape(node.output[0]) or () if isinstance(d, int)]
        if weight is not None:
            total += 10 * float(np.prod(lengths[-weight.values.ndim + 2 :])) * weight.values.size
    return total


def cheap(original: Graph) -> bool:
    """Whether a certificate takes a fraction of a second."""
    return cost(original) <= CHEAP_FLOPS


def largest(a: FloatArray) -> float:
    """The largest element."""
    return float(np.max(a, initial=0.0))


def described(box: Box) -> str:
    """The box as a user reads it."""
    texts = {
        f"[{low:g}, {high:g}]" if np.ndim(low) == np.ndim(high) == 0 else "range of the data"
        for low, high in box.values()
    }
    return texts.pop() if len(texts) == 1 else "range of the data"
