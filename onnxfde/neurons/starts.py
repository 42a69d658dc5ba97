"""Where a free search starts: whitened rows for a wanted number of neurons.

    blocks        the rows of the merge tree's blocks
    strongest     of twice as many blocks, those that matter most: ‖V_r‖² / [K⁻¹]_rr is exactly
                  what the squared error rises by when neuron r goes and the others are refitted
    importance    original neurons drawn with odds ‖V_i‖ √K_ii
    random        rows drawn from a normal distribution

The more unknowns there are, the fewer starts are tried.
"""

from __future__ import annotations

import numpy as np

from onnxfde.neurons.merge_search import MergeSearch
from onnxfde.neurons.objective import Objective
from onnxfde.neurons.problem import Problem
from onnxfde.neurons.refit import RIDGE
from onnxfde.neurons.unit_kernels import normalising
from onnxfde.numbers import FloatArray

FEW_STARTS = 2
"""Starts for the largest problems: blocks and strongest only. Chosen; not tuned."""
STARTS = ((500, 12), (4000, 6))
"""Pairs of a limit on the unknowns in U′ and the number of starts up to it; beyond, `FEW_STARTS`.
Ten restarts beside the first two worked in prototypes; the rest is chosen, not tuned."""


def starting_rows(blocks: MergeSearch, count: int, objective: Objective) -> list[FloatArray]:
    """Starts with `count` neurons each: blocks, strongest, then importance and random in turns."""
    rows, kernel = blocks.problem.rows, blocks.problem.kernel
    first, *larger = blocks.first_rows(count)
    found = [first, *(strongest(some, count, objective) for some in larger)]
    most = starts_at(count, blocks.problem)
    if most <= FEW_STARTS:
        return found
    rng = np.random.default_rng((blocks.problem.seed, count))
    scale = normalising(kernel.variances(rows))
    strength = np.linalg.norm(blocks.problem.live.outgoing, axis=0) * scale
    odds = strength / strength.sum()
    enough = int(np.count_nonzero(odds)) >= count
    while len(found) < most:
        if enough and len(found) % 2:
            found.append(rows[rng.choice(len(rows), count, replace=False, p=odds)])
        else:
            found.append(kernel.drawn(rng, count, rows))
    return found


def starts_at(count: int, problem: Problem) -> int:
    """How many starts there are for this many neurons."""
    unknowns = count * problem.rows.shape[1]
    return next((many for limit, many in STARTS if unknowns <= limit), FEW_STARTS)


def strongest(rows: FloatArray, count: int, objective: Objective) -> FloatArray:
    """The `count` neurons without which the error after a refit rises most."""
    fit = objective.fit(rows)
    kernel = objective.kernel
    scale = normalising(kernel.variances(rows))
    alone = np.sum(fit.outgoing**2, axis=0) * scale**2
    gram = kernel.correlations(rows)
    gram[np.diag_indices(len(gram))] += RIDGE
    saliency = alone / np.diag(np.linalg.inv(gram))
    return np.asarray(rows[np.sort(np.argsort(saliency, kind="stable")[-count:])])
