"""A bound that says nothing is not shown as a result, and stays in the report."""

from __future__ import annotations

import numpy as np
import pytest

from onnxfde.proof.certificate import Certificate, OutputBound


@pytest.mark.parametrize(
    ("bound", "useful"), [(0.1, True), (1.0, True), (1.1, False), (8.9e18, False)]
)
def test_a_bound_above_the_spread_of_the_output_is_not_useful(bound: float, useful: bool) -> None:
    before = np.array([[-1.0, 4.0], [1.0, 6.0]])
    after = before + np.array([[0.0, 0.05], [-0.02, 0.0]])
    found = Certificate("range", (OutputBound("y", bound),)).beside([before], [after])
    (output,) = found.outputs
    assert output.spread == pytest.approx(1.0, rel=1e-12)
    assert output.measured_max == pytest.approx(0.05, rel=1e-9)
    assert output.bound == bound
    assert output.is_useful == useful


def test_without_a_run_every_bound_counts() -> None:
    assert OutputBound("y", 1e9).is_useful
