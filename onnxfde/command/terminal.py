"""Where output goes: a console of the right width, and lines printed as they are."""

from __future__ import annotations

import sys

from rich.console import Console

PLAIN_WIDTH = 140
"""Columns if the output goes to a file or a pipe. Chosen: wide enough for the tables of most
models; not tuned."""


def console(stderr: bool = False) -> Console:
    """A console that does not cut tables when its output goes to a file."""
    stream = sys.stderr if stderr else sys.stdout
    return Console(stderr=stderr, width=None if stream.isatty() else PLAIN_WIDTH, highlight=False)


def print_line(out: Console, text: str) -> None:
    """Print one line of text without markup or wrapping."""
    out.print(text, markup=False, soft_wrap=True)
