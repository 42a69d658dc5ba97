"""The errors of a selection of units on rows that no fit has seen.

    e(k)² = e_fit(k)² + gap(k),     gap(k) = e_held(k)² − e_fit(k)²  at some counts, linear between

Where there are few rows for many features, a fit knows its own rows by heart: e_fit says nothing.
With all units the reader's own weights fit any row, and there is no gap.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from onnxfde.neurons.block_elimination import Moments
from onnxfde.neurons.selection import Selection
from onnxfde.numbers import FloatArray, Indices

LOOKED_AT = (0.9, 0.7, 0.45, 0.2)
"""The shares of the units at which the gap is measured; a fit for each. Chosen; not tuned."""


def expected_errors(found: Selection, readers: Sequence[Moments]) -> FloatArray:
    """The errors of 0, 1, 2 … units that are to be expected on new rows."""
    total = len(found.order)
    counts = sorted({int(share * total) for share in LOOKED_AT} - {0})
    if not counts or any(reader.held is None for reader in readers):
        return found.errors
    squares = found.errors**2
    gaps = [max(held_square(readers, found.order[:k]) - squares[k], 0.0) for k in counts]
    squares = squares + np.interp(np.arange(total + 1), [*counts, total], [*gaps, 0.0])
    return np.sqrt(np.maximum.accumulate(squares[::-1])[::-1])


def held_square(readers: Sequence[Moments], units: Indices) -> float:
    """The squared error of these units, refitted, on the rows that are held out."""
    square, kept = 0.0, np.sort(units)
    for reader in readers:
        assert reader.held is not None
        features, targets = reader.held
        weights, bias = reader.refit(kept)
        left = targets - features[:, reader.columns[kept].ravel()] @ weights.T - bias
        square += float(np.vdot(left, left)) / (len(left) * reader.norm)
    return square
