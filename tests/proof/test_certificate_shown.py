"""A bound that says nothing is not shown as a result, and stays in the report."""

from __future__ import annotations

import numpy as np
import pytest

from onnxfde.proof.certificate import Certificate, OutputBound


@pytest.mark.parametrize(
    ("bound", "rounding", "useful"),
    [
        (0.1, None, True),
        (1.0, None, True),
        (1.1, None, False),
        (8.9e18, None, False),
        (0.9, 0.05, True),
        (0.9, 0.2, False),
    ],
)
def test_a_bound_above_the_spread_of_the_output_is_not_useful(
    bound: float, rounding: float | None, useful: bool
) -> None:
    """Rounding, which is shown with it, counts."""
    before = np.array([[-1.0, 4.0], [1.0, 6.0]])
    after = before + np.array([[0.0, 0.05], [-0.02, 0.0]])
    proven = Certificate("range", (OutputBound("y", bound),), rounding)
    found = proven.beside([before], [after])
    (output,) = found.outputs
    assert output.spread == pytest.approx(1.0, rel=1e-12)
    assert output.measured_max == pytest.approx(0.05, rel=1e-9)
    assert output.bound == bound
    assert output.useful == useful


def test_without_a_run_every_bound_counts() -> None:
    assert OutputBound("y", 1e9).useful
