"""The error of every cut of a merge tree, when its blocks' outgoing weights are refitted.

    error(k)² = ‖F‖² − ‖L⁻¹Tᵀ‖²,      K(cut k) = LLᵀ,   T = V K(U, cut k)

Cuts that are close to each other have most nodes in common. All cuts of a window of counts share
one factorisation of these, and each has a small one of its own for the others (a Schur complement):

    K = [[K_CC, K_CO], [K_OC, K_OO]],   S = K_OO − K_OC K_CC⁻¹ K_CO
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from onnxfde.neurons.kernels import kernel, kernel_scale, unit_rows
from onnxfde.neurons.merge_order import MergeTree
from onnxfde.neurons.original_layer import OriginalLayer
from onnxfde.neurons.positive_matrices import solve_half
from onnxfde.neurons.refit import RIDGE, ridged_gram
from onnxfde.neurons.tree_choice import SEEN_BY_FLOAT32
from onnxfde.numbers import Array, FloatArray, Indices

WINDOWS = 32
"""Into how many windows all counts are divided. A window of n/32 counts has up to 3n/32 nodes that
not all its cuts share, so that a factorisation for these takes little time. Chosen; not tuned."""

SINGLE = 2048
"""Neurons above which float32 is tried first. Chosen; not tuned."""


@dataclass(frozen=True, eq=False)
class Window:
    """What all cuts of some counts share: ‖L⁻¹T_Cᵀ‖², and S and T of the other nodes."""

    explained: float
    others: Indices
    schur: FloatArray
    target: FloatArray


@dataclass(frozen=True, eq=False)
class TreeCurve:
    """The errors of a layer's merge tree, computed when they are asked for."""

    original: OriginalLayer
    tree: MergeTree

    def error(self, count: int) -> float:
        """‖F − F′‖ of the best layer with the nodes of the cut into `count` blocks."""
        if count not in self._errors:
            self._errors[count] = self._computed(count)
        return self._errors[count]

    @property
    def width(self) -> int:
        """How many counts a window has."""
        return -(-self.tree.neurons // WINDOWS)

    @cached_property
    def _errors(self) -> dict[int, float]:
        return {}

    @cached_property
    def _windows(self) -> dict[tuple[int, type], Window]:
        return {}

    @cached_property
    def _lifetimes(self) -> tuple[Indices, Indices]:
        """The smallest and the largest count of blocks at which each node is one of them."""
        size = self.tree.neurons
        smallest, largest = np.zeros(2 * size - 1, np.intp), np.full(2 * size - 1, size)
        left = size - 1 - np.arange(size - 1)
        joins = self.tree.joins
        largest[joins[:, 2]] = left
        smallest[joins[:, 0]] = smallest[joins[:, 1]] = left + 1
        return smallest, largest

    def _computed(self, count: int) -> float:
        if self.tree.neurons > SINGLE:
            error = self._computed_in(np.float32, count)
            if error > SEEN_BY_FLOAT32 * self.original.total:
                return error
        return self._computed_in(np.float64, count)

    def _computed_in(self, dtype: type, count: int) -> float:
        width = self.width
        number = (count - 1) // width
        if (number, dtype) not in self._windows:
            made = self._window(number * width + 1, (number + 1) * width, dtype)
            self._windows[number, dtype] = made
        window = self._windows[number, dtype]
        smallest, largest = self._lifetimes
        chosen = (smallest[window.others] <= count) & (count <= largest[window.others])
        own = np.flatnonzero(chosen)
        fit = solve_half(window.schur[np.ix_(own, own)], window.target[own])
        square = self.original.total**2 - window.explained - float(np.vdot(fit, fit))
        return float(np.sqrt(max(square, 0.0)))

    def _window(self, low: int, high: int, dtype: type) -> Window:
        """What the cuts into `low` to `high` blocks share, factored in this type."""
        smallest, largest = self._lifetimes
        high = min(high, self.tree.neurons)
        everywhere = (smallest <= low) & (largest >= high)
        some = (smallest <= high) & (largest >= low) & ~everywhere
        common, others = np.flatnonzero(everywhere), np.flatnonzero(some)
        schur, target = ridged_gram(self._rows[others]), self._overlaps(others)
        if not len(common):
            return Window(0.0, others, schur, target)
        rows: Array = self._rows[common].astype(dtype)
        cross = kernel(rows, self._rows[others].astype(dtype))
        right = np.hstack([cross, self._overlaps(common).astype(dtype)])
        gram = kernel(rows, rows)
        gram[np.diag_indices(len(gram))] += RIDGE
        fit = solve_half(gram, right)
        mixed, own = fit[:, : len(others)], fit[:, len(others) :]
        schur -= mixed.T @ mixed
        target -= mixed.T @ own
        explained = np.einsum("ij,ij->i", own, own).sum(dtype=np.float64)
        return Window(float(explained), others, schur, target)

    @cached_property
    def _rows(self) -> FloatArray:
        return unit_rows(self.tree.nodes)

    @cached_property
    def _known(self) -> tuple[FloatArray, npt.NDArray[np.bool_]]:
        """T of the nodes, one row each, and which rows are computed: at first the neurons'."""
        size, outputs = self.tree.neurons, self.original.layer.outputs
        overlaps = np.empty((2 * size - 1, outputs))
        overlaps[:size] = self.original.overlap.T / kernel_scale(self.original.rows)[:, None]
        return overlaps, np.arange(2 * size - 1) < size

    def _overlaps(self, nodes: Indices) -> FloatArray:
        """T of some nodes, one row each."""
        overlaps, known = self._known
        new = nodes[~known[nodes]]
        overlaps[new] = self.original.overlap_with_rows(self._rows[new]).T
        known[new] = True
        return overlaps[nodes]
