"""How well neurons U′ can stand for a layer when their outgoing weights V′ are the best ones.

    f(U′) = min over V′ of  Σ_t α_t/‖F_t‖² [ ‖F_t − V′ φ_t(U′)‖² + λ Σ_r ‖V′_r‖² ‖u′_r‖⁴ ]

in whitened coordinates (`kernels`), where φ(U′) are the hidden values σ(U′z) without their means.
(The ridge is that of squares; other activations have Var h_r in place of ‖u′_r‖⁴: `unit_kernels`.)
The ridge λ keeps near-parallel neurons from huge opposite weights, which the stored type could not
hold. Because V′ is optimal, ∇f is the partial derivative with respect to U′ alone. A target F is

    Forms     the layer under Gaussian inputs, as quadratic forms: exact, but only for few inputs
    Neurons   the same, as the layer's neurons: only n × n′ products, but half the digits
              (the counterpart for other activations is `hermite_target`)
    Observed  the layer's outputs on real inputs, which need not be Gaussian; for any activation
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol

import numpy as np

from onnxfde.neurons.activation import Activation
from onnxfde.neurons.kernels import kernel, norm
from onnxfde.neurons.polynomial_activations import SQUARE
from onnxfde.neurons.unit_kernels import SQUARES, Kernel
from onnxfde.numbers import FloatArray

GRAM_ROUNDING = 1e-15
"""Added to the unit diagonal of a Gram matrix, so that equal neurons do not make it singular: a
few times the machine epsilon."""
CHOLESKY_FROM = 300
"""Neurons from which Cholesky's factorisation is used: the part of scipy that has it takes 0.15 s
to import. Measured: it saves 0.13 ms of 0.38 at 210 neurons, and 40 ms of 120 at 1,000."""
FeatureProducts = tuple[FloatArray, FloatArray, FloatArray]
"""⟨φ_r, φ_s⟩, ⟨φ_r, ∂φ_s⟩, ⟨∂φ_r, ∂φ_s⟩."""


class TargetView(Protocol):
    """A target as seen from given neurons: all that a fit of these neurons to it needs."""

    @property
    def gram(self) -> FloatArray:
        """⟨φ_r, φ_s⟩."""

    @property
    def overlap(self) -> FloatArray:
        """⟨F_k, φ_r⟩."""

    def loss(self, outgoing: FloatArray) -> tuple[float, FloatArray]:
        """‖F − V′φ‖², and half its derivative with respect to U′."""

    def curvature(self) -> FeatureProducts:
        """⟨φ_r, φ_s⟩, ⟨φ_r, ∂φ_s⟩, ⟨∂φ_r, ∂φ_s⟩ over neurons and coordinates of u."""


class Target(Protocol):
    """What the neurons should approximate."""

    @property
    def total(self) -> float:
        """‖F‖."""

    def at(self, rows: FloatArray) -> TargetView:
        """The target seen from these neurons."""


class Fit(NamedTuple):
    """Neurons U′ with their best outgoing weights V′, f(U′) and ½∇f(U′)."""

    rows: FloatArray
    outgoing: FloatArray
    value: float
    gradient: FloatArray


@dataclass(frozen=True, eq=False)
class Objective:
    """f for a weighted sum of targets."""

    targets: tuple[tuple[Target, float], ...]
    ridge: float
    kernel: Kernel = SQUARES

    @cached_property
    def _parts(self) -> tuple[tuple[Target, float], ...]:
        return tuple((target, share / target.total**2) for target, share in self.targets)

    def fit(self, rows: FloatArray) -> Fit:
        """The best V′ for these rows."""
        views = [(target.at(rows), share) for target, share in self._parts]
        gram = sum_of(share * view.gram for view, share in views)
        overlap = sum_of(share * view.overlap for view, share in views)
        weight = self.ridge * sum(share for _, share in self._parts)
        outgoing = best_outgoing(gram, overlap, self.kernel.ridge(rows, weight))
        losses = [(view.loss(outgoing), share) for view, share in views]
        cost, pull = self.kernel.ridge_slope(rows, weight, np.sum(outgoing**2, axis=0))
        value = sum(share * loss for (loss, _), share in losses) + cost
        gradient = sum_of(share * slope for (_, slope), share in losses)
        return Fit(rows, outgoing, value, gradient + pull)

    def curvature(self, rows: FloatArray) -> FeatureProducts:
        """Inner products of features and their derivatives."""
        found = [(target.at(rows).curvature(), share) for target, share in self._parts]
        gram, first, second = (sum_of(s * parts[i] for parts, s in found) for i in range(3))
        return gram, first, second


def double(a: FloatArray) -> FloatArray:
    """The same in float64."""
    return a.astype(np.float64, copy=False)


def sum_of(arrays: Iterable[FloatArray]) -> FloatArray:
    """Σ of arrays of one shape."""
    return np.asarray(sum(arrays))


def best_outgoing(gram: FloatArray, overlap: FloatArray, ridge: FloatArray) -> FloatArray:
    """V′ with V′ (G + diag ridge) = overlap, solved for neurons of norm 1."""
    scale = np.sqrt(np.diag(gram) + ridge)
    scale[scale == 0] = 1.0
    diagonal = (np.diag(gram) + ridge) / scale**2 + GRAM_ROUNDING
    normalised = gram / scale
    normalised /= scale[:, None]
    normalised[np.diag_indices(len(gram))] = diagonal
    return np.asarray(solved(normalised, (overlap / scale).T).T / scale)


def solved(symmetric: FloatArray, right: FloatArray) -> FloatArray:
    """A⁻¹B for a symmetric positive definite A: by Cholesky if A is large, else by LU."""
    if len(symmetric) >= CHOLESKY_FROM:
        from scipy.linalg.lapack import dposv

        _, found, failed = dposv(symmetric.T, right)
        if not failed:
            return np.asarray(found)
    return np.asarray(np.linalg.solve(symmetric, right))


def kernel_curvature(rows: FloatArray, gram: FloatArray) -> FeatureProducts:
    """K, its first derivatives and its mixed second derivatives."""
    count, width = rows.shape
    dot, last = rows @ rows.T, rows[:, -1]
    first = dot[:, :, None] * rows[:, None, :]
    first[:, :, -1] -= np.outer(last**2, last)
    second = np.einsum("si,rj->risj", rows, rows)
    second[:, np.arange(width), :, np.arange(width)] += dot
    second[:, -1, :, -1] -= 2 * np.outer(last, last)
    size = count * width
    return gram, 4 * first.reshape(count, size), 4 * second.reshape(size, size)


def summed(rows: FloatArray, outgoing: FloatArray) -> FloatArray:
    """Σ_r V_kr u_r u_rᵀ of whitened rows, with 0 in the free corner."""
    forms = np.matmul((outgoing[:, :, None] * rows).transpose(0, 2, 1), rows)
    forms[:, -1, -1] = 0.0
    return np.asarray(forms)


@dataclass(frozen=True, eq=False)
class Forms:
    """A Gaussian target as quadratic forms: one symmetric matrix per output."""

    forms: FloatArray

    @cached_property
    def total(self) -> float:
        """‖F‖."""
        return float(np.sqrt(2) * np.linalg.norm(self.forms))

    def at(self, rows: FloatArray) -> FormsView:
        """The forms seen from these neurons."""
        overlap = 2 * np.einsum("krj,rj->kr", rows @ self.forms, rows)
        return FormsView(rows, self.forms, kernel(rows, rows), overlap)


@dataclass(frozen=True, eq=False)
class FormsView:
    """Quadratic forms and the neurons that approximate them."""

    rows: FloatArray
    forms: FloatArray
    gram: FloatArray
    overlap: FloatArray

    def loss(self, outgoing: FloatArray) -> tuple[float, FloatArray]:
        """From the residual of the forms."""
        left = self.forms - summed(self.rows, outgoing)
        slope = -4 * np.einsum("kr,krj->rj", outgoing, self.rows @ left)
        return 2 * float(np.sum(left * left)), slope

    def curvature(self) -> FeatureProducts:
        """Derivatives of K."""
        return kernel_curvature(self.rows, self.gram)


@dataclass(frozen=True, eq=False)
class Neurons:
    """A Gaussian target as whitened neurons and their outgoing weights."""

    rows: FloatArray
    outgoing: FloatArray

    @cached_property
    def total(self) -> float:
        """‖F‖."""
        return norm(self.rows, self.outgoing)

    @cached_property
    def _buffers(self) -> dict[int, list[FloatArray]]:
        return {}

    def _buffers_for(self, count: int) -> list[FloatArray]:
        """Three arrays of all neurons × `count`, kept for the next rows of the same count."""
        if count not in self._buffers:
            self._buffers.clear()
            shape = (count + len(self.rows), count)
            self._buffers[count] = [np.empty(shape) for _ in range(3)]
        return self._buffers[count]

    def at(self, rows: FloatArray) -> NeuronsView:
        """The target's neurons seen from these; valid until it is seen from others."""
        dot, both, corner = self._buffers_for(len(rows))
        stacked = np.vstack([rows, self.rows])
        np.matmul(stacked[:, :-1], rows[:, :-1].T, out=dot)
        np.multiply.outer(stacked[:, -1], rows[:, -1], out=corner)
        np.add(dot, corner, out=both)
        corner += both
        corner *= dot
        corner *= 2
        gram, overlap = corner[: len(rows)].copy(), self.outgoing @ corner[len(rows) :]
        return NeuronsView(rows, self, gram, overlap, stacked, both, dot)


