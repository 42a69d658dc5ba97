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

DOUBLE_MARGIN = ROUNDOFF["float64"] / 2**-53
"""Three bits of double precision are left to our own work, and squares may use them."""
LARGEST_SHIFT = {
    "float16": 2.0**12,
    "bfloat16": 2.0**120,
    "float32": 2.0**120,
    "float64": 2.0**1000,
}
"""The largest shift that a type can store, with room for its sums; a power of two."""


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
    if square_cost(layer, p, samples) <= SQUARE_COST * (
        DOUBLE_MARGIN if dtype == np.float64 else 1
    ):
        return {"spelled_size": size}
    kept = p.first
    if not match.spelling.resizable:
        most = LARGEST_SHIFT[dtype.name]
        kept = Quadratic.around(min(common_centre(layer, metric), most))
    return {"spelled_size": size, "kept": kept}
