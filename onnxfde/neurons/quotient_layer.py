"""Layers whose neurons stand for blocks of a layer's neurons, as they read back from the file.

V′_B = Σ_{i∈B} V_i ⟨u_i, u_B⟩² / ‖u_B‖⁴        projected: without a refit, or before it
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from onnxfde.neurons.frontier import Reduced
from onnxfde.neurons.kernels import mean_square
from onnxfde.neurons.problem import Problem
from onnxfde.neurons.refit import refit
from onnxfde.numbers import Blocks, FloatArray


def quotient_layer(
    problem: Problem,
    incoming: FloatArray,
    blocks: Blocks,
    refitted: bool = True,
    exact: bool = False,
) -> Reduced:
    """The layer with these rows, one per block; `exact` refits with all digits."""
    live = problem.live
    fitted = replace(live, incoming=incoming, outgoing=projected(problem, incoming, blocks))
    if refitted and len(blocks) < live.neurons:
        fitted = refit(problem.original, fitted, problem.roundoff if exact else None)
    named = tuple(tuple(sorted(int(problem.numbers[i]) for i in block)) for block in blocks)
    return problem.stored(fitted, named)


def projected(problem: Problem, incoming: FloatArray, blocks: Blocks) -> FloatArray:
    """Outgoing weights of each block: its members' squares projected onto its row's square."""
    live, rows = problem.live, problem.metric.whiten(incoming)
    home = np.empty(live.neurons, dtype=np.intp)
    for i, block in enumerate(blocks):
        home[list(block)] = i
    length = mean_square(rows)[home]
    along = np.einsum("ij,ij->i", problem.rows, rows[home])
    along /= np.where(length == 0, 1.0, length)
    outgoing = np.zeros((len(blocks), live.outputs))
    np.add.at(outgoing, home, (live.outgoing * along**2).T)
    return outgoing.T
