"""Neurons of any activation as polynomials, under inputs that are distributed as N(μ, Σ).

A whitened row (w, m) makes the values a = m + sξ, s = ‖w‖, ξ ~ N(0, 1). With h_k = He_k/√k!

    σ(m + sξ) = Σ_k c_k h_k(ξ),     c_k = E[σ(m + sξ) h_k(ξ)]
    ∂c_k/∂m = √(k+1) c_{k+1} / s,   ∂c_k/∂s = (√((k+1)(k+2)) c_{k+2} + k c_k) / s
    t² = E[σ²] − Σ_{k≤K} c_k²       what the first K leave over: the tail

Polynomials end at their power. If a neuron has parameters, they stand behind its row.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from onnxfde.neurons.activation import Activation
from onnxfde.numbers import FloatArray

TERMS = 16
"""K. Measured with the tail spread as in `hermite_kernel`, 256 neurons with near-parallel pairs:
the covariances of Relu are wrong by 2e-7 (rms), of tanh by 1e-6, and without the tail by 2e-4."""
PANEL_NODES = 60
"""Gauss–Legendre nodes between two kinks. Taken from prototypes; not tuned."""
REACH = 8.5
"""Integrals end at this many standard deviations: beyond lies 2e-17 of the distribution."""
LEAST_TAIL = 1e-14
"""A tail below this share of E[σ²] is rounding."""


@dataclass(frozen=True, eq=False)
class Expansion:
    """Neurons as polynomials: one column of coefficients per neuron."""

    directions: FloatArray
    """w/s; rows of zeros where s = 0."""
    lengths: FloatArray
    """s, or 1 where s = 0 (all c_k are 0 there but the first)."""
    padding: int
    """How many parameters stand behind each row."""
    coefficients: FloatArray
    """c_0, …, c_{K+2}; with c_0 the means."""
    square: FloatArray
    """E[σ²]."""
    square_shift: FloatArray
    """∂E[σ²]/∂m."""
    square_stretch: FloatArray
    """∂E[σ²]/∂s."""
    tailed: bool

    @property
    def terms(self) -> int:
        """K."""
        return len(self.coefficients) - 3

    @property
    def means(self) -> FloatArray:
        """E[σ]."""
        return np.asarray(self.coefficients[0])

    @cached_property
    def shifts(self) -> FloatArray:
        """∂c_k/∂m for k = 0, …, K."""
        k = np.arange(self.terms + 1.0)[:, None]
        return np.asarray(np.sqrt(k + 1) * self.coefficients[1:-1] / self.lengths)

    @cached_property
    def stretches(self) -> FloatArray:
        """∂c_k/∂s for k = 0, …, K."""
        k, c = np.arange(self.terms + 1.0)[:, None], self.coefficients
        return np.asarray((np.sqrt((k + 1) * (k + 2)) * c[2:] + k * c[:-2]) / self.lengths)

    @cached_property
    def tail(self) -> FloatArray:
        """The root t of what is left over."""
        left = self.square - np.sum(self.coefficients[:-2] ** 2, axis=0)
        kept = self.tailed & (left > LEAST_TAIL * self.square)
        return np.sqrt(np.where(kept, left, 0.0))

    @cached_property
    def tail_slopes(self) -> tuple[FloatArray, FloatArray]:
        """∂t/∂m and ∂t/∂s."""
        c, twice = self.coefficients[:-2], np.where(self.tail > 0, 2 * self.tail, np.inf)
        shift = self.square_shift - 2 * np.sum(c * self.shifts, axis=0)
        stretch = self.square_stretch - 2 * np.sum(c * self.stretches, axis=0)
        return shift / twice, stretch / twice

    @cached_property
    def variances(self) -> FloatArray:
        """Var σ: the diagonal of the Gram matrix."""
        if not self.tailed:
            return np.asarray(np.sum(self.coefficients[1:-2] ** 2, axis=0))
        return np.maximum(self.square - self.means**2, 0.0)

    def only(self, some: slice) -> Expansion:
        """Some of the neurons."""
        return Expansion(
            self.directions[some],
            self.lengths[some],
            self.padding,
            self.coefficients[:, some],
            self.square[some],
            self.square_shift[some],
            self.square_stretch[some],
            self.tailed,
        )

    def row_slopes(self, shift: FloatArray, stretch: FloatArray) -> FloatArray:
        """Derivatives with respect to m and s as derivatives with respect to rows."""
        padding = np.zeros((len(shift), self.padding))
        return np.column_stack([stretch[:, None] * self.directions, shift, padding])

    def variance_slopes(self) -> FloatArray:
        """∂Var σ with respect to the rows."""
        c, moved, stretched = self.means, self.shifts[0], self.stretches[0]
        shift, stretch = self.square_shift - 2 * c * moved, self.square_stretch - 2 * c * stretched
        return self.row_slopes(shift, stretch)


def expand(rows: FloatArray, activation: Activation) -> Expansion:
    """Whitened rows, with their parameters behind them, as polynomials."""
    weights, shift, parameters = split_rows(rows, activation)
    length = np.linalg.norm(weights, axis=1)
    constant = length == 0
    safe = np.where(constant, 1.0, length)
    at, density = nodes(shift, length, activation.kinks)
    values = activation.value((shift + length * at.T), *parameters).T
    tailed = activation.power is None
    terms = TERMS if activation.power is None else activation.power
    weighted = values * density
    coefficients = hermite_sums(at, weighted, terms + 3)
    weighted *= values
    square = hermite_sums(at, weighted, 3)
    coefficients[1:, constant] = square[1:, constant] = 0.0
    return Expansion(
        directions=weights / safe[:, None],
        lengths=safe,
        padding=len(parameters),
        coefficients=coefficients,
        square=square[0],
        square_shift=square[1] / safe,
        square_stretch=np.sqrt(2) * square[2] / safe,
        tailed=tailed,
    )


def split_rows(
    rows: FloatArray, activation: Activation
) -> tuple[FloatArray, FloatArray, list[FloatArray]]:
    """The weights w, the shifts m and the parameters of each neuron."""
    width = rows.shape[1] - activation.parameters
    return rows[:, : width - 1], rows[:, width - 1], list(rows[:, width:].T)


@lru_cache(maxsize=1)
def legendre() -> tuple[FloatArray, FloatArray]:
    """Nodes and weights of one panel, on [0, 1]."""
    at, weight = np.polynomial.legendre.leggauss(PANEL_NODES)
    return (at + 1) / 2, weight / 2


def nodes(
    shift: FloatArray, length: FloatArray, kinks: tuple[float, ...]
) -> tuple[FloatArray, FloatArray]:
    """Where ξ is taken for each neuron, and the weights: panels end where m + sξ is 0 or a kink."""
    breaks = np.array(sorted({0.0, *kinks}))
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        inner = (breaks - shift[:, None]) / length[:, None]
    inner = np.clip(np.nan_to_num(inner, nan=0.0), -REACH, REACH)
    end = np.full((len(shift), 1), REACH)
    edges = np.hstack([-end, inner, end])
    width = np.diff(edges, axis=1)[:, :, None]
    at, weight = legendre()
    found = (edges[:, :-1, None] + width * at).reshape(len(shift), -1)
    density = (width * weight).reshape(found.shape) * np.exp(-(found**2) / 2) / np.sqrt(2 * np.pi)
    return found, density


def hermite_sums(at: FloatArray, weighted: FloatArray, count: int) -> FloatArray:
    """Σ weighted·h_k over the nodes of each neuron, for k = 0, …, count − 1."""
    found = np.empty((count, len(at)))
    before, now = np.zeros_like(at), np.ones_like(at)
    for k in range(count):
        found[k] = np.einsum("ij,ij->i", weighted, now)
        before *= -np.sqrt(k)
        before += at * now
        before /= np.sqrt(k + 1)
        before, now = now, before
    return found
