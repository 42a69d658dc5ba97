"""An AveragePool as a matrix.

    A = I ⊗ A₁ ⊗ A₂ …       A_i: the averages along one axis, I: each channel by itself

The mean over a window is the mean of means along its axes, also at borders, where only the
positions inside count.
"""

from __future__ import annotations

import math

import numpy as np

from onnxfde.graph.affine_maps import NoMatch
from onnxfde.graph.node_windows import NodeWindows, sure_padding
from onnxfde.graph.nodes import attributes, label, op
from onnxfde.graph.protos import NodeProto
from onnxfde.numbers import FloatArray, Indices


def pool_matrix(
    node: NodeProto, shape: tuple[int, ...], most: int
) -> tuple[FloatArray, tuple[int, ...]]:
    """A of a pool that reads channels and positions of this shape, and the shape of what it makes.

    NoMatch if A has more than so many entries, or engines do not agree on the windows.
    """
    options, lengths = attributes(node), shape[1:]
    windows = NodeWindows.of(node, options["kernel_shape"])
    pads = sure_padding(node, windows, lengths)
    axes = list(zip(lengths, windows.reaches, windows.strides, pads, strict=True))
    made = [(n + sum(pad) - reach) // stride + 1 for n, reach, stride, pad in axes]
    if math.prod(shape) * shape[0] * math.prod(made) > most:
        raise NoMatch(f"{op(node)} '{label(node)}' is too large as one matrix")
    found: FloatArray = np.eye(shape[0])
    for axis, outputs in enumerate(made):
        steps = windows.dilations[axis] * np.arange(windows.kernel[axis]) - pads[axis][0]
        places = windows.strides[axis] * np.arange(outputs)[:, None] + steps
        own = averages(places, lengths[axis], bool(options.get("count_include_pad", 0)))
        found = np.asarray(np.kron(found, own), np.float64)
    return found, (shape[0], *made)


def averages(places: Indices, length: int, all_count: bool) -> FloatArray:
    """The averages along one axis, whose windows have these places: outputs × positions.

    >>> averages(np.array([[-1, 0], [0, 1]]), length=2, all_count=False).tolist()
    [[1.0, 0.0], [0.5, 0.5]]
    """
    found = np.zeros((len(places), length))
    inside = (places >= 0) & (places < length)
    rows, _ = np.nonzero(inside)
    np.add.at(found, (rows, places[inside]), 1.0)
    count = places.shape[1] if all_count else np.maximum(inside.sum(axis=1, keepdims=True), 1)
    return np.asarray(found / count)