@dataclass(frozen=True, eq=False)
class NeuronsView:
    """Neurons and the fewer neurons that approximate them."""

    rows: FloatArray
    target: Neurons
    gram: FloatArray
    overlap: FloatArray
    stacked: FloatArray
    """The neurons u′, and those of the target."""
    products: FloatArray
    """u·u′ between all of them and the neurons u′."""
    scratch: FloatArray
    """Of the same size, free to be overwritten."""

    def loss(self, outgoing: FloatArray) -> tuple[float, FloatArray]:
        """From Gram matrices: a residual below 1e-8 ‖F‖ is rounding.

        With w = [V′ −V]ᵀV′ over all neurons a and b_s = u′_s, half the derivative is
        Σ_a w_as ∂K(a, b_s)/∂b_s = 4 Σ_a w_as [(a·b_s) a − a_d² b_sd e_d], d the last coordinate.
        """
        explained = np.sum((2 * self.overlap - outgoing @ self.gram) * outgoing)
        every = np.hstack([outgoing, -self.target.outgoing])
        weight = np.matmul(every.T, outgoing, out=self.scratch)
        corner = self.stacked[:, -1] ** 2 @ weight
        weight *= self.products
        pull = weight.T @ self.stacked
        pull[:, -1] -= corner * self.rows[:, -1]
        pull *= 4
        return max(self.target.total**2 - float(explained), 0.0), pull

    def curvature(self) -> FeatureProducts:
        """Derivatives of K."""
        return kernel_curvature(self.rows, self.gram)


