"""A layer of any activation under Gaussian inputs, as a target for fewer neurons (`objective`).

    ‖F − V′φ(U′)‖² = ‖F‖² − 2⟨V′, T⟩ + ⟨V′G′, V′⟩,     T = V G(U, U′)

From Gram matrices (`hermite_kernel`): a residual below 1e-8 ‖F‖ is rounding.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from onnxfde.neurons.hermite import Expansion
from onnxfde.neurons.hermite_kernel import cosines, hermite_gram, hermite_pull
from onnxfde.neurons.kernels import half_tiles
from onnxfde.neurons.objective import FeatureProducts
from onnxfde.neurons.unit_kernels import HermiteKernel
from onnxfde.numbers import FloatArray


@dataclass(frozen=True, eq=False)
class HermiteTarget:
    """Whitened neurons and their outgoing weights."""

    kernel: HermiteKernel
    rows: FloatArray
    outgoing: FloatArray

    @cached_property
    def expansion(self) -> Expansion:
        """Its neurons as polynomials."""
        return self.kernel.expansion(self.rows)

    @cached_property
    def total(self) -> float:
        """‖F‖."""
        return hermite_norm(self.expansion, self.outgoing)

    def at(self, rows: FloatArray) -> HermiteView:
        """The target seen from these neurons."""
        own = self.kernel.expansion(rows)
        with_target, with_own = cosines(self.expansion, own), cosines(own, own)
        gram = hermite_gram(own, own, with_own)
        overlap = self.outgoing @ hermite_gram(self.expansion, own, with_target)
        return HermiteView(self, own, with_target, with_own, gram, overlap)


@dataclass(frozen=True, eq=False)
class HermiteView:
    """Neurons and the fewer neurons that approximate them."""

    target: HermiteTarget
    own: Expansion
    with_target: FloatArray
    """ρ between the neurons of the target and those that approximate them."""
    with_own: FloatArray
    gram: FloatArray
    overlap: FloatArray

    def loss(self, outgoing: FloatArray) -> tuple[float, FloatArray]:
        """From Gram matrices."""
        target = self.target
        explained = np.sum((2 * self.overlap - outgoing @ self.gram) * outgoing)
        pull = hermite_pull(outgoing.T @ outgoing, self.own, self.own, self.with_own)
        pull -= hermite_pull(
            target.outgoing.T @ outgoing, target.expansion, self.own, self.with_target
        )
        return max(target.total**2 - float(explained), 0.0), pull

    def curvature(self) -> FeatureProducts:
        """Not known."""
        raise NotImplementedError("second derivatives of this kernel are not known")


def hermite_norm(neurons: Expansion, outgoing: FloatArray) -> float:
    """‖V φ(U)‖: the standard deviation of the outputs, over all of them together."""
    square = 0.0
    for i, j, times in half_tiles(len(neurons.lengths)):
        gram = hermite_gram(neurons.only(i), neurons.only(j))
        square += times * float(np.vdot(outgoing[:, i] @ gram, outgoing[:, j]))
    return float(np.sqrt(max(square, 0.0)))
