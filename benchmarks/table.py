"""Markdown tables, printed and kept next to the script that made them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path


def write(script: str, title: str, header: str, rows: Iterable[Iterable[object]]) -> None:
    """Print a table and write it to `<script>.md`, with the command that makes it."""
    names = header.split("|")
    body = [names, ["---"] * len(names), *([str(cell) for cell in row] for row in rows)]
    table = "\n".join(f"| {' | '.join(cell.strip() for cell in row)} |" for row in body)
    path = Path(script)
    text = f"# {title}\n\nMade by `python -m benchmarks.{path.stem}`.\n\n{table}\n"
    path.with_suffix(".md").write_text(text)
    print(text)
