"""A metric in which only what some neurons read of the inputs counts.

    u T = (w Q, m),     Q: an orthonormal basis of the rows w of those neurons, whitened

A layer is a function of Ux alone. Where it has fewer neurons than inputs, smaller layers therefore
look for neurons in the span of U only: there is less to compute, and in all other directions data
could teach them nothing but its accidents. Whitened inputs z stay standard normal as Qᵀz.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from onnxfde.neurons.kernels import Metric
from onnxfde.numbers import FloatArray


@dataclass(frozen=True, eq=False)
class SpanMetric(Metric):
    """A metric, and the whitened directions that count, one in each column."""

    basis: FloatArray

    def whiten(self, incoming: FloatArray) -> FloatArray:
        """Rows u as u T."""
        return self._projected(super().whiten(incoming))

    def unwhiten(self, rows: FloatArray) -> FloatArray:
        """The inverse of `whiten` within the span."""
        return super().unwhiten(np.column_stack([rows[:, :-1] @ self.basis.T, rows[:, -1]]))

    def standardise(self, inputs: FloatArray) -> FloatArray:
        """Rows x as whitened z: `whiten(u)`·z = u·(x, 1) for all u in the span."""
        return self._projected(super().standardise(inputs))

    def _projected(self, rows: FloatArray) -> FloatArray:
        return np.column_stack([rows[:, :-1] @ self.basis, rows[:, -1]])


def seen_by(incoming: FloatArray, metric: Metric) -> Metric:
    """The metric in the span of some neurons; the same if they read all of the inputs."""
    rows = metric.whiten(incoming)[:, :-1]
    if len(rows) >= rows.shape[1] or not np.isfinite(rows).all():
        return metric
    return SpanMetric(metric.mean, metric.factor, np.linalg.qr(rows.T)[0])
