"""A network of affine maps and polynomials, as encryption and proofs see it.

    x → W x + b → Σ_k c_k·x^k → W x + b → …        one vector per sample

The square of a·h² + b·h + c is completed, so that it costs one square and nothing else:

    a·h² + b·h + c = ±(√|a|·h + β)² + (c ∓ β²),     β = ±b / 2√|a|

√|a| and β go into the map before it, the sign and the constant into the map behind it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce

import numpy as np

from onnxfde.numbers import FloatArray

LARGEST_OFFSET = 32.0
"""|β| above which a polynomial is evaluated by its powers: β² would drown what is left of it in the
noise of an encrypted value. Chosen; not tuned."""


@dataclass(frozen=True, eq=False)
class AffineStep:
    """W x + b."""

    weight: FloatArray
    bias: FloatArray

    @property
    def width(self) -> int:
        """How many values it makes."""
        return len(self.bias)

    def __call__(self, x: FloatArray) -> FloatArray:
        """Its values for rows x."""
        return np.asarray(x @ self.weight.T + self.bias)


@dataclass(frozen=True, eq=False)
class PowerStep:
    """Σ_k c_k·x^k, with one row of coefficients per power and one column per value."""

    coefficients: FloatArray

    @property
    def width(self) -> int:
        """How many values it makes."""
        return int(self.coefficients.shape[1])

    @property
    def powers(self) -> tuple[int, ...]:
        """The powers that any value needs, 0 left out."""
        used = np.flatnonzero(self.coefficients.any(axis=1))
        return tuple(int(k) for k in used if k > 0)

    @property
    def is_monomial(self) -> bool:
        """Whether it is one power of every value, with the factor 1, and nothing else."""
        alone = len(self.powers) == 1 and not self.coefficients[0].any()
        return alone and bool(np.all(self.coefficients[self.powers[0]] == 1))

    @property
    def products(self) -> tuple[int, ...]:
        """The powers that have to be computed, each from two smaller ones, smallest first."""
        needed = set(self.powers)
        for power in range(max(needed, default=0), 1, -1):
            if power in needed:
                needed |= {power // 2, power - power // 2}
        return tuple(sorted(needed - {0, 1}))

    def __call__(self, x: FloatArray) -> FloatArray:
        """Its values for rows x."""
        return np.asarray(reduce(lambda total, c: total * x + c, self.coefficients[::-1], 0.0 * x))


NetworkStep = AffineStep | PowerStep


@dataclass(frozen=True, eq=False)
class PolynomialNetwork:
    """Maps and polynomials in the order in which they are applied to one sample."""

    inputs: int
    steps: tuple[NetworkStep, ...]

    @property
    def widths(self) -> tuple[int, ...]:
        """How many values there are at each place."""
        return (self.inputs, *(step.width for step in self.steps))

    def values(self, x: FloatArray) -> list[FloatArray]:
        """The values at each place, in float64, for rows x."""
        found = [x]
        for step in self.steps:
            found.append(step(found[-1]))
        return found


def with_polynomial(
    steps: list[NetworkStep], coefficients: FloatArray
) -> tuple[list[NetworkStep], FloatArray]:
    """Steps with a polynomial behind them, and the factors and terms that are left to do."""
    ones, zeros = np.ones_like(coefficients[0]), np.zeros_like(coefficients[0])
    degree = len(coefficients) - 1
    if degree <= 1:
        line = coefficients if degree else np.stack([coefficients[0], zeros])
        return steps, line
    last = steps[-1] if steps else None
    c, b, a = coefficients[:3]
    if degree == 2 and np.all(a != 0):
        root, sign = np.sqrt(np.abs(a)), np.sign(a)
        centre = sign * b / (2 * root)
        plain = np.all(root == 1) and not centre.any()
        square = PowerStep(np.stack([zeros, zeros, ones]))
        line = np.stack([c - sign * centre**2, sign])
        if plain:
            return [*steps, square], line
        if isinstance(last, AffineStep) and np.abs(centre).max() <= LARGEST_OFFSET:
            moved = replace(
                last, weight=root[:, None] * last.weight, bias=root * last.bias + centre
            )
            return [*steps[:-1], moved, square], line
    return [*steps, PowerStep(coefficients)], np.stack([zeros, ones])


def with_map(
    steps: list[NetworkStep], line: FloatArray, weight: FloatArray, bias: FloatArray
) -> list[NetworkStep]:
    """Steps with factors and terms and then a map behind them."""
    shift, scale = line
    return [*steps, AffineStep(weight * scale, bias + weight @ shift)]


def with_line(steps: list[NetworkStep], line: FloatArray) -> list[NetworkStep]:
    """Steps with factors and terms behind them, in the map before these if there is one."""
    shift, scale = line
    if np.all(scale == 1) and not shift.any():
        return steps
    if steps and isinstance(last := steps[-1], AffineStep):
        return [*steps[:-1], AffineStep(scale[:, None] * last.weight, scale * last.bias + shift)]
    return [*steps, PowerStep(line)]
