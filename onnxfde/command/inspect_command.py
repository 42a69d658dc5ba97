"""`onnxfde inspect`: show the layers of a model and what could be merged."""

from __future__ import annotations

import json
from dataclasses import asdict

import typer

from onnxfde.command.arguments import DataFile, In, InputRange, Json, range_of, remark_on_range


def inspect_command(
    model: In,
    data: DataFile = None,
    input_range: InputRange = None,
    as_json: Json = False,
) -> None:
    """Show the layers of IN, how many neurons merging would leave, and what is left alone."""
    from onnxfde import inspection
    from onnxfde.command.inspection_table import show_inspection
    from onnxfde.command.progress_bar import progress_bar

    limits = range_of(input_range)
    with progress_bar(as_json) as progress:
        found = inspection.inspect(model, data=data, input_range=limits, progress=progress)
    if as_json:
        typer.echo(json.dumps(asdict(found), indent=2, ensure_ascii=False))
        return
    remark_on_range(data, input_range)
    show_inspection(found)
