"""One line on a terminal: layer, phase, a bar, steps, the best found so far, and the time.

The bar only moves forward within a phase. Where nobody knows how many steps there are, it runs to
and fro, and the time shows that work goes on.
"""

from __future__ import annotations

import time

from rich.progress import BarColumn, ProgressColumn, Task, TextColumn
from rich.progress import Progress as Bar
from rich.text import Text

from onnxfde.errors import without_controls

BAR_WIDTH = 20
"""Columns of the bar. Chosen: half of rich's, so that a name and a count fit beside it."""


class ElapsedColumn(ProgressColumn):
    """Seconds since the beginning of the whole work, not of a phase."""

    def __init__(self) -> None:
        """Begin to count."""
        super().__init__()
        self.start = time.monotonic()

    def render(self, task: Task) -> Text:
        """The time, in whole seconds."""
        del task
        return Text(f"{time.monotonic() - self.start:.0f} s")


class TerminalBar:
    """Receives what a `Progress` reports, and shows it with rich."""

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(BAR_WIDTH),
        TextColumn("{task.fields[steps]}", markup=False),
        TextColumn("{task.fields[found]}", markup=False),
    )

    def __init__(self, bar: Bar) -> None:
        """Show that a file is being read, which is how every command begins."""
        self.bar, self.layer, self.phase = bar, "", "reading"
        bar.add_task(self.phase, total=None, steps="", found="")
        self.task = bar.tasks[-1]

    def on_layer(self, text: str) -> None:
        """Begin a layer."""
        self.layer, self.phase = text, ""
        self.restart()

    def on_phase(self, text: str) -> None:
        """Begin a phase, unless it is the present one."""
        if text != self.phase:
            self.phase = text
            self.restart()

    def restart(self) -> None:
        """Show a new layer or phase, of which nothing is done."""
        parts = (self.layer, self.phase)
        self.task.total, self.task.completed, self.task.finished_time = None, 0, None
        shown = without_controls(" · ".join(filter(None, parts)))
        self.bar.update(self.task.id, description=shown, steps="", found="")

    def at(self, done: int, total: int) -> None:
        """Move on; a smaller share than the one that is shown is ignored."""
        shown = self.task.completed / self.task.total if self.task.total else 0.0
        if total and done / total >= shown:
            self.bar.update(self.task.id, completed=done, total=total, steps=f"{done}/{total}")

    def found(self, text: str) -> None:
        """Show what was tried and the best so far."""
        self.bar.update(self.task.id, found=without_controls(text))
