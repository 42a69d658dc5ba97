"""Candidate neurons of which only the Gram matrix G and the products T with a layer are known.

Those of squares are in `candidates`; here G may be of any activation, or measured on data.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from onnxfde.neurons.candidates import INDEPENDENT_SHARE, errors_in_order
from onnxfde.neurons.positive_matrices import pivoted_factor
from onnxfde.neurons.unit_kernels import normalising
from onnxfde.numbers import FloatArray, Indices


@dataclass(frozen=True, eq=False)
class GivenCandidates:
    """G with a diagonal of ones (or zeros), T scaled with it, and ‖F‖."""

    gram: FloatArray
    target: FloatArray
    total: float

    @classmethod
    def of(cls, gram: FloatArray, target: FloatArray, total: float) -> GivenCandidates:
        """Scale the candidates to norm 1."""
        scale = normalising(np.diagonal(gram))
        found = gram / scale
        found /= scale[:, None]
        return cls(found, target / scale, total)

    @property
    def count(self) -> int:
        """How many candidates there are."""
        return len(self.gram)

    def only(self, some: Indices) -> GivenCandidates:
        """Some of the candidates."""
        return GivenCandidates(self.gram[np.ix_(some, some)], self.target[:, some], self.total)

    def independent(self) -> tuple[Indices, FloatArray]:
        """Linearly independent candidates, most independent first, and L of their G = LLᵀ."""
        return pivoted_factor(self.gram.copy(), INDEPENDENT_SHARE)

    def fit_in_order(self) -> tuple[Indices, FloatArray]:
        """Independent candidates, and the errors of the first k of them, from ‖F‖ at 0."""
        some, root = self.independent()
        return some, errors_in_order(root, self.target[:, some].T, self.total)
