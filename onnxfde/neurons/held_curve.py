"""What rows that no fit has seen say: of the errors of a selection of units, and of λ.

    λ       that with which some of the units, refitted, have the least error on these rows
    e(k)² = e_fit(k)² + gap(k),     gap(k) = e_held(k)² − e_fit(k)²  at some counts, linear between

Where there are few rows for many features, a fit knows its own rows by heart: e_fit says nothing.
With all units the reader's own weights fit any row, and there is no gap.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from onnxfde.neurons.block_elimination import FREE, Moments, eliminate_units
from onnxfde.neurons.selection import Selection
from onnxfde.numbers import FloatArray, Indices
from onnxfde.progress import Progress

LOOKED_AT = (0.9, 0.7, 0.45, 0.2)
"""The shares of the units at which the gap is measured; a fit for each. Chosen; not tuned."""
STRENGTHS = (FREE, 1e-4, 1e-2, 0.1, 1.0, 10.0)
"""The λ that are compared. Chosen: with many rows the least is best, with few of many features one
of the last."""
UNKNOWN_STRENGTH = 1e-2
"""λ where no rows are held out, because there are very few. Chosen; not tuned."""
WORTH_IT = 0.97
"""A larger λ has to lower the squared error to this share of it: what is gained by chance is lost
again, because a fit near W₀ makes up less for what changed before it. On ResNet20 at half of its
multiply-adds the best λ of each layer, however little it gained there, cost 0.5 points. Chosen."""
HARMLESS = 1e-4
"""Up to this λ the order in which units are dropped is taken from the least. Chosen."""


def selected_units(
    readers: Sequence[Moments], count: int | None = None, progress: Progress | None = None
) -> tuple[list[Moments], Selection]:
    """An order of the units, and the λ that is best for so many of them, half if that is open.

    Where rows are few, a fit to them drops others than it should: then units are ordered once more
    with the λ that was found, if that gains on rows held out.
    """
    if any(reader.held is None for reader in readers):
        few = with_strength(readers, UNKNOWN_STRENGTH)
        return few, eliminate_units(few, progress)
    count = count or -(-len(readers[0].columns) // 2)
    first = eliminate_units(with_strength(readers, FREE), progress)
    found, error = best_strength(readers, first.order[:count])
    if found[0].strength <= HARMLESS:
        return found, first
    second = eliminate_units(found, progress)
    again, lower = best_strength(readers, second.order[:count])
    return (again, second) if lower < WORTH_IT * error else (found, first)


def with_strength(readers: Sequence[Moments], strength: float) -> list[Moments]:
    """The same with another λ."""
    return [replace(reader, strength=strength) for reader in readers]


def best_strength(readers: Sequence[Moments], units: Indices) -> tuple[list[Moments], float]:
    """The least λ that is good enough for some units on rows held out; the squared error there."""
    tried = [with_strength(readers, strength) for strength in STRENGTHS]
    errors = np.array([held_square(some, units) for some in tried])
    best = int(np.argmax(WORTH_IT * errors <= errors.min()))
    return tried[best], float(errors[best])


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
