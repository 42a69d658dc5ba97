"""`onnxfde bench`: measure models side by side on one or several machines."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from onnxfde.command.arguments import (
    InputNames,
    Labels,
    Preprocess,
    Quiet,
    Verbose,
    parse_batches,
    parse_names,
    parse_shape,
    range_of,
)
from onnxfde.command.ascii_fallback import say
from onnxfde.command.interruption import interruptible
from onnxfde.command.json_output import STDOUT, JsonFile, refuse_outputs, write_json

if TYPE_CHECKING:
    from onnxfde.machines.results import Comparison

TargetOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="TARGET",
        help="cpu (this machine), arm64[:cortex-a53|-a72|-a76] (emulated, counts instructions; "
        "default a76), ssh://user@host[:port][/path/to/python3], tenseal[:batch|:vector] "
        "(encrypted, extra [he]) or ezkl (zero-knowledge proof, extra [zk]); repeatable. "
        "[default: cpu]",
    ),
]
ShapeOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME:1,3,224,224",
        help="Shape of an input with free axes (repeatable); --batch replaces the first length.",
    ),
]


Models = Annotated[
    list[Path],
    typer.Argument(metavar="MODEL", help=".onnx or .ort; compared with the first.", readable=False),
]


def bench_command(
    models: Models,
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
        typer.Option(
            metavar="PATH",
            help="Inputs: .npz with one array per input, .npy, or a folder of images.",
            readable=False,
        ),
    ] = None,
    preprocess: Preprocess = None,
    inputs: InputNames = None,
    labels: Labels = None,
    input_range: Annotated[
        str | None,
        typer.Option(metavar="LO:HI", help="Range of random inputs. [default: -1:1]"),
    ] = None,
    json_file: JsonFile = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Measure models side by side: time, memory and size.

    The models take turns, run by run, and are compared with the first one.
    """
    from onnxfde.command.inspection_table import show_times
    from onnxfde.command.progress_bar import progress_bar
    from onnxfde.command.terminal import console
    from onnxfde.machines.benchmark import bench

    with interruptible(json_file):
        refuse_outputs(models, data, json_file)
        with progress_bar(quiet, verbose) as progress, progress.timed("bench"):
            found = bench(
                models,
                targets=target or ["cpu"],
                batches=parse_batches(batch),
                threads=threads,
                seconds=seconds,
                timeout=timeout,
                shapes=dict(map(parse_shape, shape or [])),
                data=data,
                preprocess=preprocess or (),
                inputs=parse_names(inputs),
                labels=labels,
                input_range=range_of(input_range),
                progress=progress,
            )
        write_json(json_file, found.to_json())
    silent = quiet or json_file == STDOUT
    print_comparison(found, errors_only=silent)
    show_times(console(), progress.seconds if verbose and not silent else {})
    if found.failed:
        raise typer.Exit(1)


def print_comparison(found: Comparison, errors_only: bool) -> None:
    """Print the table, or errors on stderr if no table is wanted or no model could be read."""
    from onnxfde.command.bench_table import errors, show_comparison

    errors_only = errors_only or not found.readable
    if not errors_only:
        show_comparison(found)
    for text in errors(found) if errors_only else ():
        say(f"onnxfde: {text}", err=True)
