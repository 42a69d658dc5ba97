"""What the neurons of a layer have in common, whatever its inputs are.

Neurons with rows f_i·t (`equal_rows`), f_i < 0 only where σ(−t) = sign·σ(t) + line·t + constant or
in a PRelu, a·t + (1 − a)·relu(t), are made of one shape σ₀(t) and of t itself:

    σ(f_i t) = s_i σ₀(t) + l_i t + c_i
    Σ_i V_i σ(f_i t) = V_r σ(t) + R t + Σ V_i c_i      V_r = Σ V_i s_i / s_r,   R = Σ V_i ρ_i,
                                                       ρ_i = l_i − s_i l_r / s_r

with r the representative, f_r = 1. Neurons on a straight piece of σ (`linear_pieces`) are a·t + b.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from onnxfde.neurons.activation import Activation, Reflection
from onnxfde.neurons.equal_rows import ROW_STEPS, RowFamilies, row_families
from onnxfde.neurons.layer import Layer
from onnxfde.neurons.linear_map import LinearTerms, rounds_linearly
from onnxfde.neurons.linear_pieces import InputBox, straight_neurons
from onnxfde.numbers import ROUNDOFF, FloatArray, Indices

SAME_KIND = 1e-13
"""Neurons of a family are of one kind if their ρ is this small beside l and s: float64 rounding."""


@dataclass(frozen=True, eq=False)
class MemberParts:
    """The s, l and c of neurons."""

    shape: FloatArray
    line: FloatArray
    constant: FloatArray

    @classmethod
    def of(
        cls, activation: Activation, factor: FloatArray, parameters: tuple[FloatArray, ...]
    ) -> MemberParts:
        """Of neurons whose rows are these multiples of their representatives'."""
        scale, negative = np.abs(factor) ** (activation.degree or 0), factor < 0
        if activation.name == "PRelu":
            slope, times = parameters[0], scale * activation.slope(np.ones(1), 1.0)
            line = np.where(negative, -1.0, slope)
            return cls((1 - slope) * times, line * times, 0.0 * scale)
        mirror = activation.reflection or Reflection(1.0)
        upright = Reflection(1.0)
        return cls(
            *(scale * np.where(negative, m, u) for m, u in zip(mirror, upright, strict=True))
        )


