"""A normal form has the values of the expression that it was made from."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from onnxfde.graph.function_forms import (
    HINGE,
    LINE,
    ONE,
    RECIPROCAL,
    FunctionForm,
    H,
    applied,
    larger,
    smaller,
)
from onnxfde.graph.known_forms import known_activation
from onnxfde.graph.step_forms import STEP, chosen_form, indicator
from onnxfde.neurons.activation import Activation
from onnxfde.neurons.activations import ACTIVATIONS
from onnxfde.neurons.piecewise_activations import ABS, RELU, clip, leaky_relu
from onnxfde.neurons.polynomial_activations import scaled_activation
from onnxfde.neurons.smooth_activations import ERF, SIGMOID, TANH
from onnxfde.numbers import FloatArray

X = np.linspace(-5, 5, 401) + 1e-3
PLAIN = (RELU, ABS, SIGMOID, TANH, ERF, leaky_relu(0.2), clip(-1.0, 2.0))
Pair = tuple[FunctionForm, FloatArray]
"""A form, and the values at X of what it stands for."""


def values_of(form: FunctionForm, h: FloatArray) -> FloatArray:
    """A form evaluated at h."""
    total = np.zeros_like(h)
    for monomial, factor in form.terms:
        part = factor * h**monomial.power
        for atom, exponent in monomial.atoms:
            inner = values_of(atom.argument, h)
            part = part * function_values(atom.name, atom.constants, inner) ** exponent
        total = total + part
    return total


def function_values(name: str, constants: tuple[float, ...], h: FloatArray) -> FloatArray:
    if name == HINGE:
        return np.maximum(h - constants[0], 0.0)
    if name == STEP:
        return np.where(h >= constants[0] if constants[1] else h > constants[0], 1.0, 0.0)
    if name == RECIPROCAL:
        return 1 / h
    row = ACTIVATIONS[name]
    return (row if isinstance(row, Activation) else row(*constants)).value(h)


NUMBERS = st.sampled_from([-3.0, -1.0, -0.5, 0.0, 0.25, 1.0, 2.0])


def joined(parts: st.SearchStrategy[Pair]) -> st.SearchStrategy[Pair]:
    """Larger expressions from smaller ones."""

    def of_two(first: Pair, second: Pair, kind: str) -> Pair:
        (f, a), (g, b) = first, second
        if kind == "times":
            return (f.times(g), a * b) if f.degree + g.degree < 4 else (f.plus(g), a + b)
        joint = {
            "plus": (f.plus, a + b),
            "minus": (f.minus, a - b),
            "max": (lambda other: larger(f, other), np.maximum(a, b)),
            "min": (lambda other: smaller(f, other), np.minimum(a, b)),
        }
        form, values = joint[kind]
        return form(g), values

    kinds = st.sampled_from(["plus", "minus", "times", "max", "min"])
    functions = st.sampled_from(PLAIN)
    return st.one_of(
        st.builds(of_two, parts, parts, kinds),
        st.builds(lambda part, f: (applied(f, part[0]), f.value(part[1])), parts, functions),
    )


CONSTANTS = NUMBERS.map(lambda a: (FunctionForm.constant(a), np.full_like(X, a)))
EXPRESSIONS = st.recursive(st.one_of(st.just((H, X)), CONSTANTS), joined, max_leaves=6)


@given(EXPRESSIONS)
@settings(max_examples=150, deadline=None)
def test_the_form_of_an_expression_has_its_values(pair: Pair) -> None:
    form, wanted = pair
    np.testing.assert_allclose(values_of(form, X), wanted, rtol=1e-9, atol=1e-9)


@given(st.sampled_from(PLAIN), NUMBERS.filter(bool))
def test_an_activation_times_a_number_is_recognised(wanted: Activation, factor: float) -> None:
    found = known_activation(applied(wanted, H).scaled(factor), 2.0**-24)
    assert found is not None
    assert found.name == wanted.name
    constants = scaled_activation(wanted, factor).constants
    np.testing.assert_allclose(found.constants, constants, rtol=1e-12)
    np.testing.assert_allclose(found.value(X), factor * wanted.value(X), atol=1e-12)


@given(NUMBERS.filter(bool), NUMBERS, NUMBERS, st.sampled_from(["Greater", "Less", "LessOrEqual"]))
def test_a_choice_has_the_values_of_both_sides(a: float, b: float, t: float, kind: str) -> None:
    where = indicator(kind, FunctionForm.of({LINE: a, ONE: b}), FunctionForm.constant(t))
    assert where is not None
    chosen = chosen_form(where, H, H.times(H))
    wanted = np.where((a * X + b < t) == (kind != "Greater"), X, X**2)
    np.testing.assert_allclose(values_of(chosen, X), wanted, atol=1e-12)


def test_a_comparison_of_numbers_is_no_step() -> None:
    assert indicator("Greater", FunctionForm.constant(1.0), FunctionForm.constant(2.0)) is None


def test_a_function_that_a_row_is_roughly_does_not_have_its_symmetry() -> None:
    gate = applied(ERF, H.scaled(float(np.sqrt(0.5))))
    for even, symmetric in ((0.5, True), (0.50004, False)):
        found = known_activation(H.scaled(0.5).plus(H.times(gate).scaled(even)), 2.0**-24)
        assert found is not None
        assert (found.name, found.reflection is not None) == ("Gelu", symmetric)


def test_straight_lines_have_exactly_the_corners_and_slopes_of_their_row() -> None:
    below, above = (applied(RELU, H.plus(FunctionForm.constant(a))) for a in (1.0, -1.0))
    for slope, known in ((1.0, True), (0.99995, False)):
        form = below.minus(above.scaled(slope)).plus(FunctionForm.constant(-1.0))
        found = known_activation(form, 2.0**-24)
        assert (found is not None) == known
    for corner, known in ((3.0, True), (3.0002, False)):
        gate = applied(clip(0.0, 6.0), H.plus(FunctionForm.constant(corner)))
        assert (known_activation(H.times(gate), 2.0**-24) is not None) == known
