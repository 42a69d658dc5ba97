"""How well neurons U′ can stand for a layer when their outgoing weights V′ are the best ones.

    f(U′) = min over V′ of  Σ_t α_t/‖F_t‖² [ ‖F_t − V′ φ_t(U′)‖² + λ Σ_r ‖V′_r‖² ‖u′_r‖⁴ ]

in whitened coordinates (`metric`). The ridge λ keeps near-parallel neurons from huge opposite
weights, which the stored dtype could not hold. Because V′ is optimal, ∇f is the partial derivative
with respect to U′ alone. A target F is one of

    Forms     the layer under Gaussian inputs, as quadratic forms: all digits, for few inputs
    Neurons   the same as the layer's own neurons: products of n × n′ only, half the digits
    Observed  its outputs on real inputs, which need not be Gaussian
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol

import numpy as np

from onnxfde.neurons.kernels import kernel, norm
from onnxfde.numbers import FloatArray

ROUNDING = 1e-15
Products = tuple[FloatArray, FloatArray, FloatArray]


class Place(Protocol):
    """A target seen from given neurons."""

    @property
    def gram(self) -> FloatArray:
        """⟨φ_r, φ_s⟩."""

    @property
    def overlap(self) -> FloatArray:
        """⟨F_k, φ_r⟩."""

    def loss(self, outgoing: FloatArray) -> tuple[float, FloatArray]:
        """‖F − V′φ‖², and half its derivative with respect to U′."""

    def curvature(self) -> Products:
        """⟨φ_r, φ_s⟩, ⟨φ_r, ∂φ_s⟩, ⟨∂φ_r, ∂φ_s⟩ over neurons and coordinates of u."""


class Target(Protocol):
    """What neurons are to stand for."""

    @property
    def total(self) -> float:
        """‖F‖."""

    def at(self, rows: FloatArray) -> Place:
        """The target seen from these neurons."""


class Fit(NamedTuple):
    """Neurons with their best outgoing weights, f there, and ½∇f."""

    rows: FloatArray
    outgoing: FloatArray
    value: float
    gradient: FloatArray


@dataclass(frozen=True, eq=False)
class Objective:
    """A weighted sum of targets."""

    targets: tuple[tuple[Target, float], ...]
    ridge: float

    @cached_property
    def _parts(self) -> tuple[tuple[Target, float], ...]:
        return tuple((target, share / target.total**2) for target, share in self.targets)

    def fit(self, rows: FloatArray) -> Fit:
        """The best V′ for these rows."""
        places = [(target.at(rows), share) for target, share in self._parts]
        gram = sum_of(share * place.gram for place, share in places)
        overlap = sum_of(share * place.overlap for place, share in places)
        lengths = np.sum(rows**2, axis=1)
        ridge = self.ridge * sum(share for _, share in self._parts) * lengths
        outgoing = solved(gram, overlap, ridge * lengths)
        losses = [(place.loss(outgoing), share) for place, share in places]
        costs = ridge * np.sum(outgoing**2, axis=0)
        value = sum(share * loss for (loss, _), share in losses) + float(costs @ lengths)
        gradient = sum_of(share * slope for (_, slope), share in losses)
        return Fit(rows, outgoing, value, gradient + 2 * costs[:, None] * rows)

    def curvature(self, rows: FloatArray) -> Products:
        """Inner products of features and their derivatives."""
        found = [(target.at(rows).curvature(), share) for target, share in self._parts]
        gram, first, second = (sum_of(s * parts[i] for parts, s in found) for i in range(3))
        return gram, first, second


def sum_of(arrays: Iterable[FloatArray]) -> FloatArray:
    """Σ of arrays of one shape."""
    return np.asarray(sum(arrays))


def solved(gram: FloatArray, overlap: FloatArray, ridge: FloatArray) -> FloatArray:
    """V′ with V′ (G + diag ridge) = overlap, solved on normalised neurons."""
    ridged = gram + np.diag(ridge)
    scale = np.sqrt(np.diag(ridged))
    scale[scale == 0] = 1.0
    normalised = ridged / np.outer(scale, scale)
    normalised[np.diag_indices(len(gram))] += ROUNDING
    return np.asarray(np.linalg.solve(normalised, (overlap / scale).T).T / scale)


def pulled(weight: FloatArray, a: FloatArray, b: FloatArray) -> FloatArray:
    """Σ_r weight_rs ∂K(a_r, b_s)/∂b_s."""
    pull = (weight * (a @ b.T)).T @ a
    pull[:, -1] -= (weight.T @ a[:, -1] ** 2) * b[:, -1]
    return np.asarray(4 * pull)


def kernel_curvature(rows: FloatArray, gram: FloatArray) -> Products:
    """K, its first derivatives and its mixed second ones."""
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
    """Σ_r V_kr u_r u_rᵀ of whitened rows with the free corners 0."""
    forms = np.matmul((outgoing[:, :, None] * rows).transpose(0, 2, 1), rows)
    forms[:, -1, -1] = 0.0
    return np.asarray(forms)


@dataclass(frozen=True, eq=False)
class Forms:
    """A Gaussian target as quadratic forms: an array over outputs and two coordinates."""

    forms: FloatArray

    @cached_property
    def total(self) -> float:
        """‖F‖."""
        return float(np.sqrt(2) * np.linalg.norm(self.forms))

    def at(self, rows: FloatArray) -> FormsPlace:
        """The forms seen from these neurons."""
        overlap = 2 * np.einsum("krj,rj->kr", rows @ self.forms, rows)
        return FormsPlace(rows, self.forms, kernel(rows, rows), overlap)


@dataclass(frozen=True, eq=False)
class FormsPlace:
    """Quadratic forms and the neurons that stand for them."""

    rows: FloatArray
    forms: FloatArray
    gram: FloatArray
    overlap: FloatArray

    def loss(self, outgoing: FloatArray) -> tuple[float, FloatArray]:
        """From what is left of the forms."""
        left = self.forms - summed(self.rows, outgoing)
        slope = -4 * np.einsum("kr,krj->rj", outgoing, self.rows @ left)
        return 2 * float(np.sum(left * left)), slope

    def curvature(self) -> Products:
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

    def at(self, rows: FloatArray) -> NeuronsPlace:
        """The neurons seen from others."""
        overlap = self.outgoing @ kernel(self.rows, rows)
        return NeuronsPlace(rows, self, kernel(rows, rows), overlap)


@dataclass(frozen=True, eq=False)
class NeuronsPlace:
    """Neurons and the fewer that stand for them."""

    rows: FloatArray
    target: Neurons
    gram: FloatArray
    overlap: FloatArray

    def loss(self, outgoing: FloatArray) -> tuple[float, FloatArray]:
        """From Gram matrices: below 1e-8 of ‖F‖ it is rounding."""
        explained = np.sum((2 * self.overlap - outgoing @ self.gram) * outgoing)
        slope = pulled(outgoing.T @ outgoing, self.rows, self.rows)
        slope -= pulled(self.target.outgoing.T @ outgoing, self.target.rows, self.rows)
        return max(self.target.total**2 - float(explained), 0.0), slope

    def curvature(self) -> Products:
        """Derivatives of K."""
        return kernel_curvature(self.rows, self.gram)


@dataclass(frozen=True, eq=False)
class Observed:
    """Whitened inputs z and centred outputs, a row a sample."""

    inputs: FloatArray
    outputs: FloatArray

    @classmethod
    def of(cls, inputs: FloatArray, outputs: FloatArray) -> Observed:
        """Outputs scaled so that sums over the samples are means."""
        return cls(inputs, (outputs - outputs.mean(axis=0)) / np.sqrt(len(inputs)))

    @cached_property
    def total(self) -> float:
        """‖F‖: the standard deviation of the outputs."""
        return float(np.linalg.norm(self.outputs))

    def at(self, rows: FloatArray) -> ObservedPlace:
        """The samples seen through these neurons."""
        hidden = self.inputs @ rows.T
        squares = hidden**2
        squares = (squares - squares.mean(axis=0)) / np.sqrt(len(hidden))
        overlap = self.outputs.T @ squares
        return ObservedPlace(self, hidden, squares, squares.T @ squares, overlap)


@dataclass(frozen=True, eq=False)
class ObservedPlace:
    """Samples and the hidden values of neurons on them."""

    target: Observed
    hidden: FloatArray
    squares: FloatArray
    gram: FloatArray
    overlap: FloatArray

    def loss(self, outgoing: FloatArray) -> tuple[float, FloatArray]:
        """From what is left of the outputs."""
        left = self.target.outputs - self.squares @ outgoing.T
        pull = (left @ outgoing) * self.hidden
        slope = -2 / np.sqrt(len(left)) * pull.T @ self.target.inputs
        return float(np.sum(left * left)), slope

    def curvature(self) -> Products:
        """Products over the samples."""
        inputs = self.target.inputs
        slopes = (self.hidden[:, :, None] * inputs[:, None, :]).reshape(len(inputs), -1)
        slopes = 2 / np.sqrt(len(inputs)) * (slopes - slopes.mean(axis=0))
        return self.gram, self.squares.T @ slopes, slopes.T @ slopes
