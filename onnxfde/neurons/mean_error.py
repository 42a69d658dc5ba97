"""The error of a layer under several assumptions t about its inputs, which one offset must serve.

    error_t² = (‖F_t − F′_t‖² + ‖m_t − d‖²) / ‖F_t‖²       m_t = E_t[o] − E_t[o′]

F is the centred output. Under a single assumption the offset moves by d = m, and no mean error is
left. Under two it moves by d = (1 − s)·m₁ + s·m₂, with the s that makes the larger error least.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from onnxfde.neurons.expanded_layer import ExpandedLayer
from onnxfde.neurons.layer import Layer
from onnxfde.neurons.original_layer import OriginalLayer
from onnxfde.neurons.unit_kernels import Kernel, whitened_rows
from onnxfde.numbers import FloatArray

OFFSET_SHARES = np.linspace(0, 1, 65)
"""The s that are tried. Chosen: the error is then within 1 % of the least; not tuned."""


@dataclass(frozen=True, eq=False)
class MeanErrors:
    """A layer under several assumptions about its inputs."""

    originals: tuple[OriginalLayer | ExpandedLayer, ...]
    kernel: Kernel
    floor: float
    """A relative change of the mean up to this is rounding, and left as it is."""

    @cached_property
    def _means(self) -> list[FloatArray]:
        return [self._mean_output(original, original.layer) for original in self.originals]

    def _mean_output(self, original: OriginalLayer | ExpandedLayer, layer: Layer) -> FloatArray:
        means = self.kernel.means(whitened_rows(layer, original.metric))
        return np.asarray(layer.outgoing @ means + layer.offset)

    def missing(self, layer: Layer) -> list[FloatArray]:
        """The means m that a layer lacks, one of each assumption."""
        pairs = zip(self.originals, self._means, strict=True)
        return [mean - self._mean_output(original, layer) for original, mean in pairs]

    def relative(self, missing: list[FloatArray]) -> FloatArray:
        """‖m‖ / ‖F‖ of each assumption; 0 where it is rounding."""
        totals = np.array([original.total or np.inf for original in self.originals])
        found = np.array([np.linalg.norm(m) for m in missing]) / totals
        return np.where(found > self.floor, found, 0.0)

    def error_of(self, layer: Layer) -> float:
        """The largest error under any assumption."""
        if not layer.finite:
            return np.inf
        own = [original.error_of(layer) for original in self.originals]
        return float(np.max(np.hypot(own, self.relative(self.missing(layer)))))

    def settled(self, layer: Layer, read_back: Callable[[Layer], Layer]) -> tuple[Layer, float]:
        """The layer with the best offset, as it reads back from the file, and its error."""
        if not layer.finite:
            return layer, np.inf
        own = np.array([original.error_of(layer) for original in self.originals])
        missing = self.missing(layer)
        if self.relative(missing).any():
            other = 1 + int(np.argmax(own[1:]))
            apart = self.relative([missing[other] - missing[0]] * len(own))
            worst = np.maximum(
                np.hypot(own[0], OFFSET_SHARES * apart[0]),
                np.hypot(own[other], (1 - OFFSET_SHARES) * apart[other]),
            )
            share = OFFSET_SHARES[np.argmin(worst)]
            offset = layer.offset + (1 - share) * missing[0] + share * missing[other]
            layer = read_back(replace(layer, offset=offset))
            missing = self.missing(layer)
        return layer, float(np.max(np.hypot(own, self.relative(missing))))
