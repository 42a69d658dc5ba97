"""Parameters of CKKS for a network: the smallest ring that holds its depth and its slots.

N coefficients give N/2 slots and at most `MOST_BITS[N]` bits of moduli at a security of 128 bits.
L levels with a scale of 2^s take

    (s + 20) + L·s + (s + 20) bits,

20 bits for the integer part of the results, and as much for the modulus that only keys use.
"""

from __future__ import annotations

from dataclasses import dataclass

from onnxfde.errors import TargetError

SECURITY = "128-bit security (SEAL's table, tc128)"
MOST_BITS = {8192: 218, 16384: 438, 32768: 881}
"""Bits of all moduli by the number of coefficients, for 128 bits of security: SEAL's table
(CoeffModulus::MaxBitCount), after the homomorphic encryption standard."""
INTEGER_BITS = 20
"""Bits of a result before the point. Chosen: values up to half a million."""
FEWEST_SCALE_BITS = 30
"""Below that, results have errors of 1e-2 and more. Chosen; not tuned."""
MOST_SCALE_BITS = 40
"""SEAL's moduli have 60 bits at most, and 20 are for the integer part."""


@dataclass(frozen=True)
class CkksParameters:
    """A ring and its moduli."""

    degree: int
    levels: int
    scale_bits: int

    @property
    def slots(self) -> int:
        """Numbers in one ciphertext."""
        return self.degree // 2

    @property
    def moduli(self) -> list[int]:
        """Bits of each modulus."""
        outer = self.scale_bits + INTEGER_BITS
        return [outer, *[self.scale_bits] * self.levels, outer]

    @property
    def largest_value(self) -> float:
        """What a value may not exceed."""
        return float(2 ** (INTEGER_BITS - 1))


def parameters_for(levels: int, slots: int, slots_for: str) -> CkksParameters:
    """The smallest parameters; TargetError says what they would have to hold if there are none."""
    if slots > max(MOST_BITS) // 2:
        raise TargetError(
            f"{slots_for} needs {slots:,} slots, and a ciphertext has at most "
            f"{max(MOST_BITS) // 2:,}"
        )
    for degree, bits in MOST_BITS.items():
        scale = min((bits - 2 * INTEGER_BITS) // (levels + 2), MOST_SCALE_BITS)
        if scale >= FEWEST_SCALE_BITS and degree // 2 >= slots:
            return CkksParameters(degree, levels, scale)
    raise TargetError(
        f"it multiplies {levels} times in a row, and parameters with 128-bit security allow at "
        f"most {deepest()}; encrypt a part of it, or make it shallower"
    )


def deepest() -> int:
    """The most levels that any parameters have."""
    return (max(MOST_BITS.values()) - 2 * INTEGER_BITS) // FEWEST_SCALE_BITS - 2
