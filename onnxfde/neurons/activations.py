"""The table of activations that neurons may have.

    h = σ(u·z)      degree p:  σ(αx) = αᵖ σ(x) for α > 0, so a neuron's scale is free:
                               u → αu, V → V/αᵖ
                    even:      σ(−x) = σ(x), so its sign is free as well

To add one, add a row here and its spelling in a graph to `graph/activation_patterns.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from onnxfde.numbers import FloatArray

Elementwise = Callable[[FloatArray], FloatArray]


@dataclass(frozen=True)
class Activation:
    """A function that is applied to each hidden value by itself."""

    name: str
    value: Elementwise
    slope: Elementwise
    degree: int
    """The power of a positive factor that can be taken out of the function."""
    even: bool
    """Whether the sign of its argument makes no difference."""


SQUARE = Activation(
    name="square",
    value=lambda x: np.asarray(x**2),
    slope=lambda x: 2 * x,
    degree=2,
    even=True,
)

ACTIVATIONS = {row.name: row for row in (SQUARE,)}
