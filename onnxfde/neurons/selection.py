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
import numpy.typing as npt

from onnxfde.neurons.greedy_steps import best_pool, greedy_steps, steps_per_block
from onnxfde.neurons.kernels import features, features_fit, kernel, kernel_scale, norm
from onnxfde.neurons.remainder import FeatureRemainder, KernelRemainder, Remainder
from onnxfde.numbers import Array, FloatArray, Indices
from onnxfde.progress import Progress

TARGET_TILE = 1024
"""Candidates whose products with the layer are computed at once: 64 MB for 8,192 neurons. Chosen;
not tuned."""


@dataclass(frozen=True, eq=False)
class Selection:
    """Candidates in an order of which every prefix is a choice, and the error of each prefix."""

    order: Indices
    errors: FloatArray
    """‖F − best fit by the first k‖ for k = 0, 1, 2 …; the first of them is ‖F‖."""


@dataclass(frozen=True, eq=False)
class CandidateNeurons:
    """Whitened rows scaled to K(c, c) = 1, and what the layer F has in common with them."""

    rows: FloatArray
    target: Array
    """T. Selection computes in its type; float32 sees errors down to about 1e-3 of ‖F‖."""
    total: float
    """‖F‖."""
    exact: FloatArray | None = None
    """F itself, one feature per column, where φ has fewer features than there are candidates."""

    @classmethod
    def of(
        cls,
        candidates: FloatArray,
        rows: FloatArray,
        outgoing: FloatArray,
        total: float | None = None,
        dtype: npt.DTypeLike = np.float64,
    ) -> CandidateNeurons:
        """Compare candidates with a layer, whose norm may be known already."""
        count, width = candidates.shape
        scaled = candidates / np.sqrt(kernel_scale(candidates))[:, None]
        if width * (width + 1) // 2 - 1 < count and features_fit(max(count, len(rows)), width):
            exact = outgoing @ features(rows)
            return cls(scaled, exact @ features(scaled).T, float(np.linalg.norm(exact)), exact)
        target = np.empty((len(outgoing), count), dtype)
        u, v = rows.astype(dtype), outgoing.astype(dtype)
        for at in range(0, count, TARGET_TILE):
            tile = slice(at, at + TARGET_TILE)
            target[:, tile] = v @ kernel(u, scaled[tile].astype(dtype))
        return cls(scaled, target, norm(rows, outgoing) if total is None else total)

    def only(self, some: Indices) -> CandidateNeurons:
        """Some of the candidates."""
        return CandidateNeurons(self.rows[some], self.target[:, some], self.total, self.exact)

    def remainder(self, most: int) -> Remainder:
        """Everything before the first candidate is chosen, with room for `most`."""
        if self.exact is None:
            return KernelRemainder.of(self.rows, self.target, self.total, most)
        return FeatureRemainder.of(features(self.rows), self.exact)

    def select(self, most: int, stop: float = 0.0, progress: Progress | None = None) -> Selection:
        """Add the best candidate until there are `most`, or the error falls to `stop`.

        There are fewer if all others are combinations of them.
        """
        most = min(most, len(self.rows))
        rest = self.remainder(most)
        order, squares = np.empty(0, dtype=np.intp), np.array([self.total**2])
        while len(order) < most and squares[-1] > stop**2:
            allowed = min(most - len(order), steps_per_block(len(self.rows)))
            pool, bound = best_pool(rest.gains())
            gram, target = rest.of_pool(pool)
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


def select(
    candidates: FloatArray,
    rows: FloatArray,
    outgoing: FloatArray,
    most: int,
    stop: float = 0.0,
    progress: Progress | None = None,
) -> Selection:
    """Choose up to `most` of some whitened rows for a layer, until the error falls to `stop`."""
    return CandidateNeurons.of(candidates, rows, outgoing).select(most, stop, progress)
