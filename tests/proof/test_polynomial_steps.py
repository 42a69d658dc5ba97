"""Certificates follow polynomials of degree 2, soundly and closely."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import onnxfde
from onnxfde.graph.affine_maps import NoMatch
from onnxfde.graph.model import Graph
from onnxfde.graph.protos import ModelProto
from onnxfde.graph.regions import region_behind
from onnxfde.neurons.intervals import gamma
from onnxfde.proof.polynomial_steps import polynomial_step
from tests.models import build
from tests.polynomial_models import CHEAP, COSTLY, polynomial_layer
from tests.proof.certificates import (
    ROUNDING,
    bound,
    certificate,
    largest_change,
    perturbed,
    samples,
)

X = samples((300, 3), 1)


@pytest.mark.parametrize("spelling", [*CHEAP, *COSTLY])
def test_the_bound_of_a_merged_polynomial_is_sound_and_close(spelling: str) -> None:
    model = polynomial_layer((CHEAP | COSTLY)[spelling])
    merged = onnxfde.optimize(model, neurons=2, verify=False).model
    most, size = largest_change(model, merged, X)
    assert most > 1e-4 * size
    assert most <= bound(model, merged) + ROUNDING * size
    assert bound(model, merged) <= 3 * most


@pytest.mark.parametrize("constant", ["half", "one", "three"])
def test_another_coefficient_is_another_polynomial(constant: str) -> None:
    model = polynomial_layer(CHEAP["a·x² + b·x + c"])
    changed = perturbed(model, (constant,))
    most, size = largest_change(model, changed, X)
    assert 0 < most <= bound(model, changed) + ROUNDING * size


def test_the_same_nodes_on_other_values_are_another_polynomial() -> None:
    """h·(h + 1) + h and h·(h + 1) + (h + 1) differ in one edge only."""
    text = "q = Add(h, one) p = Mul(h, q) s = Add(p, {})"
    model, other = (polynomial_layer(text.format(name)) for name in ("h", "q"))
    most, size = largest_change(model, other, X)
    assert 0 < most <= bound(model, other) + ROUNDING * size


@pytest.mark.parametrize("left", [1e-3, 1e-9])
def test_square_terms_that_nearly_cancel_do_not_spoil_the_bound(left: float) -> None:
    body = "q = Mul(h, h) p = Mul(q, up) r = Mul(q, down) t = Sub(p, r) s = Add(t, h)"
    model = polynomial_layer(body, "double", up=1e4 + left, down=1e4)
    changed = perturbed(model, ("V",))
    most, size = largest_change(model, changed, X)
    assert most <= bound(model, changed) + ROUNDING * 1e4 * size


def test_a_polynomial_that_a_chain_cannot_follow_is_bounded_node_by_node_or_not_at_all() -> None:
    body = "k2 = Cast <to = 1> (h) q = Mul(h, k2) s = {}(q)"
    model = polynomial_layer(body.format("Relu"))
    most, size = largest_change(model, perturbed(model, ("V",)), X)
    assert most <= bound(model, perturbed(model, ("V",))) + ROUNDING * size
    odd = polynomial_layer(body.format("Cos"))
    found = certificate(odd, perturbed(odd, ("V",)))
    assert "node s (Cos)" in (found.unavailable or "")


def exact_coefficients(numbers: tuple[float, ...]) -> tuple[Fraction, Fraction, Fraction]:
    """a, b, c of (k·h + l)·(m·h + n) − o·h² + p·h."""
    k, l, m, n, o, p = (Fraction(number) for number in numbers)  # noqa: E741 - as in the formula
    return k * m - o, k * n + l * m + p, l * n


def product_of_lines(numbers: tuple[float, ...]) -> ModelProto:
    names = ("k", "l", "m", "n", "o", "p")
    constants: dict[str, Any] = dict(zip(names, map(np.asarray, numbers), strict=True))
    return build(
        "h = MatMul(x, W) k1 = Mul(h, k) l1 = Add(k1, l) m1 = Mul(m, h) n1 = Add(n, m1) "
        "q = Mul(l1, n1) z = Mul(h, h) z1 = Mul(z, o) t = Sub(q, z1) w = Mul(h, p) s = Add(t, w)",
        inputs="double[N,3] x",
        outputs="double[N,1] s",
        W=np.ones((3, 1)),
        **constants,
    )


NUMBERS = st.floats(0.01, 1e3) | st.floats(-1e3, -0.01)


@settings(max_examples=60, deadline=None)
@given(st.tuples(*[NUMBERS] * 5), st.floats(1e-6, 1.0))
def test_coefficients_are_off_by_no_more_than_their_margins(
    drawn: tuple[float, ...], gap: float
) -> None:
    """The square terms, k·m − o, cancel up to a gap."""
    k, l, m, n, p = drawn  # noqa: E741 - as in the formula
    numbers = (k, l, m, n, k * m * (1 + gap), p)
    graph, (a, b, c) = Graph(product_of_lines(numbers)), exact_coefficients(numbers)
    step = polynomial_step(graph, region_behind(graph, "s", ""), 1, "rows")
    centre, rest = b / (2 * a), c - b * b / (4 * a)
    span = step._centre_size[0]
    margins = {
        (float(step.p.square[0]), a): step.size.square[0],
        (float(step.p.centre[0]), centre): span,
        (float(step.p.rest[0]), rest): step.size.constant[0] + step.size.square[0] * span**2,
    }
    for (found, exact), size in margins.items():
        assert abs(Fraction(found) - exact) <= gamma(step.steps) * float(size)


def test_square_terms_that_cancel_in_float64_alone_are_not_taken_for_a_line() -> None:
    """(1e20·h² + h²) − 1e20·h² + h is h² + h; floating point cannot see the h²."""
    rng = np.random.default_rng(0)
    model = build(
        "h = Gemm(x, W) q = Mul(h, h) k = Mul(q, huge) s = Add(k, q) t = Sub(s, k) y = Add(t, h)",
        inputs="float[N,3] x",
        outputs="float[N,4] y",
        W=rng.normal(size=(3, 4)).astype(np.float32),
        huge=np.asarray(1e20, np.float32),
    )
    graph = Graph(model)
    region = region_behind(graph, "y", "")
    with pytest.raises(NoMatch, match="its square terms are missing or nearly cancel"):
        polynomial_step(graph, region, 4, "rows")
