"""What a network costs encrypted and in a proof, counted without running anything.

Batch mode: one ciphertext per value, one sample per slot. A map multiplies by each of its weights
that is not 0, and rescales each value that it makes.

Vector mode: one ciphertext per sample, its values repeated with a power of two n′ as period. With
m′ for what a map makes, a map is a sum over its diagonals, min(n′, m′) at most,

    z_i = Σ_k W[i mod m′, (i + k) mod n′] · x_(i + k),     y_i = Σ_t z_(i + t·m′)  where m′ < n′,

k in giant steps of b and baby steps below b ≈ √min(n′, m′), and log₂ n′/m′ rotations for the second
sum. A diagonal of zeros costs nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from onnxfde.errors import OnnxfdeError
from onnxfde.graph.cost import multiply_adds, one_sample
from onnxfde.graph.model import Graph
from onnxfde.graph.polynomial_network import AffineStep, PolynomialNetwork, PowerStep
from onnxfde.graph.read_polynomials import read_polynomials
from onnxfde.numbers import FloatArray


@dataclass(frozen=True)
class OperationCounts:
    """Operations on ciphertexts for one run."""

    plain_multiplications: int
    ciphertext_multiplications: int
    rotations: int
    rescales: int


@dataclass(frozen=True)
class EncryptedCost:
    """What a polynomial network costs encrypted, for one run, and proven, for one sample."""

    depth: int
    """How many multiplications follow each other, those by weights included."""
    batch: OperationCounts
    """One sample per slot."""
    vector: OperationCounts
    """One sample per ciphertext, by the diagonal method."""
    constraints: int | None
    """Multiplications of a circuit: by every weight, zeros included, and of values."""


@dataclass(frozen=True, eq=False)
class Diagonals:
    """A matrix by its diagonals."""

    weight: FloatArray

    @property
    def reads(self) -> int:
        """The period of what it reads."""
        return power_of_two(self.weight.shape[1])

    @property
    def makes(self) -> int:
        """The period of what it makes."""
        return power_of_two(self.weight.shape[0])

    @cached_property
    def entries(self) -> dict[int, FloatArray]:
        """The diagonals that are not 0, by the rotation of what they are multiplied with."""
        rows, columns = self.weight.shape
        padded = np.zeros((self.makes, self.reads))
        padded[:rows, :columns] = self.weight
        place = np.arange(max(self.makes, self.reads))
        found = {
            k: padded[place % self.makes, (place + k) % self.reads]
            for k in range(min(self.makes, self.reads))
        }
        return {k: diagonal for k, diagonal in found.items() if diagonal.any()}

    @property
    def giant_step(self) -> int:
        """The length of a giant step."""
        shorter = min(self.makes, self.reads).bit_length() - 1
        return int(2 ** ((shorter + 1) // 2))

    @property
    def baby_steps(self) -> list[int]:
        """Rotations of what it reads."""
        return sorted({k % self.giant_step for k in self.entries} - {0})

    @property
    def giant_steps(self) -> list[int]:
        """Rotations of sums."""
        return sorted({k - k % self.giant_step for k in self.entries} - {0})

    @property
    def folds(self) -> list[int]:
        """Rotations that are added to make the period of the result shorter."""
        steps, period = [], self.reads
        while period > self.makes and self.entries:
            period //= 2
            steps.append(period)
        return steps

    @property
    def rotations(self) -> list[int]:
        """All rotations."""
        return [*self.baby_steps, *self.giant_steps, *self.folds]


def power_of_two(count: int) -> int:
    """The smallest power of two that is not below a count.

    >>> [power_of_two(n) for n in (1, 5, 8)]
    [1, 8, 8]
    """
    return 1 << (count - 1).bit_length()


def encrypted_cost(graph: Graph) -> EncryptedCost | None:
    """The cost of a model; None if it is not made of affine maps and polynomials."""
    try:
        network = read_polynomials(graph)
    except OnnxfdeError:
        return None
    batch = batch_counts(network)
    products = multiply_adds(graph.model, one_sample(graph))
    constraints = None if products is None else products + batch.ciphertext_multiplications
    return EncryptedCost(depth_of(network), batch, vector_counts(network), constraints)


def depth_of(network: PolynomialNetwork) -> int:
    """How many multiplications follow each other."""
    return sum(1 if isinstance(s, AffineStep) else power_depth(s) for s in network.steps)


def power_depth(step: PowerStep) -> int:
    """Products that follow each other in a polynomial, and one for its coefficients."""
    highest = max(step.powers, default=1)
    return (highest - 1).bit_length() + (0 if step.is_monomial else 1)


def batch_counts(network: PolynomialNetwork) -> OperationCounts:
    """The operations in batch mode."""
    plain = products = rescales = 0
    for step in network.steps:
        if isinstance(step, AffineStep):
            plain += nonzeros(step.weight)
            rescales += nonzeros(step.weight.any(axis=1))
            continue
        made = len(step.products) * step.width
        products += made
        rescales += made
        if not step.is_monomial:
            plain += nonzeros(step.coefficients[1:])
            rescales += nonzeros(step.coefficients[1:].any(axis=0))
    return OperationCounts(plain, products, 0, rescales)


def nonzeros(values: npt.ArrayLike) -> int:
    """How many values are not 0."""
    return int(np.count_nonzero(values))


def vector_counts(network: PolynomialNetwork) -> OperationCounts:
    """The operations in vector mode."""
    plain = products = rotations = rescales = 0
    for step in network.steps:
        if isinstance(step, AffineStep):
            found = Diagonals(step.weight)
            plain += len(found.entries)
            rotations += len(found.rotations)
            rescales += bool(found.entries)
            continue
        products += len(step.products)
        plain += 0 if step.is_monomial else len(step.powers)
        rescales += len(step.products) + (not step.is_monomial)
    return OperationCounts(plain, products, rotations, rescales)
