"""Which of many candidate neurons to keep: the best is added, one after the other.

A layer F = V φ(U) is approximated by some of the candidates C, with outgoing weights by least
squares. In terms of T = F φ(C)ᵀ = V K(U, C) and κ = diag K(C, C), the next candidate is that of
largest

    ‖t_i‖² / κ_i,

where t_i and κ_i are what is left of T and κ after projecting out the candidates chosen so far
(`remainder`); error² falls by exactly that. So one run gives the errors of all counts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from onnxfde.neurons.candidates import CandidateNeurons
from onnxfde.neurons.greedy_steps import best_pool, greedy_steps, steps_per_block
from onnxfde.neurons.remainder import FeatureRemainder, KernelRemainder, Remainder
from onnxfde.numbers import FloatArray, Indices
from onnxfde.progress import Progress


@dataclass(frozen=True, eq=False)
class Selection:
    """Candidates in an order of which every prefix is a choice, and the error of each prefix."""

    order: Indices
    errors: FloatArray
    """‖F − best fit by the first k‖ for k = 0, 1, 2 …; the first of them is ‖F‖."""


def select(
    neurons: CandidateNeurons, most: int, stop: float = 0.0, progress: Progress | None = None
) -> Selection:
    """Add the best candidate until there are `most`, or the error falls to `stop`.

    There are fewer if all others are combinations of them.
    """
    most = min(most, len(neurons.rows))
    rest = remainder_of(neurons, most)
    order, squares = np.empty(0, dtype=np.intp), np.array([neurons.total**2])
    steps = steps_per_block(max(len(neurons.rows), neurons.kept))
    while len(order) < most and squares[-1] > stop**2:
        pool, bound = best_pool(rest.gains(), steps)
        gram, target = rest.of_pool(pool)
        allowed = min(most - len(order), steps)
        chosen, gains = greedy_steps(gram, target, allowed, bound, rest.negligible)
        if not len(chosen):
            break
        rest.project_out(pool[chosen], gram[np.ix_(chosen, chosen)], target[:, chosen])
        order = np.concatenate([order, pool[chosen]])
        after = rest.square + np.append(gains[:0:-1].cumsum()[::-1], 0.0)
        squares = np.concatenate([squares, np.minimum(after, squares[-1])])
        if progress is not None:
            progress.at(len(order), most)
    count = int(np.argmax(squares <= stop**2)) if squares[-1] <= stop**2 else len(order)
    return Selection(order[:count], np.sqrt(np.maximum(squares[: count + 1], 0.0)))


def remainder_of(neurons: CandidateNeurons, most: int) -> Remainder:
    """Everything before the first of at most `most` candidates is chosen."""
    if neurons.exact is None:
        return KernelRemainder.of(neurons, most)
    return FeatureRemainder.of(neurons, neurons.exact)
