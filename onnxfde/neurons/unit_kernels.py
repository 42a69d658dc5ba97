"""What searches need to know of an activation: how its neurons compare under Gaussian inputs.

    gram        Cov(σ(u·z), σ(u′·z))
    means       E[σ(u·z)]
    ridge       λ Σ_r ‖V_r‖² ‖u_r‖⁴ for squares, λ Σ_r ‖V_r‖² Var h_r for the others

for whitened rows u, behind which the parameters of each neuron stand if it has any. Squares have
closed forms (`kernels`), everything else is expanded (`hermite`).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np

from onnxfde.neurons.activation import Activation
from onnxfde.neurons.hermite import Expansion, expand
from onnxfde.neurons.hermite_kernel import hermite_gram
from onnxfde.neurons.kernels import Metric, kernel, kernel_diagonal, mean_square, unit_rows
from onnxfde.neurons.layer import Layer
from onnxfde.numbers import FloatArray

WEAKEST = 1e-3
"""L-BFGS starts no neuron at less than this share of the longest. Chosen; not tuned."""
STALLED_STEPS = 10
"""L-BFGS ends if f fell by less than `STALLED_FALL` in this many steps, unless neurons are squares,
whose searches have budgets of their own. Measured on LeNet-300-100: the error on test rows falls by
1 % from 40 steps, where it ends, to 150."""
STALLED_FALL = 0.005
"""The share of f for the same. Measured there: 0.001 takes half as long again and is no better."""
REMEMBERED_EXPANSIONS = 3
"""How many sets of rows stay expanded: those of a target, and those just compared with it."""


class Kernel(Protocol):
    """How neurons of one activation compare."""

    @property
    def curved(self) -> bool:
        """Whether second derivatives are known, which Levenberg–Marquardt needs."""

    def gram(self, a: FloatArray, b: FloatArray) -> FloatArray:
        """Covariances between neurons."""

    def variances(self, rows: FloatArray) -> FloatArray:
        """The diagonal of the Gram matrix of neurons with themselves."""

    def correlations(self, rows: FloatArray) -> FloatArray:
        """The Gram matrix of neurons with themselves, scaled to a diagonal of ones."""

    def means(self, rows: FloatArray) -> FloatArray:
        """E[h]."""

    def unit(self, rows: FloatArray) -> FloatArray:
        """Rows of length 1 where the length of a row is free."""

    def drawn(self, rng: np.random.Generator, count: int, rows: FloatArray) -> FloatArray:
        """Random neurons, as large as those given where that matters."""

    def preconditioned(
        self, rows: FloatArray, outgoing: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Unknowns x in which f is about equally curved, and factors τ: the rows are x/τ."""

    def stalled(self, values: list[float]) -> bool:
        """Whether more steps of L-BFGS are not worth their time, given f so far."""

    def ridge(self, rows: FloatArray, weight: float) -> FloatArray:
        """What the ridge adds to the diagonal of a Gram matrix."""

    def ridge_slope(
        self, rows: FloatArray, weight: float, squares: FloatArray
    ) -> tuple[float, FloatArray]:
        """What the ridge adds to f, given all ‖V_r‖², and half its derivative in the rows."""


