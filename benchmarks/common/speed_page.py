"""The page of `benchmarks.speed`: what was measured, kept as JSON lines, and judged by the bars."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.common import table
from benchmarks.common.speed_models import CannotMakeError
from benchmarks.common.speed_rows import GROWTH, ROWS, Bar, Row

NOT_THERE = "not measured"
Figures = dict[str, Any]
"""What is known of a run, ready for JSON."""


class Records:
    """What was measured, one JSON line per row; the last line of a row counts."""

    def __init__(self, folder: Path) -> None:
        """Read what is there."""
        self.path = folder / "results.jsonl"
        lines = self.path.read_text().splitlines() if self.path.exists() else []
        self.by_name: dict[str, dict[str, Any]] = {}
        for line in lines:
            self.by_name[json.loads(line)["row"]] = json.loads(line)

    def keep(self, name: str, measure: Callable[[], dict[str, Figures]], note: str) -> None:
        """Measure a row and write down what came out, or why it was skipped."""
        record: dict[str, Any] = {"row": name, "note": note}
        try:
            record["sides"] = measure()
        except (CannotMakeError, subprocess.CalledProcessError, FileNotFoundError) as reason:
            record |= {"sides": {}, "skipped": str(reason)}
        self.by_name[name] = record
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a") as stream:
            stream.write(json.dumps(record) + "\n")

    def sides(self, name: str) -> dict[str, Figures]:
        """The figures of a row by side."""
        return dict(self.by_name.get(name, {}).get("sides", {}))


def cell(row: Row, found: Figures | None) -> str:
    """What one side took, and what it got for it."""
    if found is None:
        return NOT_THERE
    if "failed" in found:
        return str(found["failed"])
    shown = {bar.quantity for bar in row.bars} - {"neurons"}
    parts = []
    if "u" in shown:
        parts.append(f"{found['u']:.1f} u ({found['phase']:.1f} s, u {found['unit']:.2f} s)")
    if "cpu" in shown:
        parts.append(f"{found['cpu']:.2f} s")
    if shown & {"gb", "files"}:
        parts.append(f"{found['gb']:.2f} GB")
    if "files" in shown:
        parts.append(f"{found['files']:.2f} × the file")
    if "neurons" in found and found.get("of"):
        error = "" if found.get("error") is None else f", error {found['error']:.3g}"
        parts.append(f"{found['of']:.0f} → {found['neurons']:.0f} neurons{error}")
    return "; ".join(parts) + (" (noisy)" if found["noisy"] else "")


def verdict(row: Row, sides: dict[str, Figures]) -> str:
    """Whether all bars are kept."""
    after = sides.get("after")
    if after is None:
        return "–"
    if "failed" in after:
        return "short"
    judged = [(bar, holds(bar, after, sides)) for bar in row.bars]
    missed = [bar.text for bar, kept in judged if kept is False]
    open_ones = [bar.text for bar, kept in judged if kept is None]
    text = f"short of {' and '.join(missed)}" if missed else "pass"
    return text + (f" ({' and '.join(open_ones)}: {NOT_THERE})" if open_ones else "")


def holds(bar: Bar, after: Figures, sides: dict[str, Figures]) -> bool | None:
    """Whether a bar is kept; None if what it is compared with was not measured."""
    other = sides.get(bar.times) if bar.times else {bar.quantity: 1.0}
    if other is None or "failed" in other or bar.quantity not in other:
        return None
    return bool(after[bar.quantity] <= bar.limit * other[bar.quantity])


def table_row(row: Row, sides: dict[str, Figures], skipped: str | None) -> tuple[str, ...]:
    """A line of the table."""
    quoted = f"{row.today} (quoted)"
    before = cell(row, sides["before"]) if "before" in sides else quoted
    after = f"skipped: {skipped}" if skipped else cell(row, sides.get("after"))
    if row.beside and row.beside in sides:
        after += f"; {row.beside} {cell(row, sides[row.beside])}"
    return row.what, before, after, ", ".join(b.text for b in row.bars), verdict(row, sides)


def growth_cell(found: Figures | None) -> str:
    """Both exponents."""
    return "–" if found is None else f"n^{found['n']:.2f}, d^{found['d']:.2f}"


def sections(records: Records) -> Iterator[table.Section]:
    """Both tables of the page."""
    rows = [
        table_row(row, records.sides(row.name), records.by_name.get(row.name, {}).get("skipped"))
        for row in ROWS
    ]
    yield table.Section("Whole commands", "what | before | after | bar | verdict", rows)
    growth = [
        (row.what, *(growth_cell(records.sides(row.name).get(s)) for s in ("before", "after")),
         f"{row.by_neurons[0]} … {row.by_neurons[-1]}, {row.by_inputs[0]} … {row.by_inputs[-1]}")
        for row in GROWTH
    ]  # fmt: skip
    yield table.Section("Growth of the phase", "what | before | after | sizes", growth)


def note(records: Records) -> str:
    """What the columns mean."""
    notes = sorted({record["note"] for record in records.by_name.values()})
    when = [notes[0], f"Of all lines, at most: {notes[-1]}"] if len(notes) > 1 else notes
    return (
        "u: one float64 product W Wᵀ of the layer's incoming weights with as many threads as the "
        "command may use. Phase: `seconds.partition` of the report; with one thread, times the "
        "share of the run in which the command had a processor. Other seconds are CPU time (user "
        "and system), GB peak memory of the whole command. Before and after run in turns; u is "
        "taken before and after each line, which is repeated if they differ by more than 15 %, and "
        '"noisy" if they still do the fourth time. "Quoted": measured by hand earlier, because the '
        "code before takes too long or too much memory.\n\n" + "\n".join(when)
    )