@dataclass(frozen=True, eq=False)
class LayerStructure:
    """A layer without constant neurons as shapes, a linear map and a constant."""

    layer: Layer
    dtype: np.dtype[Any]
    box: InputBox | None = None
    strict: bool = False
    """Whether rows must be strictly equal."""

    @cached_property
    def lines(self) -> tuple[FloatArray, FloatArray]:
        """Slope and intercept of straight neurons; nan for the others."""
        return straight_neurons(self.layer, self.box)

    @cached_property
    def straight(self) -> Indices:
        """Neurons that are linear and not constant."""
        slope = self.lines[0]
        return np.flatnonzero(~np.isnan(slope) & (slope != 0))

    @cached_property
    def curved(self) -> Indices:
        """Neurons that are neither linear nor constant."""
        return np.flatnonzero(np.isnan(self.lines[0]))

    @cached_property
    def families(self) -> RowFamilies:
        """Families of the curved neurons."""
        some, activation = self.layer.only(self.curved), self.layer.activation
        gate = activation.name == "PRelu"
        parameters = some.unit_parameters
        return row_families(
            some.incoming,
            self.dtype,
            scaled=activation.degree is not None,
            signed=gate or activation.reflection is not None,
            strict=self.strict,
            labels=np.stack(parameters, axis=1) if parameters and not gate else None,
            rank=np.abs(1 - parameters[0]) if gate else None,
        )

    @property
    def plain(self) -> bool:
        """Whether no neuron has anything in common with another."""
        return len(self.families.representatives) == self.layer.neurons

    def sound(self) -> bool:
        """Whether what loosely equal rows change is no more than rounding: ≤ ε·|V||U| by weight.

        Only where rounding grows like its argument: elsewhere a neuron that is large for an input
        carries the difference on to an output whose rounding another one was to cover.
        """
        families, rows = self.families, self.layer.incoming[self.curved]
        loose = np.flatnonzero(families.loose)
        if not len(loose):
            return True
        if not rounds_linearly(self.layer):
            return False
        first = families.representatives[families.home[loose]]
        change = np.abs(rows[loose] - families.factor[loose, None] * rows[first])
        changed = np.abs(self.layer.outgoing[:, self.curved[loose]]) @ change
        return bool(np.all(changed <= ROW_STEPS * self.terms.roundoff * self.terms.size))

    @cached_property
    def parts(self) -> MemberParts:
        """The parts of the curved neurons."""
        some = self.layer.only(self.curved)
        return MemberParts.of(some.activation, self.families.factor, some.unit_parameters)

    @property
    def representatives(self) -> Indices:
        """The representative of each family."""
        return self.curved[self.families.representatives]

    @cached_property
    def rest(self) -> FloatArray:
        """ρ of the curved neurons; 0 for those of their representative's kind."""
        families, parts = self.families, self.parts
        first = families.representatives[families.home]
        rest = parts.line - parts.shape * (parts.line / parts.shape)[first]
        small = np.abs(rest) <= SAME_KIND * (np.abs(parts.line) + np.abs(parts.shape))
        return np.where(small, 0.0, rest)

    def summed(self, factor: FloatArray, terms: FloatArray) -> FloatArray:
        """Σ V_i factor_i over each family, one column each.

        It is 0 where it is no more than rounding, given the size of the terms of each factor.
        """
        families, outgoing = self.families, self.layer.outgoing[:, self.curved].T
        found = np.zeros((len(families.representatives), self.layer.outputs))
        size = np.zeros_like(found)
        np.add.at(found, families.home, outgoing * factor[:, None])
        np.add.at(size, families.home, np.abs(outgoing * terms[:, None]))
        nothing = np.all(np.abs(found) <= ROUNDOFF[self.dtype.name] * size, axis=1, keepdims=True)
        return np.where(nothing, 0.0, found).T

    @cached_property
    def shapes(self) -> FloatArray:
        """V_r of each family."""
        own = self.parts.shape[self.families.representatives]
        return np.asarray(self.summed(self.parts.shape, self.parts.shape) / own)

    @cached_property
    def residues(self) -> FloatArray:
        """R of each family."""
        parts, families = self.parts, self.families
        lean = np.abs(parts.line / parts.shape)[families.representatives][families.home]
        return self.summed(self.rest, np.abs(parts.line) + np.abs(parts.shape) * lean)

    @cached_property
    def lined(self) -> Indices:
        """The families with a linear part."""
        return np.flatnonzero(np.any(self.residues != 0, axis=0))

    @cached_property
    def seconds(self) -> Indices:
        """In each family the curved neuron that differs most in kind from the representative."""
        size = np.abs(self.parts.shape) + np.abs(self.parts.line)
        order = np.lexsort([-np.abs(self.rest) / size, self.families.home])
        starts = np.searchsorted(self.families.home[order], range(len(self.representatives)))
        return np.asarray(order[starts])

    @cached_property
    def offset(self) -> FloatArray:
        """The layer's constant part: c, and that of its neurons."""
        slope, intercept = self.lines
        known = ~np.isnan(slope)
        constant = self.layer.outgoing[:, known] @ intercept[known]
        curved = self.layer.outgoing[:, self.curved] @ self.parts.constant
        return np.asarray(self.layer.offset + constant + curved)

    @cached_property
    def terms(self) -> LinearTerms:
        """What is linear: straight neurons, then families with a linear part."""
        layer, straight = self.layer, self.straight
        return LinearTerms(
            np.vstack([layer.incoming[straight], layer.incoming[self.representatives[self.lined]]]),
            np.hstack(
                [
                    layer.outgoing[:, straight] * self.lines[0][straight],
                    self.residues[:, self.lined],
                ]
            ),
            layer,
            self.dtype,
        )
