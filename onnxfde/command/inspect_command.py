"""`onnxfde inspect`: show the layers of a model and what could be merged."""

from __future__ import annotations

from dataclasses import asdict

from onnxfde.command.arguments import (
    DataFile,
    In,
    InputNames,
    InputRange,
    Labels,
    Preprocess,
    Quiet,
    Verbose,
    parse_names,
    range_of,
    remark_on_range,
)
from onnxfde.command.interruption import interruptible
from onnxfde.command.json_output import (
    STDOUT,
    JsonFile,
    refuse_outputs,
    write_json,
)
from onnxfde.command.quick_imports import importing
from onnxfde.threads import spare_threads


def inspect_command(
    model: In,
    data: DataFile = None,
    preprocess: Preprocess = None,
    inputs: InputNames = None,
    labels: Labels = None,
    input_range: InputRange = None,
    json_file: JsonFile = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Show the layers of a model and how far they would shrink.

    Prints one row per layer, then what is left alone and why.
    """
    spare_threads(model)
    with importing():
        from onnxfde import inspection
        from onnxfde.command.inspection_table import show_inspection
        from onnxfde.command.progress_bar import progress_bar
        from onnxfde.report import strict_json, versioned

    with interruptible(json_file):
        refuse_outputs((model,), data, json_file)
        limits = None if input_range is None else range_of(input_range)
        names = parse_names(inputs)
        with progress_bar(quiet, verbose) as progress, progress.timed("inspect"):
            found = inspection.inspect(
                model,
                data=data,
                preprocess=preprocess or (),
                inputs=names,
                labels=labels,
                input_range=limits,
                progress=progress,
            )
        write_json(json_file, strict_json(versioned(asdict(found))))
    if not quiet and any(layer.kind == "dense" for layer in found.layers):
        remark_on_range(data, input_range)
    if not quiet and json_file != STDOUT:
        show_inspection(found, progress.seconds if verbose else {})
