"""Choices between two functions of h, in the normal form of `function_forms`.

    Where(h > t, p, q) = q + step_t·(p − q),      step_t = 1 where h > t, else 0

Products with lines become hinges, step_t·h = hinge_t + t·step_t, so that continuous functions have
no steps left: Where(h > 0, h, α·h) = α·h + (1 − α)·hinge₀.
"""

from __future__ import annotations

from onnxfde.graph.function_forms import (
    HINGE,
    LINE,
    ONE,
    FunctionForm,
    H,
    Monomial,
    atom_form,
)

STEP = "step"
"""The name of the function, whose constants are t and whether h = t counts as above (0 or 1)."""
COMPARISONS = {"Greater", "GreaterOrEqual", "Less", "LessOrEqual"}


def indicator(kind: str, first: FunctionForm, second: FunctionForm) -> FunctionForm | None:
    """1 where a comparison of two lines of h holds, else 0; None if they are no lines."""
    if kind.startswith("Less"):
        first, second = second, first
    line = first.minus(second)
    slope = line.coefficient(LINE)
    if slope == 0 or any(monomial not in (ONE, LINE) for monomial, _ in line.terms):
        return None
    corner, equal = -line.coefficient(ONE) / slope + 0.0, float(kind.endswith("Equal"))
    if slope > 0:
        return step_form(corner, equal)
    return FunctionForm.constant(1.0).minus(step_form(corner, 1 - equal))


def step_form(corner: float, equal: float = 0.0) -> FunctionForm:
    """A step."""
    return atom_form(STEP, H, corner, equal)


def chosen_form(where: FunctionForm, first: FunctionForm, second: FunctionForm) -> FunctionForm:
    """The first form where an indicator is 1, else the second."""
    rest = first.minus(second)
    found = second
    for monomial, factor in where.terms:
        if monomial == ONE:
            found = found.plus(rest.scaled(factor))
        else:
            found = found.plus(stepped(monomial, rest).scaled(factor))
    return found


def stepped(step: Monomial, form: FunctionForm) -> FunctionForm:
    """A step times a form."""
    ((atom, _),) = step.atoms
    corner = atom.constants[0]
    found = FunctionForm.constant(0.0)
    for monomial, factor in form.terms:
        part = FunctionForm.of({step.times(monomial): factor})
        if monomial == LINE:
            part = atom_form(HINGE, H, corner).plus(FunctionForm.of({step: corner})).scaled(factor)
        elif monomial.hinge is not None and monomial.hinge >= corner:
            part = FunctionForm.of({monomial: factor})
        found = found.plus(part)
    return found
