"""What an interrupted command (Ctrl-C) says, and its exit code."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import typer

from onnxfde.command.ascii_fallback import say
from onnxfde.command.json_output import STDOUT

INTERRUPTED = 130
"""The exit code of an interrupted command: 128 + SIGINT, as shells count."""


@contextmanager
def interruptible(*targets: Path | None) -> Iterator[None]:
    """End in one line when interrupted, which says whether any of the targets was written.

    A KeyboardInterrupt may have a text that says what else is kept.
    """
    files = [target for target in targets if target is not None and target != STDOUT]
    before = [state_of(file) for file in files]
    try:
        yield
    except BaseException as error:
        cause = interruption_behind(error)
        if cause is None:
            raise
        written = [str(f) for f, old in zip(files, before, strict=True) if state_of(f) != old]
        after = f" after writing {', '.join(written)}" if written else ", nothing written"
        kept = f"; {cause}" if str(cause) else ""
        say(f"onnxfde: interrupted{after if files else kept}", err=True)
        raise typer.Exit(INTERRUPTED) from None


def interruption_behind(error: BaseException | None) -> KeyboardInterrupt | None:
    """The Ctrl-C that an exception comes from, which libraries may turn into an ImportError."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return error


def state_of(file: Path) -> tuple[int, int] | None:
    """What changes when a file is replaced; None if there is no such file."""
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns
