"""`--json FILE` of all commands: strict JSON in a file, or alone on stdout."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from onnxfde.errors import OutputError, UsageError, after_writing

STDOUT = Path("-")
"""What --json takes for standard output."""
JSON_HELP = "Write all figures as JSON to FILE; - for stdout, instead of the table."
JsonFile = Annotated[
    Path | None, typer.Option("--json", metavar="FILE", help=JSON_HELP, readable=False)
]


REPORT_STARTS = {"--json": (b"{", "JSON"), "--html": (b"<", "HTML")}
"""What files with reports begin with, by option."""


def refuse_outputs(
    models: Iterable[Path],
    data: Path | None,
    json_file: Path | None,
    out: Path | None = None,
    html_file: Path | None = None,
) -> None:
    """Refuse, before any work, files that cannot be written or must not be overwritten."""
    from onnxfde.graph.files import check_target
    from onnxfde.graph.overwriting import (
        InputFiles,
        refuse_overwriting,
        refuse_what_is_no_model,
    )

    if out == STDOUT:
        raise UsageError("OUT - : a model is written to a file, give its name")
    if html_file == STDOUT:
        raise UsageError("--html - : a page is written to a file, give its name")
    given = InputFiles(tuple(models), data)
    outputs = [] if out is None else [out]
    wanted = {"--json": None if json_file == STDOUT else json_file, "--html": html_file}
    reports = {option: file for option, file in wanted.items() if file is not None}
    for option, report in reports.items():
        if os.path.realpath(report) in map(os.path.realpath, outputs):
            raise UsageError(f"{option} {report} is another file of this run; choose another file")
        outputs.append(report)
    for target in outputs:
        check_target(target)
    refuse_overwriting(outputs, given, may_replace=out)
    if out is not None:
        refuse_what_is_no_model(out)
    for option, report in reports.items():
        refuse_what_is_no_report(option, report)


def refuse_what_is_no_report(option: str, target: Path) -> None:
    """Refuse to replace a file that no command of ours can have written."""
    if not target.exists():
        return
    try:
        with target.open("rb") as stream:
            start = stream.read(1)
    except OSError as error:
        raise OutputError(f"{option} {target} cannot be read ({error.strerror})") from None
    first, kind = REPORT_STARTS[option]
    if start not in (b"", first):
        raise UsageError(f"{option} {target} exists and is not {kind}; choose another file")


def write_json(target: Path | None, text: str, written: Path | None = None) -> None:
    """Write JSON to a file or to stdout, None writes nothing; `written` is what is done already."""
    if target == STDOUT:
        write_to_stdout(text, written)
    elif target is not None:
        from onnxfde.graph.drafts import write_text

        write_text(target, text)


def write_to_stdout(text: str, written: Path | None) -> None:
    """Write JSON to stdout."""
    from onnxfde.report import escaped

    with after_writing(written):
        sys.stdout.write(escaped(text, sys.stdout.encoding or "ascii"))
        sys.stdout.flush()
