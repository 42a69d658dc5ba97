"""The scale of each neuron, which the function leaves free: u → αu, V → V/αᵖ, p the degree.

Two aims, the first for 8 bits, where all hidden values h_r share one step size:

    E[h_r] ∝ (‖V_r‖·E[h_r])^¼       neurons that contribute little may use little of the range
    max |U| = max |V|               by one factor for all neurons

No E[h_r] may exceed the largest of the original layer, nor a ceiling that is well within the stored
type, or h could overflow where the original did not. E[h] is taken as E[(u·z)²]^(p/2): exact for
squares, and for others not far off, nor small only because a neuron is mostly off.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from onnxfde.neurons.kernels import Metric, mean_square
from onnxfde.neurons.layer import Layer

CONTRIBUTION_POWER = 1 / 4
"""The exponent ¼ above: 0 would make all hidden values equally large, 1 would give them the sizes
of their contributions. Chosen between the two; not tuned."""


def balanced(
    layer: Layer, original: Layer, metric: Metric, exact: bool = True, ceiling: float = np.inf
) -> Layer:
    """The same function with other scales; `exact` takes powers of two, which round nothing."""
    degree = layer.activation.degree
    if degree is None:
        return layer
    size = mean_square(metric.whiten(layer.incoming)) ** (degree / 2)
    part = np.linalg.norm(layer.outgoing, axis=0) * size
    largest = min(mean_square(metric.whiten(original.incoming)).max() ** (degree / 2), ceiling)
    live = part > 0
    if not live.any():
        return layer
    size, part = np.where(live, size, 1.0), np.where(live, part, 1.0)
    most = (largest / size) ** (1 / degree)
    scale = part ** (CONTRIBUTION_POWER / degree) / size ** (1 / degree)
    rows = np.abs(layer.incoming * scale[:, None])[live].max()
    columns = np.abs(layer.outgoing / scale**degree)[:, live].max()
    scale *= min((columns / rows) ** (1 / (degree + 1)), np.min((most / scale)[live]))
    if exact:
        scale = np.exp2(np.minimum(np.round(np.log2(scale)), np.floor(np.log2(most))))
    scale[~live] = 1.0
    return replace(
        layer, incoming=layer.incoming * scale[:, None], outgoing=layer.outgoing / scale**degree
    )
