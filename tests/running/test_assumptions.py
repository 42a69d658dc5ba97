"""What is assumed about inputs without data, and that the larger error counts."""

from __future__ import annotations

import numpy as np
import pytest

import onnxfde
from onnxfde.demo import demo_model
from onnxfde.running.input_source import InputSource
from tests.models import mlp, twins
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
        "inputs are independent and uniform in [0, 2] or in [-2, 2], "
        "whichever gives the larger error"
    )
    x = np.random.default_rng(0).uniform(-1, 1, (200, 3)).astype(np.float32)
    assert onnxfde.optimize(model, 0, data={"x": x}).report.assumed is None
