"""Functions of one value h in a normal form, in which different spellings look the same.

    Σ coefficient · hᵏ · Π atoms        an atom is a function of the table of another such sum

    Gelu   0.5·h·(1 + Erf(h/√2)),  h·(0.5 + 0.5·Erf(0.7071·h)), …  →  0.5·h + 0.5·h·Erf(0.7071·h)

What consists of straight lines is a sum of hinges, h > t: max(h − t, 0), and nothing else:

    Abs   −h + 2·hinge₀        Clip   a + hinge_a − hinge_b        max(p, q) = q + hinge₀(p − q)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from onnxfde.neurons.activation import Activation

HINGE, RECIPROCAL = "hinge", "1/x"
"""The names of functions that occur in normal forms only."""


@dataclass(frozen=True)
class Atom:
    """A function of a normal form, which is not taken apart further."""

    name: str
    constants: tuple[float, ...]
    argument: FunctionForm


@dataclass(frozen=True)
class Monomial:
    """A product of h, so many times, and of powers of atoms."""

    power: int
    atoms: frozenset[tuple[Atom, int]] = frozenset()

    def times(self, other: Monomial) -> Monomial:
        """The product of two."""
        found = dict(self.atoms)
        for atom, exponent in other.atoms:
            found[atom] = found.get(atom, 0) + exponent
        return Monomial(self.power + other.power, frozenset(found.items()))

    @property
    def hinge(self) -> float | None:
        """Where the hinge is, if this is one."""
        if self.power == 0 and len(self.atoms) == 1:
            ((atom, exponent),) = self.atoms
            if atom.name == HINGE and exponent == 1:
                return atom.constants[0]
        return None


ONE, LINE = Monomial(0), Monomial(1)


@dataclass(frozen=True)
class FunctionForm:
    """A sum of monomials, none of them with the coefficient 0."""

    terms: frozenset[tuple[Monomial, float]]

    @classmethod
    def of(cls, coefficients: Mapping[Monomial, float]) -> FunctionForm:
        """The sum with these coefficients."""
        return cls(frozenset((m, float(a)) for m, a in coefficients.items() if a != 0))

    @classmethod
    def constant(cls, a: float) -> FunctionForm:
        """A number."""
        return cls.of({ONE: a})

    def plus(self, other: FunctionForm) -> FunctionForm:
        """The sum."""
        found = dict(self.terms)
        for monomial, a in other.terms:
            found[monomial] = found.get(monomial, 0.0) + a
        return FunctionForm.of(found)

    def scaled(self, factor: float) -> FunctionForm:
        """The form times a number."""
        return FunctionForm.of({monomial: factor * a for monomial, a in self.terms})

    def minus(self, other: FunctionForm) -> FunctionForm:
        """The difference."""
        return self.plus(other.scaled(-1.0))

    def times(self, other: FunctionForm) -> FunctionForm:
        """The product."""
        found: dict[Monomial, float] = {}
        for first, a in self.terms:
            for second, b in other.terms:
                product = first.times(second)
                found[product] = found.get(product, 0.0) + a * b
        return FunctionForm.of(found)

    @property
    def degree(self) -> int:
        """The largest number of factors in a term."""
        sizes = (m.power + sum(exponent for _, exponent in m.atoms) for m, _ in self.terms)
        return max(sizes, default=0)

    @property
    def hinges(self) -> dict[float, float] | None:
        """Hinges and their coefficients if the form has straight lines only."""
        found: dict[float, float] = {}
        for monomial, a in self.terms:
            if monomial.hinge is not None:
                found[monomial.hinge] = a
            elif monomial not in (ONE, LINE):
                return None
        return found

    def coefficient(self, monomial: Monomial) -> float:
        """The coefficient of a monomial."""
        return dict(self.terms).get(monomial, 0.0)


H = FunctionForm.of({LINE: 1.0})
"""The value of which forms are functions."""


def atom_form(name: str, argument: FunctionForm, *constants: float) -> FunctionForm:
    """A form that is one atom."""
    return FunctionForm.of({Monomial(0, frozenset([(Atom(name, constants, argument), 1)])): 1.0})


def hinge_sum(offset: float, slope: float, hinges: Mapping[float, float]) -> FunctionForm:
    """The form with straight lines: offset + slope·h + Σ coefficient·max(h − t, 0)."""
    found = FunctionForm.of({ONE: offset, LINE: slope})
    for t, a in hinges.items():
        found = found.plus(atom_form(HINGE, H, t).scaled(a))
    return found


def positive_part(form: FunctionForm) -> FunctionForm:
    """max(form, 0)."""
    hinges = form.hinges
    if hinges is None:
        return atom_form("Relu", form)
    offset, slope = form.coefficient(ONE), form.coefficient(LINE)
    corners = sorted(hinges)

    def line_right_of(place: float) -> tuple[float, float]:
        on = [t for t in corners if t <= place]
        return offset - sum(hinges[t] * t for t in on), slope + sum(hinges[t] for t in on)

    ends = (-np.inf, *corners, np.inf)
    crossings = []
    for left, right in pairwise(ends):
        c, b = line_right_of(left)
        if b != 0 and left < -c / b < right:
            crossings.append(-c / b + 0.0)
    points = sorted({*corners, *crossings})
    pieces = []
    for left, right in pairwise((-np.inf, *points, np.inf)):
        c, b = line_right_of(left)
        pieces.append((c, b) if c + b * inner_point(left, right) > 0 else (0.0, 0.0))
    turns = np.diff([slope for _, slope in pieces])
    return hinge_sum(*pieces[0], dict(zip(points, turns, strict=True)))


def inner_point(left: float, right: float) -> float:
    """A number between two, of which one or both may be infinite."""
    if np.isinf(left) and np.isinf(right):
        return 0.0
    if np.isinf(left):
        return right - 1 - abs(right)
    return left + 1 + abs(left) if np.isinf(right) else (left + right) / 2


def larger(first: FunctionForm, second: FunctionForm) -> FunctionForm:
    """The maximum of two."""
    return second.plus(positive_part(first.minus(second)))


def smaller(first: FunctionForm, second: FunctionForm) -> FunctionForm:
    """The minimum of two."""
    return first.minus(positive_part(first.minus(second)))


def between_limits(form: FunctionForm, least: float, most: float) -> FunctionForm:
    """A form between two limits."""
    if np.isfinite(least):
        form = larger(form, FunctionForm.constant(least))
    return smaller(form, FunctionForm.constant(most)) if np.isfinite(most) else form


def leaky(form: FunctionForm, alpha: float) -> FunctionForm:
    """A form above 0, and alpha times it below."""
    return form.scaled(alpha).plus(positive_part(form).scaled(1 - alpha))


def hard_gate(form: FunctionForm, alpha: float = 1 / 6, beta: float = 0.5) -> FunctionForm:
    """A line of a form, clipped to [0, 1]."""
    return between_limits(form.scaled(alpha).plus(FunctionForm.constant(beta)), 0.0, 1.0)


TAKEN_APART: dict[str, Callable[..., FunctionForm]] = {
    "Identity": lambda form: form,
    "Relu": positive_part,
    "LeakyRelu": leaky,
    "Abs": lambda form: leaky(form, -1.0),
    "Clip": between_limits,
    "HardSigmoid": hard_gate,
    "HardSwish": lambda form: form.times(hard_gate(form)),
}
"""Functions whose normal form is not an atom."""


def applied(activation: Activation, argument: FunctionForm) -> FunctionForm:
    """The form of an activation of the table, applied to a form."""
    if activation.name in TAKEN_APART:
        return TAKEN_APART[activation.name](argument, *activation.constants)
    return atom_form(activation.name, argument, *activation.constants)
