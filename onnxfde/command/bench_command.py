"""`onnxfde bench`: measure models side by side on one or several machines."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from onnxfde.command.arguments import Quiet, parse_batches, parse_shape, range_of
from onnxfde.errors import UsageError

if TYPE_CHECKING:
    from onnxfde.machines.results import Comparison

STDOUT = "-"
"""What --json takes for standard output."""
TargetOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="TARGET",
        help="cpu (this machine), arm64[:cortex-a53|-a72|-a76] (instructions; default "
        "a76), or ssh://user@host[:port][/path/to/python3]; repeatable. [default: cpu]",
    ),
]
ShapeOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME:1,3,224,224",
        help="Shape of an input with free axes (repeatable); --batch replaces the first length.",
    ),
]


def bench_command(
    models: Annotated[
        list[Path],
        typer.Argument(metavar="MODEL", help=".onnx or .ort; compared with the first."),
    ],
    target: TargetOption = None,
    batch: Annotated[
        str | None, typer.Option(metavar="N,N", help="Batch sizes, e.g. 1,32. [default: 1]")
    ] = None,
    threads: Annotated[int, typer.Option(metavar="N", help="Threads of onnxruntime.")] = 1,
    seconds: Annotated[
        float, typer.Option(metavar="S", help="Measuring time per batch size.")
    ] = 3.0,
    timeout: Annotated[
        float, typer.Option(metavar="S", help="Give up on a target after this time.")
    ] = 600.0,
    shape: ShapeOption = None,
    data: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Inputs: .npz with one array per input, or .npy."),
    ] = None,
    input_range: Annotated[
        str | None,
        typer.Option(metavar="LO:HI", help="Range of random inputs. [default: -1:1]"),
    ] = None,
    json_file: Annotated[
        Path | None,
        typer.Option("--json", metavar="FILE", help="Write all figures as JSON; - for stdout."),
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Measure models side by side: latency, memory and size, here and on ARM."""
    from onnxfde.command.progress_bar import progress_bar
    from onnxfde.graph import files
    from onnxfde.machines.benchmark import bench

    if json_file is not None and str(json_file) != STDOUT:
        files.check_target(json_file)
        refuse_other_than_json(json_file)
    with progress_bar(quiet) as progress:
        found = bench(
            models,
            targets=target or ["cpu"],
            batches=parse_batches(batch),
            threads=threads,
            seconds=seconds,
            timeout=timeout,
            shapes=dict(map(parse_shape, shape or [])),
            data=data,
            input_range=range_of(input_range),
            progress=progress,
        )
    report_comparison(found, json_file, quiet)
    if found.failed:
        raise typer.Exit(1)


def report_comparison(found: Comparison, json_file: Path | None, quiet: bool) -> None:
    """Write the JSON, if wanted, and print the table, or only errors if no table is wanted."""
    from onnxfde.command.bench_table import errors, show_comparison
    from onnxfde.graph import files

    printed = str(json_file) == STDOUT
    if printed:
        typer.echo(found.to_json(), nl=False)
    elif json_file is not None:
        files.write_text(json_file, found.to_json())
    if not (printed or quiet):
        show_comparison(found)
    for text in errors(found) if printed or quiet else ():
        typer.echo(f"onnxfde: {text}", err=True)


def refuse_other_than_json(file: Path) -> None:
    """Refuse to overwrite a file that is not JSON, such as a model or its weights."""
    if file.is_file():
        with file.open("rb") as stream:
            if stream.read(1) not in (b"", b"{"):
                raise UsageError(f"--json {file} exists and is not JSON; choose another file")
