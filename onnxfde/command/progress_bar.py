"""What is being worked on, on stderr: a bar on a terminal, elsewhere one line per layer.

Of a layer that takes long there are more lines.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from onnxfde.command.ascii_fallback import say
from onnxfde.errors import without_controls
from onnxfde.progress import Progress

SAID_AFTER = 10.0
"""Seconds without a line after which one says how far a layer is. Chosen; not tuned."""


@contextmanager
def progress_bar(quiet: bool, verbose: bool = False) -> Iterator[Progress]:
    """Show a bar on a terminal while the work lasts; elsewhere lines, and steps if verbose."""
    if quiet:
        yield Progress()
    elif not sys.stderr.isatty():
        steps = Progress(say=say_line, note=say_line, layer=say_line)
        lines = SlowLines()
        quick = Progress(note=say_line, layer=lines.on_layer, found=lines.on_found)
        yield steps if verbose else quick
    else:
        with terminal_progress() as progress:
            yield progress


class SlowLines:
    """Says from time to time how far a layer is."""

    def __init__(self) -> None:
        """Begin to wait."""
        self.layer, self.last = "", time.monotonic()

    def on_layer(self, text: str) -> None:
        """Begin a layer."""
        self.layer, self.last = text, time.monotonic()

    def on_found(self, text: str) -> None:
        """Say what was tried and the best so far, unless something was said lately."""
        now = time.monotonic()
        if now - self.last >= SAID_AFTER:
            self.last = now
            say_line(f"{self.layer}: {text}")


def say_line(text: str) -> None:
    """Print one line on stderr, whatever a text quotes; nothing if it is empty."""
    if text:
        say(without_controls(text), err=True)


@contextmanager
def terminal_progress() -> Iterator[Progress]:
    """A bar that disappears at the end."""
    from rich.progress import Progress as Bar

    from onnxfde.command.terminal import console
    from onnxfde.command.terminal_bar import ElapsedColumn, TerminalBar

    columns = (*TerminalBar.columns, ElapsedColumn())
    with Bar(*columns, console=console(stderr=True), transient=True) as bar:
        shown = TerminalBar(bar)
        yield Progress(say=shown.on_phase, at=shown.at, found=shown.found, layer=shown.on_layer)
