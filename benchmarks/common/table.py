"""Markdown tables, printed and written next to the script that made them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, eq=False)
class Section:
    """A table; its heading is empty where the page has only this one."""

    heading: str
    header: str
    rows: Iterable[Iterable[object]]

    def text(self) -> str:
        """The section as markdown."""
        names = self.header.split("|")
        body = [names, ["---"] * len(names), *([str(cell) for cell in row] for row in self.rows)]
        table = "\n".join(f"| {' | '.join(cell.strip() for cell in row)} |" for row in body)
        return f"## {self.heading}\n\n{table}" if self.heading else table


def write(script: str, title: str, header: str, rows: Iterable[Iterable[object]]) -> None:
    """Print a table and write it to `<script>.md`, with the command that makes it."""
    write_sections(script, title, [Section("", header, rows)])


def write_sections(script: str, title: str, sections: Iterable[Section], note: str = "") -> None:
    """Print tables and write them to `<script>.md`, with the command that makes them."""
    found = text(script, title, sections, note)
    Path(script).with_suffix(".md").write_text(found)
    print(found)


def text(script: str, title: str, sections: Iterable[Section], note: str = "") -> str:
    """The page: title, command, note and tables."""
    made = f"Made by `python -m benchmarks.{Path(script).stem}`."
    parts = [f"# {title}", made, *([note] if note else []), *(s.text() for s in sections)]
    return "\n\n".join(parts) + "\n"
