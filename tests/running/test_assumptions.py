"""What is assumed about inputs without data, and that the larger error counts."""

from __future__ import annotations

import numpy as np
import pytest

import onnxfde
from onnxfde.demo import demo_model
from onnxfde.running.input_source import InputSource
from tests.models import build, mlp, twins
from tests.passes.test_one_way import chain


@pytest.mark.parametrize(
    ("limits", "wider"),
    [
        ((0.0, 1.0), (-1.0, 1.0)),
        ((-1.0, 1.0), None),
        ((-3.0, 1.0), (-3.0, 3.0)),
        ((2.0, 5.0), (-5.0, 5.0)),
    ],
)
def test_inputs_around_0_are_tried_too(
    limits: tuple[float, float], wider: tuple[float, float] | None
) -> None:
    found = InputSource(limits).wider
    assert (found.limits if found else None) == wider


@pytest.mark.parametrize("quotient", ["minimal", "refit"])
def test_eps_holds_under_both_assumptions(quotient: str) -> None:
    result = onnxfde.optimize(demo_model(), 0.1, input_range=(0, 1), quotient=quotient)  # type: ignore[arg-type]
    assert result.report.layers[0].error <= 0.1
    for limits in ((0, 1), (-1, 1)):
        found = onnxfde.verify(demo_model(), result.model, input_range=limits)
        assert found.relative_l2 is not None
        assert found.relative_l2 <= 0.11
        assert result.report.verification is not None
        assert found.relative_l2 <= (result.report.verification.relative_l2 or 0) * (1 + 1e-6)


@pytest.mark.parametrize("quotient", ["minimal", "refit"])
@pytest.mark.parametrize("limits", [(0, 1), (-1, 1)])
def test_the_mean_counts_under_both_assumptions(quotient: str, limits: tuple[int, int]) -> None:
    """An offset fitted to inputs around 0 leaves a mean error for those between 0 and 1."""
    rng = np.random.default_rng(1)
    a, b, c = (rng.normal(size=s).astype(np.float32) for s in ((6, 24), 24, (24, 2)))
    body = "h = Gemm(x, a, b) r = Relu(h) y = MatMul(r, c)"
    model = build(body, "float[N,6] x", "float[N,2] y", a=a, b=b, c=c)
    result = onnxfde.optimize(model, 0.2, input_range=(0, 1), quotient=quotient)  # type: ignore[arg-type]
    (layer,) = result.report.layers
    assert layer.changed
    found = onnxfde.verify(model, result.model, input_range=limits)
    assert found.relative_l2 is not None
    assert found.relative_l2 <= 0.22
    assert found.relative_l2 <= 1.1 * layer.measured_error


def test_later_layers_count_both_assumptions_too() -> None:
    report = onnxfde.optimize(chain(2), 0.05, input_range=(0, 1), quotient="refit").report
    assert len(report.layers) == 2
    assert all(layer.error <= 0.05 for layer in report.layers)
    assert report.verification is not None
    assert report.verification.source == "random inputs in [-1, 1]"


def test_the_report_says_what_was_assumed() -> None:
    model = mlp(*twins())
    assert onnxfde.optimize(model, 0, input_range=(-2, 2)).report.assumed == (
        "inputs are independent and uniform in [-2, 2]"
    )
    assert onnxfde.optimize(model, 0, input_range=(0, 2)).report.assumed == (
        "inputs are independent and uniform in [0, 2] or, where that gives a larger error, "
        "in [-2, 2]"
    )
    x = np.random.default_rng(0).uniform(-1, 1, (200, 3)).astype(np.float32)
    assert onnxfde.optimize(model, 0, data={"x": x}).report.assumed is None


def test_an_assumption_under_which_nothing_can_be_computed_does_not_count() -> None:
    """Square roots of inputs around 0 are no numbers."""
    rng = np.random.default_rng(0)
    model = build(
        "r = Sqrt(x) h = Gemm(r, A, a) s = Mul(h, h) y = Gemm(s, B)",
        inputs="float[N,30] x",
        A=(rng.normal(size=(30, 40)) / 6).astype(np.float32),
        a=rng.normal(size=40).astype(np.float32),
        B=rng.normal(size=(40, 2)).astype(np.float32),
    )
    report = onnxfde.optimize(model, 0.1, input_range=(0.5, 1), quotient="refit").report
    plain = onnxfde.optimize(
        model, 0.1, data={"x": rng.uniform(0.5, 1, (4000, 30))}, quotient="refit"
    ).report
    assert report.layers[0].neurons_after <= plain.layers[0].neurons_after + 3
