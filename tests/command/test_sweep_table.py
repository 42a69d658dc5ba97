"""What `sweep` prints at the end."""

from __future__ import annotations

import pytest

from onnxfde.command.sweep_table import cells_of
from onnxfde.pages.sweep_rows import SweepRow


@pytest.mark.parametrize(
    ("change", "useful", "shown"),
    [(0.5, True, "0.5"), (2e5, False, "too loose"), (None, None, "–")],
)
def test_a_bound_that_says_nothing_is_called_too_loose(
    change: float | None, useful: bool | None, shown: str
) -> None:
    row = SweepRow("net", "50%", certified_change=change, certified_useful=useful)
    assert cells_of(row)["proven"] == shown
