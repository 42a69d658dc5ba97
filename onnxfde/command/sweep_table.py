"""What `sweep` prints: one row for each model and size."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from onnxfde.command.tables import UNKNOWN, Grid, show_first_that_fits
from onnxfde.command.terminal import console, print_line
from onnxfde.estimates import interval_text
from onnxfde.pages.sweep_pages import ModelSweep
from onnxfde.pages.sweep_rows import SweepRow
from onnxfde.pages.words import TOO_LOOSE

ALL_COLUMNS = ("model", "size", "parameters", "mult-adds", "error", "score", "proven", "ms")
"""What is shown in a wide terminal."""
SWEEP_COLUMNS = tuple(name for name in ALL_COLUMNS if name != "mult-adds")
FEW_COLUMNS = ("model", "size", "parameters", "error")
"""What is shown in a narrow terminal."""


def show_sweep(models: Sequence[ModelSweep]) -> None:
    """Print all rows, then what failed."""
    out = console()
    rows = [[cells_of(row) for row in one.rows if row.failure is None] for one in models]
    groups = [group for group in rows if group]
    if groups:
        grids = [
            Grid(columns, [[tuple(row[c] for c in columns) for row in group] for group in groups])
            for columns in (ALL_COLUMNS, SWEEP_COLUMNS, FEW_COLUMNS)
        ]
        show_first_that_fits(out, *([grid] for grid in grids))
    for one in models:
        for reason, sizes in one.reasons.items():
            print_line(out, f"{one.name} {', '.join(sizes)}: {reason}")


def cells_of(row: SweepRow) -> dict[str, str]:
    """What is shown of a row, by column."""

    def shown(value: float | None, form: Callable[[float], str]) -> str:
        return UNKNOWN if value is None else form(value)

    return {
        "model": row.model,
        "size": row.size,
        "parameters": shown(row.parameters, "{:,}".format),
        "mult-adds": shown(row.multiply_adds, "{:,}".format),
        "error": shown(row.relative_l2, "{:.2g}".format)
        + interval_text(row.interval("relative_l2")),
        "score": shown(row.metric_value, "{:.4g}".format)
        + interval_text(row.interval("metric"), "{:.3g}".format),
        "proven": TOO_LOOSE
        if row.certified_useful is False
        else shown(row.certified_change, "{:.2g}".format),
        "ms": shown(row.latency_ms, "{:.3g}".format),
    }
