"""`onnxfde verify`: run two models on the same inputs and compare them."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from onnxfde.command.arguments import (
    DataFile,
    InputNames,
    InputRange,
    Labels,
    Preprocess,
    Quiet,
    Verbose,
    parse_names,
    parse_share,
    range_of,
)
from onnxfde.command.ascii_fallback import say
from onnxfde.command.interruption import interruptible
from onnxfde.command.json_output import (
    STDOUT,
    JsonFile,
    refuse_outputs,
    write_json,
)
from onnxfde.command.quick_imports import importing
from onnxfde.errors import UsageError


def verify_command(
    model: Annotated[
        Path, typer.Argument(metavar="A", help="The original model, an .onnx file.", readable=False)
    ],
    other: Annotated[
        Path,
        typer.Argument(
            metavar="B", help="The model to compare with it, .onnx or .ort.", readable=False
        ),
    ],
    data: DataFile = None,
    preprocess: Preprocess = None,
    inputs: InputNames = None,
    labels: Labels = None,
    input_range: InputRange = None,
    tolerance: Annotated[
        str | None,
        typer.Option(
            metavar="R",
            help="Exit with 1 if an output changes by more, 0.05 or 5%: by its relative L2 or, if "
            "it holds no floating-point numbers, by the share of entries that differ.",
        ),
    ] = None,
    json_file: JsonFile = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Run two models on the same inputs and compare their outputs.

    relative L2: the root mean square of the difference, divided by the spread (standard deviation)
    of the output of A; in brackets where it lies for all inputs of this kind, 19 times in 20. Each
    output is judged by itself. One that is the same for all rows must stay so, NaN and infinity
    must stand at the same places, and integers, booleans and texts must be equal unless --tolerance
    allows a share of them to differ.
    """
    with importing():
        from onnxfde import pipeline
        from onnxfde.command.inspection_table import show_times
        from onnxfde.command.progress_bar import progress_bar
        from onnxfde.command.terminal import console
        from onnxfde.command.verification_table import show_verification
        from onnxfde.report import strict_json, versioned

    most = parse_share(tolerance, "--tolerance", "a number such as 0.05, or 5%")
    if most is not None and not most >= 0:
        raise UsageError(f"--tolerance {tolerance} is not a number ≥ 0")
    with interruptible(json_file):
        refuse_outputs((model, other), data, json_file)
        limits, names = range_of(input_range), parse_names(inputs)
        with progress_bar(quiet, verbose) as progress, progress.timed("verify"):
            found = pipeline.verify(
                model,
                other,
                data=data,
                preprocess=preprocess or (),
                inputs=names,
                labels=labels,
                input_range=limits,
                progress=progress,
            )
        fault = found.beyond(most)
        verdict = {"tolerance": most, "passed": fault is None}
        write_json(json_file, strict_json(versioned(asdict(found) | verdict)))
    silent = quiet or json_file == STDOUT
    if not silent:
        show_verification(console(), found)
        show_times(console(), progress.seconds if verbose else {})
    if found.unverified and not silent:
        raise typer.Exit(1)
    if fault:
        say(f"onnxfde: {fault}", err=True)
        raise typer.Exit(1)
    if most is not None and not silent:
        say(f"within the tolerance {most:g}")
