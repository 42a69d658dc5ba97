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
from onnxfde.demo import DemoName

if TYPE_CHECKING:
    from onnxfde.optimization import Result
    from onnxfde.report import Report


def demo_command(
    network: Annotated[
        DemoName,
        typer.Argument(
            metavar="[digits|gly]", help="digits: 64-128-64-10 with ReLU; gly: 7-120-7 with x²."
        ),
    ] = "digits",
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

    model, data = demo_model(network), demo_data(network)
    small = save and save / f"{network}-small.onnx"
    with interruptible(small):
        if save is not None and small is not None:
            make_folder(save)
            copies = [save / file.name for file in (model, data)]
            refuse_overwriting([*copies, small], InputFiles((model,), data))
        with progress_bar(quiet, verbose) as progress:
            result = pipeline.optimize(model, eps, data=data, progress=progress)
        report = result.report if small is None else saved(result, small, (model, data))
    if quiet:
        return
    show_report(report, "" if small is None else str(small), verbose)
    if save is None:
        say(f"Try it yourself: {program()} demo {network} --save demo")
    else:
        options = f"--eps {eps:g} --data {save / data.name}"
        say(f"Made with: {program()} optimize {save / model.name} {small} {options}")


def saved(result: Result, small: Path, files: tuple[Path, ...]) -> Report:
    """Write the result, with the model and its data beside it; returns the completed report."""
    from onnxfde.graph.drafts import copy_file

    for file in files:
        copy_file(file, small.parent / file.name)
    return result.save(small)


def program() -> str:
    """How to call onnxfde from the shell this process was started in."""
    if shutil.which("onnxfde"):
        return "onnxfde"
    called = Path(sys.argv[0])
    return str(called) if called.stem == "onnxfde" else f"{sys.executable} -m onnxfde"
