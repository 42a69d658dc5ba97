"""Which activation of the table a normal form is, up to a factor.

    κ·σ(h)      constants are compared as exactly as the model's type stores them

Smooth functions may be further off, 1.4142 for √2: they are fitted as that row, but its symmetry,
of which exact merges make use, is not theirs.

Factors behind an activation belong to the map after it, but one that stands inside, as in
h·(1 + Erf(h/√2)) = 2·Gelu, stays in the graph and belongs to the function.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from onnxfde.graph.function_forms import (
    LINE,
    RECIPROCAL,
    Atom,
    FunctionForm,
    H,
    Monomial,
    applied,
    atom_form,
    positive_part,
)
from onnxfde.graph.step_forms import STEP, chosen_form, step_form
from onnxfde.neurons.activation import Activation
from onnxfde.neurons.activation_functions import TANH_CUBE, TANH_SLOPE
from onnxfde.neurons.activations import ACTIVATIONS
from onnxfde.neurons.piecewise_activations import (
    ABS,
    HARD_SWISH,
    IDENTITY,
    RELU,
    RELU_SQUARED,
    clip,
    leaky_relu,
    thresholded_relu,
)
from onnxfde.neurons.polynomial_activations import SQUARE, polynomial, scaled_activation
from onnxfde.neurons.smooth_activations import (
    ERF,
    GELU,
    MISH,
    SIGMOID,
    SOFTPLUS,
    SOFTSIGN,
    TANH,
    TANH_GELU,
    silu,
)
from onnxfde.numbers import ROUNDOFF

Scaled = tuple[Activation, float]
"""A row of the table and the factor κ."""
ROUGH = 1e-4
"""How far, relatively, a constant may be from what it stands for: people write √2 as 1.4142 and
√(2/π) as 0.7979. Chosen; not tuned."""
ROUNDINGS = 4
"""How many unit roundoffs of the model's type it may be off in any case: a product of a few
constants, each of them rounded."""


class Tolerance(NamedTuple):
    """The unit roundoff of a model's type, and how far constants may be off."""

    roundoff: float
    constants: float


def rounding_of_constants(roundoff: float) -> float:
    """How far constants are off by rounding; attributes are float32 in any model."""
    return ROUNDINGS * max(roundoff, ROUNDOFF["float32"])


def same_up_to_factor(form: FunctionForm, known: FunctionForm, off: float) -> float | None:
    """κ if a form is κ times a known one, else None."""
    if len(form.terms) != len(known.terms):
        return None
    factors = []
    for monomial, wanted in known.terms:
        alike = [a for m, a in form.terms if same_monomial(m, monomial, off)]
        if len(alike) != 1:
            return None
        factors.append(alike[0] / wanted)
    close = all(abs(factor - factors[0]) <= off * abs(factors[0]) for factor in factors)
    return min(factors) if factors and close else None


def same_monomial(first: Monomial, second: Monomial, off: float) -> bool:
    """Whether two monomials have the same factors, but for the rounding of constants."""
    if first.power != second.power or len(first.atoms) != len(second.atoms):
        return False
    return all(
        any(n == k and same_atom(atom, other, off) for other, k in second.atoms)
        for atom, n in first.atoms
    )


def same_atom(first: Atom, second: Atom, off: float) -> bool:
    """Whether two atoms are the same function, but for the rounding of constants."""
    if first.name != second.name:
        return False
    if not np.allclose(first.constants, second.constants, rtol=off, atol=0.0):
        return False
    if first.argument == second.argument:
        return True
    factor = same_up_to_factor(first.argument, second.argument, off)
    return factor is not None and abs(factor - 1) <= off


def tanh_argument() -> FunctionForm:
    """What tanh reads in the approximation of Gelu."""
    cube = H.times(H).times(H).scaled(TANH_CUBE)
    return H.plus(cube).scaled(TANH_SLOPE)


def half_gated(gate: FunctionForm) -> FunctionForm:
    """h·(1 + gate)/2."""
    return H.plus(H.times(gate)).scaled(0.5)


KNOWN: tuple[tuple[Activation, FunctionForm], ...] = (
    (GELU, half_gated(applied(ERF, H.scaled(float(np.sqrt(0.5)))))),
    (TANH_GELU, half_gated(applied(TANH, tanh_argument()))),
    (MISH, H.times(applied(TANH, applied(SOFTPLUS, H)))),
    (HARD_SWISH, applied(HARD_SWISH, H)),
    (RELU_SQUARED, positive_part(H).times(positive_part(H))),
    (RELU_SQUARED, H.times(positive_part(H))),
    (SQUARE, applied(ABS, H).times(applied(ABS, H))),
    (SOFTSIGN, H.times(atom_form(RECIPROCAL, applied(ABS, H).plus(FunctionForm.constant(1.0))))),
)
"""Activations that take several nodes, and their normal forms."""


def known_sum(form: FunctionForm, off: Tolerance) -> Scaled | None:
    """An activation of several nodes without constants to choose."""
    for activation, known in KNOWN:
        factor = same_up_to_factor(form, known, off.constants)
        if factor is not None:
            return activation, factor
    return None


