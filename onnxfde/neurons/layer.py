"""A hidden layer as arrays.

    o = c + V σ(U z),   z = (x, 1)          U: n × (d+1), rows u_i = (w_i, b_i);  V: m × n

σ may read parameters that each neuron has beside its row, such as the slope of PRelu.

With σ the square its outputs are quadratic forms: o_k = c_k + zᵀ Q_k z, Q_k = Σ_i V_ki u_i u_iᵀ.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from onnxfde.estimates import RowChanges
from onnxfde.neurons.activation import Activation, Elementwise
from onnxfde.neurons.polynomial_activations import SQUARE
from onnxfde.numbers import FloatArray, cast

MOST_HIDDEN = 2**23
"""Hidden values that are computed at once, 64 MB. Chosen; not tuned."""


@dataclass(frozen=True, eq=False)
class Layer:
    """One layer as arrays: rows of `incoming` are neurons, columns of `outgoing` their weights."""

    incoming: FloatArray
    outgoing: FloatArray
    offset: FloatArray
    activation: Activation = SQUARE
    unit_parameters: tuple[FloatArray, ...] = ()
    """What σ reads for each neuron: one array of n numbers for each of its parameters."""

    @property
    def neurons(self) -> int:
        """Hidden neurons, n."""
        return len(self.incoming)

    @property
    def inputs(self) -> int:
        """Inputs, d."""
        return int(self.incoming.shape[1]) - 1

    @property
    def outputs(self) -> int:
        """Outputs, m."""
        return len(self.outgoing)

    @property
    def parameters(self) -> int:
        """Nonzero weights and biases."""
        arrays = (self.incoming, self.outgoing, self.offset)
        return sum(int(np.count_nonzero(a)) for a in arrays)

    @property
    def size(self) -> int:
        """All weights and biases, zero or not, but no bias vector that is 0 throughout."""
        biases = sum(a.size for a in (self.incoming[:, -1], self.offset) if np.any(a))
        return self.incoming[:, :-1].size + self.outgoing.size + biases

    @property
    def finite(self) -> bool:
        """Whether every weight is a finite number."""
        return all(np.isfinite(a).all() for a in (self.incoming, self.outgoing, self.offset))

    def __call__(self, x: FloatArray) -> FloatArray:
        """The layer's outputs for rows of inputs."""
        if len(x) > 1 and len(x) * self.neurons > MOST_HIDDEN:
            return np.concatenate([self(part) for part in np.array_split(x, 2)])
        return np.asarray(self.hidden(x) @ self.outgoing.T + self.offset)

    def hidden(self, x: FloatArray) -> FloatArray:
        """The neurons' values σ(U z) for rows of inputs."""
        before = x @ self.incoming[:, :-1].T + self.incoming[:, -1]
        return self.activation.value(before, *self.unit_parameters)

    def magnitude(self, x: FloatArray) -> FloatArray:
        """A(x): the layer evaluated on absolute values, the scale of its rounding errors."""
        growth = replace(self.activation, value=self.activation.magnitude)
        return replace(self.mapped(np.abs), activation=growth)(np.abs(x))

    def change_to(self, other: Layer, x: FloatArray) -> float:
        """‖o′ − o‖ / ‖o − mean o‖ on rows of inputs; 0 if both are constant and equal."""
        return RowChanges.between(self(x), other(x)).value

    def stored_as(self, dtype: npt.DTypeLike) -> Layer:
        """The layer as it reads back after being stored as `dtype`."""
        return self.mapped(lambda a: cast(a, dtype))

    def mapped(self, change: Elementwise) -> Layer:
        """The layer with every weight and bias changed in the same way."""
        return replace(
            self,
            incoming=change(self.incoming),
            outgoing=change(self.outgoing),
            offset=change(self.offset),
        )

    def only(self, neurons: npt.NDArray[Any] | list[int]) -> Layer:
        """Some of its neurons, with the same offset."""
        return replace(
            self,
            incoming=self.incoming[neurons],
            outgoing=self.outgoing[:, neurons],
            unit_parameters=tuple(p[neurons] for p in self.unit_parameters),
        )

    @property
    def alive(self) -> npt.NDArray[np.bool_]:
        """Which neurons vary with the input and feed something."""
        varies = np.any(self.incoming[:, :-1] != 0, axis=1)
        return np.asarray(varies & np.any(self.outgoing != 0, axis=0))

    def without_constants(self) -> Layer:
        """Only the neurons that are alive; what the others contribute moves into c."""
        alive = self.alive
        if alive.all():
            return self
        rest = self.only(~alive)
        constant = rest.outgoing @ rest.activation.value(
            rest.incoming[:, -1], *rest.unit_parameters
        )
        return replace(self.only(alive), offset=self.offset + constant)
