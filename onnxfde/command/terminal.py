"""Where output goes: a console of the right width, and lines that end between words."""

from __future__ import annotations

import os
import sys
import textwrap

from rich.console import Console

from onnxfde.errors import without_controls

PLAIN_WIDTH = 100
"""Columns if the output goes to a file or a pipe. Chosen: wide enough for one table of most models,
narrow enough to read in a log; not tuned."""
LABEL_WIDTH = 12
"""Columns of the word that some lines begin with, such as "parameters"."""


def console(stderr: bool = False) -> Console:
    """A console as wide as the terminal, without colours if NO_COLOR is set."""
    stream = sys.stderr if stderr else sys.stdout
    return Console(
        stderr=stderr,
        width=None if stream.isatty() else PLAIN_WIDTH,
        highlight=False,
        color_system=None if os.environ.get("NO_COLOR") else "auto",
    )


def print_line(out: Console, text: str) -> None:
    """Print text as one line, without escapes; on a terminal, it is broken between words."""
    text = without_controls(text)
    if out.is_terminal:
        labelled = text[LABEL_WIDTH - 2 : LABEL_WIDTH] == "  "
        text = textwrap.fill(
            text,
            out.width,
            subsequent_indent=" " * (LABEL_WIDTH if labelled else 2),
            break_long_words=False,
            break_on_hyphens=False,
        )
    out.print(text, markup=False, soft_wrap=True)