@dataclass(frozen=True, eq=False)
class Observed:
    """Whitened inputs z and centred outputs, one row per sample, for neurons of any activation."""

    inputs: FloatArray
    outputs: FloatArray
    activation: Activation

    @classmethod
    def of(
        cls, inputs: FloatArray, outputs: FloatArray, activation: Activation = SQUARE
    ) -> Observed:
        """Outputs scaled so that sums over the samples are means."""
        centred = (outputs - outputs.mean(axis=0)) / np.sqrt(len(inputs))
        return cls(inputs, centred, activation)

    def single(self) -> Observed:
        """The same in float32, which is twice as quick and enough for a ridge of 1e-4."""
        return Observed(self.inputs.astype("f4"), self.outputs.astype("f4"), self.activation)

    @cached_property
    def total(self) -> float:
        """‖F‖: the standard deviation of the outputs."""
        return float(np.linalg.norm(self.outputs))

    def at(self, rows: FloatArray) -> ObservedView:
        """The samples seen through these neurons."""
        width = self.inputs.shape[1]
        rows = rows.astype(self.inputs.dtype, copy=False)
        hidden = self.inputs @ rows[:, :width].T
        parameters = tuple(rows[:, width:].T)
        values = self.activation.value(hidden, *parameters)
        values = (values - values.mean(axis=0)) / values.dtype.type(np.sqrt(len(hidden)))
        gram, overlap = values.T @ values, self.outputs.T @ values
        return ObservedView(self, hidden, values, double(gram), double(overlap), parameters)


@dataclass(frozen=True, eq=False)
class ObservedView:
    """Samples and the values of neurons on them, before and after the activation."""

    target: Observed
    hidden: FloatArray
    values: FloatArray
    gram: FloatArray
    overlap: FloatArray
    parameters: tuple[FloatArray, ...] = ()
    """What the neurons have beside their rows; they are not moved."""

    def loss(self, outgoing: FloatArray) -> tuple[float, FloatArray]:
        """From the residual of the outputs."""
        outgoing = outgoing.astype(self.values.dtype, copy=False)
        left = self.target.outputs - self.values @ outgoing.T
        pull = (left @ outgoing) * self._steepness()
        slope = double(-1 / np.sqrt(len(left)) * pull.T @ self.target.inputs)
        if self.parameters:
            slope = np.pad(slope, ((0, 0), (0, len(self.parameters))))
        return float(np.sum(left * left)), slope

    def _steepness(self) -> FloatArray:
        return self.target.activation.slope(self.hidden, *self.parameters)

    def curvature(self) -> FeatureProducts:
        """Products over the samples."""
        inputs, steepness = self.target.inputs, self._steepness()
        slopes = (steepness[:, :, None] * inputs[:, None, :]).reshape(len(inputs), -1)
        slopes = 1 / np.sqrt(len(inputs)) * (slopes - slopes.mean(axis=0))
        return self.gram, self.values.T @ slopes, slopes.T @ slopes
