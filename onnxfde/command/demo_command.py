"""`onnxfde demo`: optimize a small network that ships with the package."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from onnxfde.command.arguments import Quiet, Verbose
from onnxfde.command.ascii_fallback import say
from onnxfde.command.interruption import interruptible

if TYPE_CHECKING:
    from onnxfde.optimization import Result
    from onnxfde.report import Report

SMALL = "gly-small.onnx"
"""The name of the result."""


def demo_command(
    eps: Annotated[
        float, typer.Option(metavar="EPS", help="Allowed relative change of a layer's output.")
    ] = 0.1,
    save: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Keep the model, its data and the result here; created if it does not exist.",
        ),
    ] = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Optimize a small network that ships with onnxfde.

    The help of optimize explains what is printed.
    """
    from onnxfde import pipeline
    from onnxfde.command.progress_bar import progress_bar
    from onnxfde.command.report_table import show_report
    from onnxfde.demo import demo_data, demo_model
    from onnxfde.graph.files import make_folder
    from onnxfde.graph.overwriting import InputFiles, refuse_overwriting

    with interruptible(save and save / SMALL):
        if save is not None:
            make_folder(save)
            copies = [save / file.name for file in (demo_model(), demo_data())]
            refuse_overwriting([*copies, save / SMALL], InputFiles((demo_model(),), demo_data()))
        with progress_bar(quiet, verbose) as progress:
            result = pipeline.optimize(demo_model(), eps, data=demo_data(), progress=progress)
        report = result.report if save is None else saved(result, save)
    if quiet:
        return
    show_report(report, "" if save is None else str(save / SMALL), verbose)
    if save is None:
        say(f"Try it yourself: {program()} demo --save demo")
    else:
        model, data = (save / file.name for file in (demo_model(), demo_data()))
        options = f"--eps {eps:g} --data {data}"
        say(f"Made with: {program()} optimize {model} {save / SMALL} {options}")


def saved(result: Result, folder: Path) -> Report:
    """Write the model, its data and the result; returns the completed report."""
    from onnxfde.demo import demo_data, demo_model
    from onnxfde.graph.staging import copy_file

    for file in (demo_model(), demo_data()):
        copy_file(file, folder / file.name)
    return result.save(folder / SMALL)


def program() -> str:
    """How to call onnxfde from the shell this process was started in."""
    if shutil.which("onnxfde"):
        return "onnxfde"
    called = Path(sys.argv[0])
    return str(called) if called.stem == "onnxfde" else f"{sys.executable} -m onnxfde"
