"""A layer of any activation that smaller ones are compared with, in one metric.

    F = Σ_i V_i φ(u_i)        error(o′) = ‖F − F′‖ / ‖F‖

from Gram matrices (`hermite_target`). Squares cancel in them, so errors below `CANCELLATION` are
measured on inputs drawn from the metric. The counterpart for squares is `original_layer`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from onnxfde.neurons.hermite_target import HermiteTarget
from onnxfde.neurons.kernels import Metric
from onnxfde.neurons.layer import Layer
from onnxfde.neurons.original_layer import CANCELLATION
from onnxfde.neurons.unit_kernels import HermiteKernel, whitened_rows
from onnxfde.numbers import FloatArray

DRAWN = 512
"""Inputs drawn to measure a small error, which they tell to about a tenth. Chosen; not tuned."""


@dataclass(frozen=True, eq=False)
class ExpandedLayer:
    """A layer and the distribution of its inputs."""

    layer: Layer
    metric: Metric

    @cached_property
    def rows(self) -> FloatArray:
        """Its neurons, whitened."""
        return whitened_rows(self.layer, self.metric)

    @cached_property
    def target(self) -> HermiteTarget:
        """F."""
        kernel = HermiteKernel(self.layer.activation)
        return HermiteTarget(kernel, self.rows, self.layer.outgoing)

    @property
    def total(self) -> float:
        """‖F‖: the norm of the centred output."""
        return self.target.total

    @cached_property
    def _drawn(self) -> FloatArray:
        standard = np.random.default_rng(0).normal(size=(DRAWN, self.layer.inputs))
        return np.asarray(self.metric.spread_out(standard) + self.metric.mean)

    def error_of(self, other: Layer) -> float:
        """The change of the centred output to that of another layer, relative L2."""
        if not other.finite:
            return np.inf
        if self.total == 0:
            return 0.0
        seen, outgoing = self.target.at(whitened_rows(other, self.metric)), other.outgoing
        cross = float(np.vdot(outgoing, seen.overlap))
        square = self.total**2 - 2 * cross + float(np.vdot(outgoing @ seen.gram, outgoing))
        error = float(np.sqrt(max(square, 0.0))) / self.total
        return error if error > CANCELLATION else self._measured(other)

    def _measured(self, other: Layer) -> float:
        """The change on inputs that are drawn."""
        change = other(self._drawn) - self.layer(self._drawn)
        centred = change - change.mean(axis=0)
        return float(np.linalg.norm(centred) / np.sqrt(DRAWN)) / self.total

    def rounding_error(self, roundoff: float) -> float:
        """The error to expect if every weight is changed by up to a roundoff, independently.

        A weight changes by a share ξ, Var ξ = roundoff²/3: V_i by Var h_i, and u_i by about
        E[σ′²] Σ_j u_ij² E[z_j²].
        """
        if not self.total:
            return 0.0
        variances = self.target.expansion.variances
        lengths = np.append(np.sum(self.metric.factor**2, axis=1) + self.metric.mean**2, 1.0)
        before = self._drawn @ self.layer.incoming[:, :-1].T + self.layer.incoming[:, -1]
        slopes = self.layer.activation.slope(before, *self.layer.unit_parameters)
        moved = variances + np.mean(slopes**2, axis=0) * (self.layer.incoming**2 @ lengths)
        square = float(np.sum(self.layer.outgoing**2, axis=0) @ moved) / 3
        return roundoff * float(np.sqrt(square)) / self.total
