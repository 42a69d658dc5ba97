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

from onnxfde.neurons.block_search import BlockSearch
from onnxfde.neurons.kernels import kernel_scale
from onnxfde.neurons.objective import Objective
from onnxfde.neurons.problem import Problem
from onnxfde.neurons.refit import ridged_gram
from onnxfde.numbers import FloatArray

FEW_STARTS = 2
"""Starts for the largest problems: blocks and strongest only. Chosen; not tuned."""
STARTS = ((500, 12), (4000, 6))
"""Pairs of a limit on the unknowns in U′ and the number of starts up to it; beyond, `FEW_STARTS`.
Ten restarts beside the first two worked in prototypes; the rest is chosen, not tuned."""


def starting_rows(blocks: BlockSearch, count: int, objective: Objective) -> list[FloatArray]:
    """Starts with `count` neurons each: blocks, strongest, then importance and random in turns."""
    rows, tree = blocks.problem.rows, blocks.tree
    once, twice = (tree.nodes[tree.cut(many)[0]] for many in (count, min(2 * count, tree.neurons)))
    found = [once, strongest(twice, count, objective)]
    most = starts_at(count, blocks.problem)
    rng = np.random.default_rng((blocks.problem.seed, count))
    strength = np.linalg.norm(blocks.problem.live.outgoing, axis=0) * kernel_scale(rows)
    odds = strength / strength.sum()
    enough = int(np.count_nonzero(odds)) >= count
    while len(found) < most:
        if enough and len(found) % 2:
            found.append(rows[rng.choice(len(rows), count, replace=False, p=odds)])
        else:
            found.append(rng.normal(size=(count, rows.shape[1])))
    return found


def starts_at(count: int, problem: Problem) -> int:
    """How many starts there are for this many neurons."""
    unknowns = count * problem.rows.shape[1]
    return next((many for limit, many in STARTS if unknowns <= limit), FEW_STARTS)


def strongest(rows: FloatArray, count: int, objective: Objective) -> FloatArray:
    """The `count` neurons without which the error after a refit rises most."""
    fit = objective.fit(rows)
    scale = kernel_scale(rows)
    alone = np.sum(fit.outgoing**2, axis=0) * scale**2
    saliency = alone / np.diag(np.linalg.inv(ridged_gram(rows)))
    return np.asarray(rows[np.sort(np.argsort(saliency, kind="stable")[-count:])])