class SquareKernel:
    """Squares, whose scale is free."""

    curved = True

    def gram(self, a: FloatArray, b: FloatArray) -> FloatArray:
        """K."""
        return kernel(a, b)

    def variances(self, rows: FloatArray) -> FloatArray:
        """K(u, u)."""
        return kernel_diagonal(rows)

    def correlations(self, rows: FloatArray) -> FloatArray:
        """K of rows scaled to K(u, u) = 1."""
        units = unit_rows(rows)
        return kernel(units, units)

    def means(self, rows: FloatArray) -> FloatArray:
        """‖u‖²."""
        return mean_square(rows)

    def unit(self, rows: FloatArray) -> FloatArray:
        """Rows of length 1."""
        length = np.linalg.norm(rows, axis=1, keepdims=True)
        return np.asarray(rows / np.where(length == 0, 1.0, length))

    def drawn(self, rng: np.random.Generator, count: int, rows: FloatArray) -> FloatArray:
        """Standard normal rows."""
        return rng.normal(size=(count, rows.shape[1]))

    def preconditioned(
        self, rows: FloatArray, outgoing: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Lengths proportional to ‖V_r‖‖u_r‖²; they are free."""
        lengths = np.linalg.norm(outgoing, axis=0) * np.linalg.norm(rows, axis=1) ** 2
        lengths = np.maximum(lengths / lengths.max(initial=1e-300), WEAKEST)
        return self.unit(rows) * lengths[:, None], np.ones((len(rows), 1))

    def stalled(self, values: list[float]) -> bool:
        """Never."""
        return False

    def ridge(self, rows: FloatArray, weight: float) -> FloatArray:
        """λ‖u_r‖⁴."""
        lengths = np.sum(rows**2, axis=1)
        return np.asarray(weight * lengths * lengths)

    def ridge_slope(
        self, rows: FloatArray, weight: float, squares: FloatArray
    ) -> tuple[float, FloatArray]:
        """λ Σ ‖V_r‖²‖u_r‖⁴."""
        lengths = np.sum(rows**2, axis=1)
        costs = weight * lengths * squares
        return float(costs @ lengths), 2 * costs[:, None] * rows


@dataclass(frozen=True, eq=False)
class HermiteKernel:
    """Any activation, by its expansion."""

    activation: Activation
    curved: bool = field(default=False, init=False)
    _expanded: list[tuple[FloatArray, Expansion]] = field(default_factory=list, init=False)

    def expansion(self, rows: FloatArray) -> Expansion:
        """Rows as polynomials; the last few are remembered."""
        for known, found in self._expanded:
            if known is rows:
                return found
        found = expand(rows, self.activation)
        self._expanded.insert(0, (rows, found))
        del self._expanded[REMEMBERED_EXPANSIONS:]
        return found

    def gram(self, a: FloatArray, b: FloatArray) -> FloatArray:
        """G."""
        return hermite_gram(self.expansion(a), self.expansion(b))

    def variances(self, rows: FloatArray) -> FloatArray:
        """Var h."""
        return self.expansion(rows).variances

    def correlations(self, rows: FloatArray) -> FloatArray:
        """G scaled to a diagonal of ones."""
        scale = normalising(self.variances(rows))
        return self.gram(rows, rows) / scale / scale[:, None]

    def means(self, rows: FloatArray) -> FloatArray:
        """E[h]."""
        return self.expansion(rows).means

    def unit(self, rows: FloatArray) -> FloatArray:
        """Rows of length 1 if the function lets a scale out, else the rows themselves."""
        if self.activation.degree is None:
            return rows
        width = rows.shape[1] - self.activation.parameters
        length = np.linalg.norm(rows[:, :width], axis=1, keepdims=True)
        found = rows.copy()
        found[:, :width] /= np.where(length == 0, 1.0, length)
        return found

    def drawn(self, rng: np.random.Generator, count: int, rows: FloatArray) -> FloatArray:
        """Some of the neurons given, turned into random directions."""
        width = rows.shape[1] - self.activation.parameters - 1
        found = rows[rng.integers(len(rows), size=count)]
        length = np.linalg.norm(found[:, :width], axis=1, keepdims=True)
        turned = rng.normal(size=(count, width))
        found[:, :width] = turned / np.linalg.norm(turned, axis=1, keepdims=True) * length
        return found

    def preconditioned(
        self, rows: FloatArray, outgoing: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Rows times ‖V_r‖, whose lengths mean something."""
        width = rows.shape[1] - self.activation.parameters
        weight = np.linalg.norm(outgoing, axis=0)
        if self.activation.degree is not None:
            weight *= np.linalg.norm(rows[:, :width], axis=1) ** self.activation.degree
        factors = np.ones(rows.shape)
        shares = np.maximum(weight / weight.max(initial=1e-300), WEAKEST)
        factors[:, :width] = shares[:, None]
        return self.unit(rows) * factors, factors

    def stalled(self, values: list[float]) -> bool:
        """Whether f hardly fell in the last steps."""
        if len(values) <= STALLED_STEPS:
            return False
        return values[-1 - STALLED_STEPS] - values[-1] < STALLED_FALL * values[-1]

    def ridge(self, rows: FloatArray, weight: float) -> FloatArray:
        """λ Var h_r."""
        return weight * self.variances(rows)

    def ridge_slope(
        self, rows: FloatArray, weight: float, squares: FloatArray
    ) -> tuple[float, FloatArray]:
        """λ Σ ‖V_r‖² Var h_r."""
        found, costs = self.expansion(rows), weight * squares
        return float(costs @ found.variances), costs[:, None] / 2 * found.variance_slopes()


SQUARES = SquareKernel()


def whitened_rows(layer: Layer, metric: Metric) -> FloatArray:
    """The neurons of a layer in whitened coordinates, their parameters behind them."""
    rows = metric.whiten(layer.incoming)
    return np.column_stack([rows, *layer.unit_parameters]) if layer.unit_parameters else rows


def layer_of_rows(rows: FloatArray, outgoing: FloatArray, like: Layer, metric: Metric) -> Layer:
    """The layer that has these whitened rows, and its other properties from another layer."""
    width = rows.shape[1] - len(like.unit_parameters)
    return replace(
        like,
        incoming=metric.unwhiten(rows[:, :width]),
        outgoing=outgoing,
        unit_parameters=tuple(rows[:, width:].T),
    )


def normalising(variances: FloatArray) -> FloatArray:
    """Divisors that bring a Gram matrix with this diagonal to one of ones, or 1 where it is 0."""
    return np.sqrt(np.where(variances > 0, variances, 1.0))
