"""`onnxfde demo`: optimize a small network that ships with the package."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def demo_command(
    eps: Annotated[float, typer.Option(help="Allowed relative change of a layer's output.")] = 0.1,
    save: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Keep the model, its data and the result here; created if it does not exist.",
        ),
    ] = None,
) -> None:
    """Optimize a small network that ships with onnxfde and show the report."""
    from onnxfde import pipeline
    from onnxfde.command.report_table import show_report
    from onnxfde.demo import demo_data, demo_model
    from onnxfde.graph import files

    if save is not None:
        files.make_folder(save)
    result = pipeline.optimize(demo_model(), eps, data=demo_data())
    if save is None:
        show_report(result.report, "", verbose=False)
        typer.echo("Try it yourself: onnxfde demo --save demo")
        return
    for file in (demo_model(), demo_data()):
        files.copy_file(file, save / file.name)
    target = save / "gly-small.onnx"
    show_report(result.save(target), str(target), verbose=False)
    typer.echo(
        f"Made with: onnxfde optimize {save}/gly.onnx {target} --eps {eps:g} --data {save}/gly.npz"
    )
