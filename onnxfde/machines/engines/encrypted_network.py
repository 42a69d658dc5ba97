"""A network of affine maps and polynomials on ciphertexts, in batch mode or in vector mode.

A mode says what a ciphertext holds (`graph.encrypted_cost` explains both); polynomials are computed
alike in both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import numpy as np

from onnxfde.graph.encrypted_cost import Diagonals, power_depth, power_of_two
from onnxfde.graph.polynomial_network import AffineStep, PolynomialNetwork, PowerStep
from onnxfde.machines.engines.seal_operations import Ciphertext, Plaintext, Seal
from onnxfde.numbers import Array, FloatArray

Slots = Callable[[Array], list[float] | float]


class PackingMode(Protocol):
    """How samples lie in ciphertexts."""

    @staticmethod
    def slots(network: PolynomialNetwork, samples: int) -> tuple[int, str]:
        """How many slots it needs, and what for."""

    @staticmethod
    def rotations(network: PolynomialNetwork) -> list[int]:
        """The rotations that it needs keys for."""

    def encrypted(self, x: Array) -> list[Ciphertext]:
        """Rows x as ciphertexts."""

    def decrypted(self, values: list[Ciphertext], samples: int) -> Array:
        """Ciphertexts as rows."""

    def mapped(self, values: list[Ciphertext], step: AffineStep, level: int) -> list[Ciphertext]:
        """An affine map of values at this level."""

    def numbers(self, values: Array, place: int) -> list[float] | float:
        """Numbers, one for each value, as the ciphertext at this place takes them."""


@dataclass(frozen=True, eq=False)
class BatchMode:
    """One ciphertext per value, with a sample in each slot."""

    seal: Seal
    network: PolynomialNetwork

    @staticmethod
    def slots(network: PolynomialNetwork, samples: int) -> tuple[int, str]:
        """One for each sample."""
        return samples, f"a batch of {samples:,}"

    @staticmethod
    def rotations(network: PolynomialNetwork) -> list[int]:
        """None."""
        return []

    def encrypted(self, x: Array) -> list[Ciphertext]:
        """One ciphertext per column."""
        return [self.seal.encrypted(column) for column in x.T]

    def decrypted(self, values: list[Ciphertext], samples: int) -> Array:
        """One column per ciphertext."""
        return np.stack([self.seal.decrypted(value)[:samples] for value in values], axis=1)

    def mapped(self, values: list[Ciphertext], step: AffineStep, level: int) -> list[Ciphertext]:
        """One sum of products per row of the matrix."""
        seal, prime, found = self.seal, self.seal.primes[level], []
        for row, term in zip(step.weight, step.bias.tolist(), strict=True):
            pairs = (
                (values[j], seal.encoded(float(row[j]), level, prime)) for j in row.nonzero()[0]
            )
            total = seal.rescaled(seal.summed_products(pairs), level + 1, values[0].scale)
            found.append(seal.add_numbers(total, term, level + 1))
        return found

    def numbers(self, values: Array, place: int) -> float:
        """The number of this value."""
        return float(values[place])


class VectorMode:
    """One ciphertext per sample, with its values repeated over the slots."""

    def __init__(self, seal: Seal, network: PolynomialNetwork) -> None:
        """Encode all diagonals, as a server does once."""
        self.seal, self.network = seal, network
        self.diagonals: dict[int, tuple[Diagonals, dict[int, Plaintext | None]]] = {}
        level = 0
        for step in network.steps:
            if isinstance(step, AffineStep):
                self.diagonals[id(step)] = self.encoded(step.weight, level)
            level += level_cost(step)

    @staticmethod
    def slots(network: PolynomialNetwork, samples: int) -> tuple[int, str]:
        """As many as the widest place has values."""
        widest = max(network.widths)
        return power_of_two(widest), f"its widest layer, of {widest:,} values,"

    @staticmethod
    def rotations(network: PolynomialNetwork) -> list[int]:
        """Those of the diagonal method."""
        maps = (step for step in network.steps if isinstance(step, AffineStep))
        return [step for found in maps for step in Diagonals(found.weight).rotations]

    def encoded(
        self, weight: FloatArray, level: int
    ) -> tuple[Diagonals, dict[int, Plaintext | None]]:
        """The diagonals of a matrix, moved back by the giant step that follows."""
        found = Diagonals(weight)
        plain = {
            k: self.seal.encoded(
                self.repeated(np.roll(diagonal, k - k % found.giant_step)),
                level,
                self.seal.primes[level],
            )
            for k, diagonal in found.entries.items()
        }
        return found, plain

    def repeated(self, values: Array) -> list[float]:
        """Values over all slots, with a power of two as period."""
        period = power_of_two(len(values))
        padded = np.zeros(period)
        padded[: len(values)] = values
        repeated: list[float] = np.tile(padded, self.seal.parameters.slots // period).tolist()
        return repeated

    def encrypted(self, x: Array) -> list[Ciphertext]:
        """One ciphertext per row."""
        return [self.seal.encrypted(np.array(self.repeated(row))) for row in x]

    def decrypted(self, values: list[Ciphertext], samples: int) -> Array:
        """One row per ciphertext."""
        width = self.network.widths[-1]
        return np.stack([self.seal.decrypted(value)[:width] for value in values])

    def mapped(self, values: list[Ciphertext], step: AffineStep, level: int) -> list[Ciphertext]:
        """One sum of products with rotated values per giant step."""
        found, plain = self.diagonals[id(step)]
        return [self.one_mapped(value, found, plain, step, level) for value in values]

    def one_mapped(
        self,
        value: Ciphertext,
        found: Diagonals,
        plain: dict[int, Plaintext | None],
        step: AffineStep,
        level: int,
    ) -> Ciphertext:
        """The map of one sample."""
        seal, giant = self.seal, found.giant_step
        turned = {k: seal.rotated(value, k) for k in (0, *found.baby_steps)}
        sums = []
        for start in (0, *found.giant_steps):
            inside = [k for k in plain if k - k % giant == start]
            part = seal.summed_products((turned[k % giant], plain[k]) for k in inside)
            sums.append(part if part is None else seal.rotated(part, start))
        total = seal.rescaled(seal.added(sums), level + 1, value.scale)
        for fold in found.folds:
            total = seal.added([seal.rotated(total, fold), total])
        return seal.add_numbers(total, self.repeated(step.bias), level + 1)

    def numbers(self, values: Array, place: int) -> list[float]:
        """The numbers of all values."""
        return self.repeated(values)


MODES: dict[str, type[BatchMode] | type[VectorMode]] = {"batch": BatchMode, "vector": VectorMode}
"""How samples may lie in ciphertexts."""


def level_cost(step: AffineStep | PowerStep) -> int:
    """The levels that a step takes."""
    return 1 if isinstance(step, AffineStep) else power_depth(step)


def evaluated(mode: PackingMode, seal: Seal, network: PolynomialNetwork,
              values: list[Ciphertext]) -> list[Ciphertext]:  # fmt: skip
    """The network on ciphertexts."""
    level = 0
    for step in network.steps:
        if isinstance(step, AffineStep):
            values = mode.mapped(values, step, level)
        else:
            powers = (Powers(seal, step, value, level) for value in values)
            values = [
                power.total(partial(mode.numbers, place=place))
                for place, power in enumerate(powers)
            ]
        level += level_cost(step)
    return values


@dataclass(frozen=True, eq=False)
class Powers:
    """A polynomial of one ciphertext."""

    seal: Seal
    step: PowerStep
    value: Ciphertext
    level: int

    def total(self, numbers: Slots) -> Ciphertext:
        """Σ_k c_k·x^k."""
        powers = dict(self.powers())
        if self.step.is_monomial:
            return powers[self.step.powers[0]]
        seal, bottom = self.seal, self.level + level_cost(self.step) - 1
        wanted = seal.scale * seal.primes[bottom]
        pairs = []
        for k in self.step.powers:
            lowered = seal.lowered(powers[k], bottom)
            factor = numbers(self.step.coefficients[k])
            pairs.append((lowered, seal.encoded(factor, bottom, wanted / lowered.scale)))
        total = seal.rescaled(seal.summed_products(pairs), bottom + 1, seal.scale)
        return seal.add_numbers(total, numbers(self.step.coefficients[0]), bottom + 1)

    def powers(self) -> Iterator[tuple[int, Ciphertext]]:
        """Each power that is needed, from two smaller ones."""
        known = {1: self.value}
        yield 1, self.value
        for power in self.step.products:
            low, high = known[power // 2], known[power - power // 2]
            level = self.level + (power - 1).bit_length() - 1
            if low is not high:
                low, high = (self.seal.lowered(part, level) for part in (low, high))
            known[power] = self.seal.product(low, high)
            yield power, known[power]
