"""What is being worked on, on stderr: a bar on a terminal, lines elsewhere if wanted."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from onnxfde.command.ascii_fallback import say
from onnxfde.progress import Progress


@contextmanager
def progress_bar(quiet: bool, verbose: bool = False) -> Iterator[Progress]:
    """Show a bar on a terminal while the work lasts; elsewhere one line per step if verbose."""
    if quiet or not sys.stderr.isatty():
        tell = Progress(say=lambda text: say(text, err=True)) if verbose else Progress()
        yield Progress() if quiet else tell
        return
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    from onnxfde.command.terminal import console

    name = TextColumn("{task.description}", markup=False)
    columns = (name, BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Bar(*columns, console=console(stderr=True), transient=True) as bar:
        task = bar.add_task("reading", total=None)
        yield Progress(
            say=lambda text: bar.reset(task, description=text, total=None),
            at=lambda done, total: bar.update(task, completed=done, total=total),
        )
