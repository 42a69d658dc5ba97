"""A layer that smaller ones are compared with, in one metric.

    F = Σ_i V_i φ(u_i)        error(o′) = ‖F − F′‖ / ‖F‖

Neurons that both layers have are joined first, so that only what differs is compared:

    F − F′ = Σ_r δ_r φ(u_r)   ‖F − F′‖² = Σ_rs (δ_r·δ_s) K_rs = ‖F‖² − 2⟨V′, T⟩ + ⟨V′K′, V′⟩

The first sum takes the half of K, tile by tile, that belongs to neurons with δ ≠ 0. The second
takes T = V K(U, U′), of which what belongs to the layer's own neurons is computed once; squares
cancel in it, so it serves errors above `CANCELLATION` only. Where φ has no more numbers than the
layer has neurons, F itself is computed, and no K at all.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from onnxfde.neurons.kernels import (
    Metric,
    feature_count,
    features_fit,
    half_tiles,
    kernel,
    kernel_diagonal,
    mean_square,
    norm,
    normalised,
    quick_norm,
    summed_features,
    tile_slices,
)
from onnxfde.neurons.layer import Layer
from onnxfde.numbers import FloatArray, Indices

CANCELLATION = 1e-5
"""A relative error below this is not computed from squares that cancel, which leave half the
digits of float64 (1.5e-8), if there is another way. Chosen; not tuned."""
KEY_COLUMNS = 16
"""Weights of a neuron by which equal neurons are looked up, before all of them are compared.
Chosen; not tuned."""


@dataclass(frozen=True, eq=False)
class OriginalLayer:
    """A layer and the distribution of its inputs."""

    layer: Layer
    metric: Metric

    @cached_property
    def rows(self) -> FloatArray:
        """Its neurons, whitened."""
        return self.metric.whiten(self.layer.incoming)

    @cached_property
    def few_features(self) -> bool:
        """Whether φ has no more numbers than there are neurons."""
        return feature_count(self.rows.shape[1]) <= len(self.rows)

    @cached_property
    def summed(self) -> FloatArray:
        """F."""
        return summed_features(self.rows, self.layer.outgoing)

    @cached_property
    def total(self) -> float:
        """‖F‖: the norm of the centred output."""
        if self.few_features:
            return float(np.linalg.norm(self.summed))
        if self._refitted:
            return float(np.sqrt(max(float(np.vdot(self.overlap, self.layer.outgoing)), 0.0)))
        return quick_norm(self.rows, self.layer.outgoing)

    @cached_property
    def overlap(self) -> FloatArray:
        """⟨F_k, φ(u_i)⟩ of its own neurons: V K."""
        outgoing = self.layer.outgoing
        found = np.zeros(outgoing.shape)
        for i, j, _ in half_tiles(len(self.rows)):
            block = kernel(self.rows[i], self.rows[j])
            found[:, j] += outgoing[:, i] @ block
            if i != j:
                found[:, i] += outgoing[:, j] @ block.T
        return found

    def overlap_with(self, incoming: FloatArray) -> FloatArray:
        """T = ⟨F_k, φ(u′_r)⟩ of other neurons, some of which may be its own."""
        found = np.empty((self.layer.outputs, len(incoming)))
        own, factor = self.own_neurons(incoming)
        known = own >= 0
        found[:, known] = self.overlap[:, own[known]] * factor[known] ** 2
        found[:, ~known] = self.overlap_with_rows(self.metric.whiten(incoming[~known]))
        return found

    def overlap_with_rows(self, rows: FloatArray) -> FloatArray:
        """T of whitened rows."""
        found = np.zeros((self.layer.outputs, len(rows)))
        for j in tile_slices(len(rows)):
            for i in tile_slices(len(self.rows)):
                found[:, j] += self.layer.outgoing[:, i] @ kernel(self.rows[i], rows[j])
        return found

    def own_neurons(self, incoming: FloatArray) -> tuple[Indices, FloatArray]:
        """Which neuron of the layer each row is, times ±2ᵏ, or −1 if none; and 2ᵏ."""
        rows, exponent = normalised(incoming)
        found = np.array([self._keys.get(key, -1) for key in keys(rows)], dtype=np.intp)
        mine, exponents = self._normalised
        for piece in tile_slices(len(rows)):
            same = (rows[piece] == mine[found[piece]]).all(axis=1)
            found[piece] = np.where(same, found[piece], -1)
        return found, np.ldexp(1.0, exponent - exponents[found])

    @cached_property
    def _normalised(self) -> tuple[FloatArray, Indices]:
        return normalised(self.layer.incoming)

    @cached_property
    def _keys(self) -> dict[bytes, int]:
        return {key: number for number, key in enumerate(keys(self._normalised[0]))}

    def error_of(self, other: Layer) -> float:
        """The change of the centred output to that of another layer, relative L2."""
        if not other.finite:
            return np.inf
        if self.total == 0:
            return 0.0
        if self.few_features:
            found = summed_features(self.metric.whiten(other.incoming), other.outgoing)
            return float(np.linalg.norm(self.summed - found)) / self.total
        incoming, change = self.difference(other)
        single = self._refitted
        if self._quickly_expanded(len(incoming), other.neurons):
            error, single = self._expanded_error(other), False
            if error >= CANCELLATION:
                return error
        rows = self.metric.whiten(incoming)
        error = (quick_norm if single else norm)(rows, change) / self.total
        if error < CANCELLATION and features_fit(*rows.shape):
            error = float(np.linalg.norm(summed_features(rows, change))) / self.total
        return error

    def difference(self, other: Layer) -> tuple[FloatArray, FloatArray]:
        """The neurons by which the layers differ, and δ."""
        own, factor = self.own_neurons(other.incoming)
        known = own >= 0
        change = self.layer.outgoing.copy()
        np.subtract.at(change.T, own[known], (other.outgoing * factor**2)[:, known].T)
        left = np.any(change != 0, axis=0)
        incoming = np.vstack([self.layer.incoming[left], other.incoming[~known]])
        return incoming, np.hstack([change[:, left], -other.outgoing[:, ~known]])

    def _quickly_expanded(self, different: int, neurons: int) -> bool:
        """Whether the sum with T takes fewer products than that over the difference."""
        own = self.layer.neurons
        new = max(different - own, 0)
        return self._refitted and 2 * new * own + neurons**2 < different**2

    @property
    def _refitted(self) -> bool:
        """Whether `overlap` is known: whoever fits outgoing weights has asked for it."""
        return "overlap" in self.__dict__

    def _expanded_error(self, other: Layer) -> float:
        """‖F‖² − 2⟨V′, T⟩ + ⟨V′K′, V′⟩ as a relative error."""
        outgoing, rows = other.outgoing, self.metric.whiten(other.incoming)
        cross = float(np.vdot(outgoing, self.overlap_with(other.incoming)))
        square = self.total**2 - 2 * cross + norm(rows, outgoing) ** 2
        return float(np.sqrt(max(square, 0.0))) / self.total

    def rounding_error(self, roundoff: float) -> float:
        """The error to expect if every weight is changed by up to a roundoff, independently.

        A weight changes by a share ξ, Var ξ = roundoff²/3. To first order the neurons' changes are
        independent, so their variances add up: K_ii for V_i, and for u_i, with v = (u_i ξ) T,
        ‖∂φ(u_i) v‖² = 4 (|u|²|v|² + (u·v)² − 2 b_u² b_v²).
        """
        rows, mean, factor = self.rows, self.metric.mean, self.metric.factor
        weights = self.layer.incoming**2
        lengths = np.append(np.sum(factor**2, axis=1) + mean**2, 1.0)
        along = self.metric.spread_out(rows[:, :-1]) + np.outer(rows[:, -1], mean)
        along = np.column_stack([along, rows[:, -1]])
        last = weights @ np.append(mean**2, 1.0)
        size = mean_square(rows) * (weights @ lengths) + np.sum(weights * along**2, axis=1)
        moved = kernel_diagonal(rows) + 4 * (size - 2 * rows[:, -1] ** 2 * last)
        square = float(np.sum(self.layer.outgoing**2, axis=0) @ moved) / 3
        return roundoff * float(np.sqrt(square)) / self.total if self.total else 0.0


def keys(rows: FloatArray) -> list[bytes]:
    """The first weights of each row, as something to look up."""
    first = np.ascontiguousarray(rows[:, :KEY_COLUMNS])
    return [row.tobytes() for row in first]
