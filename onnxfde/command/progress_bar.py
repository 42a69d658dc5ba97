"""The bar on stderr that shows what is being worked on."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from onnxfde.command.terminal import console
from onnxfde.progress import Progress


@contextmanager
def progress_bar(quiet: bool) -> Iterator[Progress]:
    """Show a bar while the work lasts, but only on a terminal."""
    if quiet or not sys.stderr.isatty():
        yield Progress()
        return
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    name = TextColumn("{task.description}", markup=False)
    columns = (name, BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Bar(*columns, console=console(stderr=True), transient=True) as bar:
        task = bar.add_task("reading", total=None)
        yield Progress(
            say=lambda text: bar.reset(task, description=text, total=None),
            at=lambda done, total: bar.update(task, completed=done, total=total),
        )
