"""What `sweep` prints at the end."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console

from onnxfde.command.sweep_table import cells_of, show_sweep
from onnxfde.pages.sweep_pages import ModelSweep
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


@pytest.mark.parametrize(("width", "shown"), [(100, True), (60, False)])
def test_a_wide_terminal_shows_the_work_of_each_size(
    monkeypatch: pytest.MonkeyPatch, width: int, shown: bool
) -> None:
    screen = Console(file=StringIO(), width=width)
    monkeypatch.setattr("onnxfde.command.sweep_table.console", lambda: screen)
    row = SweepRow("net", "50%", 10_000, multiply_adds=1_234_567, file="net/50-percent.onnx")
    show_sweep([ModelSweep("net", "net.onnx", "params", (row,))])
    assert isinstance(screen.file, StringIO)
    lines = screen.file.getvalue()
    assert "10,000" in lines
    assert ("mult-adds" in lines and "1,234,567" in lines) == shown


def test_a_reason_is_printed_once_for_each_model(capsys: pytest.CaptureFixture[str]) -> None:
    reasons = {"75%": "no data", "50%": "no data", "1%": "too few"}
    done = [
        ModelSweep(
            name, f"{name}.onnx", "params",
            tuple(SweepRow(name, size, failure=reason) for size, reason in reasons.items()),
        )
        for name in ("a", "b")
    ]  # fmt: skip
    show_sweep(done)
    assert capsys.readouterr().out.splitlines() == [
        "a 75%, 50%: no data",
        "a 1%: too few",
        "b 75%, 50%: no data",
        "b 1%: too few",
    ]
