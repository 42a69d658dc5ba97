"""`onnxfde verify`: run two models on the same inputs and compare them."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from onnxfde.command.arguments import DataFile, InputRange, Json, range_of


def verify_command(
    model: Annotated[Path, typer.Argument(metavar="A", help="The original model.")],
    other: Annotated[
        Path, typer.Argument(metavar="B", help="The model to compare with it, .onnx or .ort.")
    ],
    data: DataFile = None,
    input_range: InputRange = None,
    tolerance: Annotated[
        float | None,
        typer.Option(metavar="R", help="Exit with 1 if the relative L2 error is larger."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Run A and B on the same inputs and measure how far apart they are."""
    from onnxfde import pipeline
    from onnxfde.command.progress_bar import progress_bar
    from onnxfde.command.report_table import show_verification
    from onnxfde.command.terminal import console

    limits = range_of(input_range)
    with progress_bar(as_json) as progress:
        found = pipeline.verify(model, other, data=data, input_range=limits, progress=progress)
    if as_json:
        typer.echo(json.dumps(asdict(found), indent=2, ensure_ascii=False))
    else:
        show_verification(console(), found)
    if found.unverified:
        raise typer.Exit(1)
    error = found.max_abs_error if found.relative_l2 is None else found.relative_l2
    if tolerance is not None and not (error or 0.0) <= tolerance:
        typer.echo(f"onnxfde: the error {error:.3g} exceeds the tolerance {tolerance:g}", err=True)
        raise typer.Exit(1)
