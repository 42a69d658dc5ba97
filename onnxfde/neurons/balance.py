"""Balance."""

from __future__ import annotations

import numpy as np

from onnxfde.neurons.kernels import Metric, mean_square
from onnxfde.neurons.layer import Layer


def balanced(layer: Layer, original: Layer, metric: Metric, exact: bool = True) -> Layer:
    """Choose the scale of each neuron, but let no hidden value outgrow the original's.

    All of 8 bits serve a hidden value that is as large as the others, and none outgrows them that
    matters less: E[h_r] ∝ (‖V_r‖·E[h_r])^¼. One factor for all evens the largest weights in U and
    V. `exact` takes the nearest powers of two: nothing is rounded.
    """
    size = mean_square(metric.whiten(layer.incoming))
    part = np.linalg.norm(layer.outgoing, axis=0) * size
    largest = mean_square(metric.whiten(original.incoming)).max()
    live = part > 0
    if not live.any():
        return layer
    size, part = np.where(live, size, 1.0), np.where(live, part, 1.0)
    most = np.sqrt(largest / size)
    scale = part ** (1 / 8) / np.sqrt(size)
    rows = np.abs(layer.incoming * scale[:, None])[live].max()
    columns = np.abs(layer.outgoing / scale**2)[:, live].max()
    scale *= min((columns / rows) ** (1 / 3), np.min((most / scale)[live]))
    if exact:
        scale = np.exp2(np.minimum(np.round(np.log2(scale)), np.floor(np.log2(most))))
    scale[~live] = 1.0
    return Layer(layer.incoming * scale[:, None], layer.outgoing / scale**2, layer.offset)
