"""What is known of an activation: the function that a neuron applies.

h = σ(u·z)      degree p:     σ(αx) = αᵖ σ(x) for α > 0, so a neuron's scale is free:
u → αu, V → V/αᵖ
reflection:   σ(−x) = sign·σ(x) + line·x + constant
parameters:   σ may read numbers of its own for each neuron (PRelu's slope)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from onnxfde.neurons.activation_curves import Curve
from onnxfde.numbers import FloatArray

Elementwise = Callable[..., FloatArray]
"""A function of hidden values, and of one array per parameter with one number per neuron."""


class Reflection(NamedTuple):
    """σ(−x) = sign·σ(x) + line·x + constant."""

    sign: float
    line: float = 0.0
    constant: float = 0.0


EVEN, ODD = Reflection(1.0), Reflection(-1.0)

GATED = Reflection(1.0, -1.0)
"""Of Relu and of all x·g(x) with g(−x) = 1 − g(x)."""


@dataclass(frozen=True)
class Activation:
    """A function that is applied to each hidden value by itself."""

    name: str
    constants: tuple[float, ...] = ()
    """The numbers that single it out among functions of this name."""
    value: Elementwise = field(kw_only=True, compare=False, repr=False)
    slope: Elementwise = field(kw_only=True, compare=False, repr=False)
    kinks: tuple[float, ...] = field(default=(), kw_only=True, compare=False)
    """Where the slope jumps, or the function is least like a polynomial."""
    degree: int | None = field(default=None, kw_only=True, compare=False)
    """The power of a positive factor that can be taken out of the function, if one can."""
    reflection: Reflection | None = field(default=None, kw_only=True, compare=False)
    """What a negative argument does, if that is simple."""
    power: int | None = field(default=None, kw_only=True, compare=False)
    """The largest power if it is a polynomial."""
    parameters: int = field(default=0, kw_only=True, compare=False)
    """How many numbers each neuron has beside its row of weights."""
    curve: Curve | Callable[..., Curve] = field(kw_only=True, compare=False, repr=False)
    """Its range and that of its slope over intervals; with parameters, what makes it from them."""
    magnitude: Elementwise = field(kw_only=True, compare=False, repr=False)
    """How rounding grows: for |x| ≤ A at least |σ(x)|, and at least the steepest slope times A (of
    the square, half of that), jumps aside."""

    def curve_of(self, *unit_parameters: FloatArray) -> Curve:
        """Its curve, with the parameters of the neurons if it reads any."""
        return self.curve if isinstance(self.curve, Curve) else self.curve(*unit_parameters)

    @property
    def even(self) -> bool:
        """Whether the sign of its argument makes no difference."""
        return self.reflection == EVEN

    @property
    def title(self) -> str:
        """The name with its constants, such as "LeakyRelu(0.2)"."""
        inside = ", ".join(f"{c:g}" for c in self.constants)
        return f"{self.name}({inside})" if inside else self.name


def steep(factor: float) -> Elementwise:
    """The magnitude of a function with σ(0) = 0 and slopes up to the factor."""
    return lambda size: factor * size
