"""Tables without vertical lines, in the first layout that fits the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.box import SIMPLE_HEAD, Box
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from onnxfde.command.ascii_fallback import spelled
from onnxfde.errors import without_controls

ASCII_HEAD = Box("    \n    \n -- \n" + 5 * "    \n", ascii=True)
"""SIMPLE_HEAD, for terminals that have only ASCII."""
UNLIMITED = 1000
"""Width in characters of a table that goes to a file. Chosen: wider than any table."""
NARROWEST_NAME = 12
"""Characters that the names in the first column get at least, however narrow the terminal. Chosen;
not tuned."""
ARROW = " → "
"""Between a number before and after; a cell that has it may be broken into two lines."""
UNKNOWN = "–"

Cells = tuple[str, ...]


@dataclass(frozen=True)
class Grid:
    """The text of a table: names in the first column, numbers in the others."""

    columns: Cells
    sections: Sequence[Sequence[Cells]]
    """Rows, in groups with a line between them."""

    def table(self, out: Console) -> Table:
        """The table in characters that the console can show."""
        rows = [row for section in self.sections for row in section]
        box = ASCII_HEAD if out.options.ascii_only else SIMPLE_HEAD
        table = Table(box=box, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
        for i, column in enumerate(self.columns):
            breakable = i == 0 or any(ARROW in row[i] for row in rows)
            table.add_column(
                spelled(column, out.encoding),
                justify="right" if i else "left",
                no_wrap=not breakable,
                overflow="fold",
                min_width=None if i else NARROWEST_NAME,
            )
        for section in self.sections:
            for row in section:
                plain = map(without_controls, row)
                table.add_row(*(Text(spelled(cell, out.encoding)) for cell in plain))
            table.add_section()
        return table


def show_first_that_fits(out: Console, *layouts: Sequence[Grid]) -> None:
    """Print the tables of the first layout that fits the terminal, else those of the last one."""
    unlimited = out.options.update(width=UNLIMITED)
    for layout in layouts:
        tables = [grid.table(out) for grid in layout]
        widest = max(Measurement.get(out, unlimited, table).maximum for table in tables)
        if widest <= out.width or layout is layouts[-1]:
            for table in tables:
                out.print(table)
                out.print()
            return


def before_and_after(before: int, after: int) -> str:
    """A number before and after, or once if it did not change."""
    return f"{before:,}{ARROW}{after:,}" if before != after else f"{before:,}"
