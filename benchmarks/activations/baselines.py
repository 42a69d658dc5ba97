"""Fewer neurons by other methods, on the two linear maps around an activation.

    y = V σ(W x + b) + c        W: neurons × inputs, V: outputs × neurons

`strongest` is structured magnitude pruning; `interpolated` keeps neurons of which the others are
nearly linear combinations (Chee, Flynn, Damle, De Sa: Model Preserving Compression for Neural
Networks, 2022).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from onnxfde.numbers import Array


@dataclass(frozen=True, eq=False)
class Pair:
    """The maps before and after an activation."""

    incoming: Array
    bias: Array
    outgoing: Array
    offset: Array

    def kept(self, chosen: Array, outgoing: Array) -> Pair:
        """Only the chosen neurons, with other outgoing weights."""
        return Pair(self.incoming[chosen], self.bias[chosen], outgoing, self.offset)


def strongest(pair: Pair, neurons: int) -> Pair:
    """The neurons with the largest ‖(w_i, b_i)‖·‖V_i‖; nothing makes up for the others."""
    length = np.linalg.norm(np.column_stack([pair.incoming, pair.bias]), axis=1)
    strength = length * np.linalg.norm(pair.outgoing, axis=0)
    chosen = np.sort(np.argsort(-strength, kind="stable")[:neurons])
    return pair.kept(chosen, pair.outgoing[:, chosen])


def interpolated(pair: Pair, neurons: int, hidden: Array) -> Pair:
    """Interpolative decomposition of the hidden activations Z (rows × neurons).

    A QR decomposition with column pivoting, Z P = Q [R₁ R₂], chooses the neurons, and
    Z ≈ Z_chosen [I R₁⁺R₂] Pᵀ gives the outgoing weights. R₁ is singular where neurons are never on.
    """
    from scipy.linalg import qr

    r, order = qr(hidden.astype(np.float64), mode="r", pivoting=True)
    chosen, others = order[:neurons], order[neurons:]
    combined, *_ = np.linalg.lstsq(r[:, :neurons], r[:, neurons:], rcond=None)
    outgoing = pair.outgoing[:, chosen] + pair.outgoing[:, others] @ combined.T
    return pair.kept(chosen, outgoing)