def known_polynomial(form: FunctionForm, off: Tolerance) -> Scaled | None:
    """A polynomial of degree 3 or more; the others are read feature by feature (`polynomials`)."""
    found = polynomial_form(form)
    return (found, 1.0) if found is not None and (found.power or 0) > 2 else None


def polynomial_form(form: FunctionForm) -> Activation | None:
    """The polynomial that a form is, of any degree."""
    if any(monomial.atoms for monomial, _ in form.terms):
        return None
    powers = {monomial.power: a for monomial, a in form.terms}
    degree = max(powers, default=0)
    return polynomial(tuple(powers.get(k, 0.0) for k in range(degree + 1)))


def known_operator(form: FunctionForm, off: Tolerance) -> Scaled | None:
    """An operator of the table times a factor."""
    if len(form.terms) != 1:
        return None
    ((monomial, factor),) = form.terms
    if monomial.power or len(monomial.atoms) != 1:
        return None
    ((atom, exponent),) = monomial.atoms
    if exponent != 1 or atom.argument != H or atom.name not in ACTIVATIONS:
        return None
    row = ACTIVATIONS[atom.name]
    found = row if isinstance(row, Activation) else row(*atom.constants)
    return found, factor


def known_lines(form: FunctionForm, off: Tolerance) -> Scaled | None:
    """Relu, LeakyRelu and Abs, with a corner at 0, or Clip."""
    hinges = form.hinges
    if not hinges or len(hinges) > 2:
        return None
    corners = sorted(hinges)
    slopes = form.coefficient(LINE) + np.cumsum([0.0, *(hinges[t] for t in corners)])
    slopes[np.abs(slopes) <= off.constants * np.max(np.abs(slopes))] = 0.0
    first, last = float(slopes[0]), float(slopes[-1])
    if corners == [0.0] and last:
        row = ABS if first == -last else leaky_relu(first / last) if first else RELU
    else:
        row = clip(-np.inf if first else corners[0], np.inf if last else corners[-1])
    factor = same_up_to_factor(form, applied(row, H), off.constants)
    return None if factor is None else (row, factor)


def known_gate(form: FunctionForm, off: Tolerance) -> Scaled | None:
    """SiLU: h·Sigmoid(β·h), or h·(1 + Tanh(β·h/2))/2."""
    for name, gated in (("Sigmoid", lambda gate: H.times(gate)), ("Tanh", half_gated)):
        found = [atom for m, _ in form.terms for atom, _ in m.atoms if atom.name == name]
        beta = found[0].argument.coefficient(LINE) if len(found) == 1 else 0.0
        gate = SIGMOID if name == "Sigmoid" else TANH
        factor = same_up_to_factor(form, gated(applied(gate, H.scaled(beta))), off.constants)
        if beta and factor is not None:
            return silu(beta if gate is SIGMOID else 2 * beta), factor
    return None


def known_step(form: FunctionForm, off: Tolerance) -> Scaled | None:
    """ThresholdedRelu, and Softplus as torch writes it: h itself above 20, if rounding hides it."""
    corners = [a.constants[0] for m, _ in form.terms for a, _ in m.atoms if a.name == STEP]
    for corner in corners[:1]:
        step = step_form(corner)
        softplus = applied(SOFTPLUS, H)
        candidates = [(thresholded_relu(corner), chosen_form(step, H, FunctionForm.constant(0.0)))]
        if corner > 0 and np.exp(-corner) <= off.roundoff * corner:
            candidates.append((SOFTPLUS, chosen_form(step, H, softplus)))
        for row, known in candidates:
            factor = same_up_to_factor(form, known, off.constants)
            if factor is not None:
                return row, factor
    return None


READERS: tuple[Callable[[FunctionForm, Tolerance], Scaled | None], ...] = (
    known_polynomial,
    known_operator,
    known_sum,
    known_lines,
    known_gate,
    known_step,
)
"""What turns a normal form into an activation; the first that can does."""


def known_activation(form: FunctionForm, roundoff: float) -> Activation | None:
    """The activation of the table, times a factor, that a form is; None if there is none."""
    if form == H:
        return IDENTITY
    rounding = rounding_of_constants(roundoff)
    found = known_within(form, Tolerance(roundoff, rounding)) or rough_row(form, roundoff)
    if found is None:
        return None
    row, factor = found
    return scaled_activation(row, 1.0 if abs(factor - 1) <= rounding else factor)


def known_within(form: FunctionForm, off: Tolerance) -> Scaled | None:
    """The row and the factor that a form is if its constants may be so far off."""
    return next(filter(None, (read(form, off) for read in READERS)), None)


def rough_row(form: FunctionForm, roundoff: float) -> Scaled | None:
    """The smooth row that a form roughly is, without its symmetry."""
    found = known_within(form, Tolerance(roundoff, ROUGH))
    if found is None or found[0].kinks:
        return None
    return replace(found[0], reflection=None), found[1]
