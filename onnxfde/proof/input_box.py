"""The interval of a model's input, from the box of inputs that a certificate is about."""

from __future__ import annotations

import math

import numpy as np

from onnxfde.errors import DataError
from onnxfde.graph.input_specs import InputSpec, input_specs
from onnxfde.graph.model import Graph
from onnxfde.graph.tensors import FLOATS
from onnxfde.neurons.intervals import Box, Interval, Limits, Uncertified
from onnxfde.proof.output_size import refuse_too_large


def input_interval(graph: Graph, name: str, box: Box) -> tuple[Interval, bool]:
    """The interval of an input for one sample, and whether it may hold several."""
    dims = input_spec(graph, name).dims
    if name not in box:
        raise Uncertified(f"input '{name}' has no range")
    shape = tuple(d if isinstance(d, int) else 1 for d in dims)
    refuse_too_large(math.prod(shape))
    return limited_interval(name, box[name], shape), not isinstance(dims[0], int)


def input_spec(graph: Graph, name: str) -> InputSpec:
    """The shape and type of an input, if it is floating-point and only its samples are unknown."""
    try:
        spec = next(s for s in input_specs(graph) if s.name == name)
    except DataError as reason:
        raise Uncertified(str(reason)) from None
    kind = next(v.type.tensor_type for v in graph.inputs if v.name == name)
    if kind.elem_type not in FLOATS:
        raise Uncertified(f"input '{name}' is {spec.dtype.name}")
    if not spec.dims:
        raise Uncertified(f"input '{name}' has no shape")
    if any(not isinstance(d, int) for d in spec.dims[1:]):
        raise Uncertified(f"input '{name}' has axes of unknown length")
    return spec


def limited_interval(name: str, limits: Limits, shape: tuple[int, ...]) -> Interval:
    """The interval between the limits of an input of this shape."""
    ends = [np.asarray(end, dtype=np.float64) for end in limits]
    try:
        low, high = (np.ascontiguousarray(np.broadcast_to(end, shape)) for end in ends)
    except ValueError:
        raise Uncertified(f"the range of input '{name}' does not fit its shape") from None
    if not (np.isfinite(low).all() and np.isfinite(high).all() and np.all(low <= high)):
        raise Uncertified(f"input '{name}' has no range of finite numbers")
    return Interval(low.reshape(shape), high.reshape(shape))
