"""How a layer whose square was completed will be stored: as squares, or as polynomials again.

Squares are the simpler graph. They cost accuracy where β = b/2a is large compared with the values
that the layer has, which its inputs tell (`neurons/quadratics.square_cost`).
"""

from __future__ import annotations

from typing import TypedDict

import numpy as np

from onnxfde.graph.match import Match
from onnxfde.neurons.kernels import Metric
from onnxfde.neurons.quadratics import (
    SQUARE_COST,
    Quadratic,
    common_centre,
    spelled_magnitude,
    square_cost,
)
from onnxfde.numbers import ROUNDOFF, FloatArray


class StoredForm(TypedDict, total=False):
    """The fields of `Problem` that say how a layer is written in the graph."""

    spelled_size: FloatArray
    kept: Quadratic


def stored_form(match: Match, metric: Metric, samples: FloatArray) -> StoredForm:
    """Squares if they round little more than the polynomial; else the polynomial, or t·(t + 2β)."""
    if match.spelling is None:
        return {}
    layer, p = match.layer, match.spelling.polynomial
    size = spelled_magnitude(layer, p, samples)
    dtype = match.incoming.dtype
    margin = ROUNDOFF[dtype.name] / 2**-53 if dtype == np.float64 else 1.0
    if square_cost(layer, p, samples) <= SQUARE_COST * margin:
        return {"spelled_size": size}
    kept = p.first if match.spelling.resizable else Quadratic.around(common_centre(layer, metric))
    return {"spelled_size": size, "kept": kept}
