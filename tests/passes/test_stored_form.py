"""A completed square is stored as such where that costs little; what merges is equal either way."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import onnxfde
from onnxfde.graph.match import find_layers
from onnxfde.graph.model import Graph
from onnxfde.neurons.kernels import Metric
from onnxfde.passes.stored_form import stored_form
from tests.models import build
from tests.polynomial_models import COSTLY, KINDS, polynomial_layer

X = np.random.default_rng(0).uniform(-1, 1, (64, 3))


def form(body: str, kind: str = "float", reach: float = 1.0) -> Any:
    ((match,), _) = find_layers(Graph(polynomial_layer(body, kind)))
    return stored_form(match, Metric.box(3, -reach, reach), reach * X)


def test_a_plain_square_has_nothing_to_choose() -> None:
    assert form("s = Mul(h, h)") == {}


def test_a_cheap_square_is_completed_and_checked_against_the_polynomial() -> None:
    assert form("q = Mul(h, h) s = Add(q, h)").keys() == {"spelled_size"}


def test_scalar_coefficients_stay() -> None:
    kept = form(COSTLY["1e-4·x² + x"])["kept"]
    found = [float(a[0]) for a in (kept.square, kept.linear, kept.constant)]
    assert found == [float(np.float32(1e-4)), 1.0, 0.0]


def test_coefficients_that_differ_give_way_to_a_common_centre() -> None:
    kept = form(COSTLY["1e-4·x² + x per feature"])["kept"]
    assert (kept.square[0], kept.constant[0]) == (1.0, 0.0)
    assert 2**11 <= kept.centre[0] <= 2**14


def test_the_inputs_decide() -> None:
    """At 10,000 times the inputs, β = 5,000 is no larger than the values."""
    assert "kept" not in form(COSTLY["1e-4·x² + x"], reach=1e4)


def lossless(kind: str, seed: int, slope: float, per_feature: bool) -> tuple[int, int]:
    """Distinct neurons of a random layer of 8, and those left at ε = 0."""
    rng = np.random.default_rng(seed)
    distinct = int(rng.integers(2, 7))
    pick = np.concatenate([np.arange(distinct), rng.integers(0, distinct, 8 - distinct)])
    a, b = (rng.uniform(0.5, 2, distinct)[pick if per_feature else 0] for _ in range(2))
    found: dict[str, Any] = {
        "W": rng.normal(size=(distinct, 4))[pick],
        "b": rng.normal(size=distinct)[pick],
        "V": rng.normal(size=(3, 8)),
        "k": a * slope,
        "l": b,
    }
    stored: dict[str, Any] = {n: np.asarray(a).astype(KINDS[kind]) for n, a in found.items()}
    model = build(
        "h = Gemm <transB = 1> (x, W, b) q = Mul(h, h) p = Mul(q, k) r = Mul(h, l) s = Add(p, r) "
        "y = Gemm <transB = 1> (s, V)",
        inputs=f"{kind}[N,4] x",
        outputs=f"{kind}[N,3] y",
        **stored,
    )
    report = onnxfde.optimize(model, eps=0).report
    return distinct, report.layers[0].neurons_after


@settings(max_examples=30, deadline=None)
@given(
    st.sampled_from(["float", "float16"]),
    st.integers(0, 2**32 - 1),
    st.sampled_from([1.0, 0.1, 0.01, 1e-3]),
    st.booleans(),
)
def test_copies_go_and_the_result_is_equal_up_to_rounding(
    kind: str, seed: int, slope: float, per_feature: bool
) -> None:
    """`optimize` itself raises if the outputs differ by more than rounding."""
    distinct, left = lossless(kind, seed, slope, per_feature)
    assert left <= distinct
