"""`--json FILE` of all commands: strict JSON in a file, or alone on stdout."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from onnxfde.errors import UsageError

STDOUT = Path("-")
"""What --json takes for standard output."""
JSON_HELP = "Write all figures as JSON to FILE; - for stdout, instead of the table."
JsonFile = Annotated[
    Path | None, typer.Option("--json", metavar="FILE", help=JSON_HELP, readable=False)
]


def refuse_json_target(target: Path | None, taken: Iterable[Path | None] = ()) -> None:
    """Refuse, before any work, a file that cannot be written or should not be overwritten."""
    if target is None or target == STDOUT:
        return
    if target.resolve() in [file.resolve() for file in taken if file is not None]:
        raise UsageError(f"--json {target} is another file of this run; choose another file")
    from onnxfde.graph import files

    files.check_target(target)
    if target.is_file():
        with target.open("rb") as stream:
            if stream.read(1) not in (b"", b"{"):
                raise UsageError(f"--json {target} exists and is not JSON; choose another file")


def write_json(target: Path | None, text: str) -> None:
    """Write JSON to a file or to stdout; None writes nothing."""
    if target == STDOUT:
        typer.echo(escaped(text, sys.stdout.encoding or "ascii"), nl=False)
    elif target is not None:
        from onnxfde.graph import files

        files.write_text(target, escaped(text, "utf-8"))


def escaped(text: str, encoding: str) -> str:
    r"""JSON with escapes for the characters that an encoding does not have.

    >>> escaped('"ε"', "ascii")
    '"\\u03b5"'
    """
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return "".join(c if c.isascii() else json.dumps(c)[1:-1] for c in text)
    return text
