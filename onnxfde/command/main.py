"""The command line: parse, call, print, and turn one class of errors into one line."""

from __future__ import annotations

import json
import os
import signal
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from onnxfde import __version__
from onnxfde.command.arguments import (
    DataFile,
    In,
    InputRange,
    Json,
    Quiet,
    Verbose,
    parse_eps,
    parse_share,
    range_of,
)
from onnxfde.command.bench import bench_command, targets
from onnxfde.errors import OnnxfdeError, UsageError
from onnxfde.options import DEFAULT_EPS, Int8, Linkage, Norm, Quotient, Relation, Semantics

SMALL_MODEL = 4_000_000


class Commands(TyperGroup):
    """Commands whose errors are one line on stderr."""

    def invoke(self, ctx: Any) -> Any:
        """Run a command."""
        try:
            return super().invoke(ctx)
        except OnnxfdeError as error:
            typer.echo(f"onnxfde: {error}", err=True)
            raise typer.Exit(error.exit_code) from None


app = typer.Typer(
    cls=Commands,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Make trained ONNX networks smaller by merging neurons that do the same thing.",
    epilog="Try: onnxfde demo",
)


def show_version(wanted: bool) -> None:
    """Print the version and stop."""
    if wanted:
        typer.echo(f"onnxfde {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=show_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """Options of all commands."""


@app.command(epilog="Example: onnxfde optimize in.onnx out.onnx --eps 0.1 --data calibration.npz")
def optimize(
    model: In,
    out: Annotated[
        Path,
        typer.Argument(
            metavar="OUT", help="Where to write; may be IN. *.ort: in onnxruntime's own format."
        ),
    ],
    eps: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[LAYER=]EPS",
            help="Allowed relative change of a layer's output; repeat for single layers. "
            "[default: 0.1]",
        ),
    ] = None,
    neurons: Annotated[
        int | None,
        typer.Option(metavar="N", help="Leave at most N neurons in each layer, instead of ε."),
    ] = None,
    keep: Annotated[
        str | None,
        typer.Option(
            metavar="PERCENT", help="Leave at most this share of each layer's neurons, e.g. 25%."
        ),
    ] = None,
    data: DataFile = None,
    input_range: InputRange = None,
    semantics: Annotated[
        Semantics,
        typer.Option(help="What ε means: a bound on the change, or a pairwise threshold."),
    ] = "budget",
    quotient: Annotated[
        Quotient | None,
        typer.Option(
            help="How a layer becomes fewer neurons: minimal chooses them freely, the others "
            "merge blocks. [default: minimal for budget, single for paper]"
        ),
    ] = None,
    relation: Annotated[
        Relation, typer.Option(help="paper: compare outgoing or incoming weights.")
    ] = "forward",
    norm: Annotated[Norm, typer.Option(help="paper, backward: how differences add up.")] = "sum",
    linkage: Annotated[
        Linkage, typer.Option(help="paper: blocks by chains of neighbours, or all pairs within ε.")
    ] = "closure",
    layers: Annotated[
        list[str] | None, typer.Option(metavar="GLOB", help="Only these layers (repeatable).")
    ] = None,
    skip: Annotated[
        list[str] | None, typer.Option(metavar="GLOB", help="Not these layers (repeatable).")
    ] = None,
    seed: Annotated[int, typer.Option(metavar="N", help="Of minimal's random starts.")] = 0,
    report: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a report as JSON.")
    ] = None,
    verify: Annotated[
        bool, typer.Option("--verify/--no-verify", help="Run both models and compare them.")
    ] = True,
    certify: Annotated[
        bool | None,
        typer.Option(
            "--certify/--no-certify",
            help="Bound the change for all inputs in the range. [default: if cheap]",
            show_default=False,
        ),
    ] = None,
    max_certified_error: Annotated[
        float | None,
        typer.Option(
            metavar="E", help="Merge only as much as keeps the certified change of outputs below E."
        ),
    ] = None,
    int8: Annotated[
        Int8 | None,
        typer.Option(
            help="Then round weights and values to 8 bits; static takes the ranges of values from "
            "--data."
        ),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Optimize again what these settings made before.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Do everything but write.")] = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Merge neurons of IN and write the smaller model to OUT."""
    spare_threads(model)
    from onnxfde import pipeline
    from onnxfde.command import tables as console
    from onnxfde.graph import files

    overall, by_layer = parse_eps(eps or [])
    if eps and (neurons is not None or keep is not None):
        raise UsageError("--eps cannot be combined with --neurons or --keep")
    targets = [t for t in (None if dry_run else out, report) if t is not None]
    for target in targets:
        files.check_target(target)
    keep_apart(model, data, out, report)
    with console.progress(quiet) as work:
        result = pipeline.optimize(
            model,
            DEFAULT_EPS if overall is None else overall,
            layer_eps=by_layer,
            neurons=neurons,
            keep=parse_share(keep),
            semantics=semantics,
            quotient=quotient,
            relation=relation,
            norm=norm,
            linkage=linkage,
            layers=tuple(layers or ()),
            skip=tuple(skip or ()),
            seed=seed,
            data=data,
            input_range=None if input_range is None else range_of(input_range),
            verify=verify,
            certify=certify,
            max_certified_error=max_certified_error,
            int8=int8,
            force=force,
            work=work,
        )
        written = result.report if dry_run else result.save(out)
    if report is not None:
        files.write_text(report, written.to_json())
    if not quiet:
        remark_on_range(data, input_range)
        console.show_report(written, "" if dry_run else str(out), verbose)


@app.command(epilog="Example: onnxfde inspect in.onnx --input-range 0:1")
def inspect(
    model: In,
    data: DataFile = None,
    input_range: InputRange = None,
    as_json: Json = False,
) -> None:
    """Show the layers of IN, what merging would leave of them, and every near miss."""
    from onnxfde import inspection
    from onnxfde.command import tables as console

    with console.progress(as_json) as work:
        found = inspection.inspect(model, data=data, input_range=range_of(input_range), work=work)
    if as_json:
        typer.echo(json.dumps(asdict(found), indent=2, ensure_ascii=False))
        return
    remark_on_range(data, input_range)
    console.show_inspection(found)


@app.command(epilog="Example: onnxfde verify in.onnx out.onnx --data test.npz --tolerance 0.05")
def verify(
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
    from onnxfde.command import tables as console

    with console.progress(as_json) as work:
        found = pipeline.verify(
            model, other, data=data, input_range=range_of(input_range), work=work
        )
    if as_json:
        typer.echo(json.dumps(asdict(found), indent=2, ensure_ascii=False))
    else:
        console.show_verification(console.console(), found)
    if found.unverified:
        raise typer.Exit(1)
    error = found.max_abs_error if found.relative_l2 is None else found.relative_l2
    if tolerance is not None and not (error or 0.0) <= tolerance:
        typer.echo(f"onnxfde: the error {error:.3g} exceeds the tolerance {tolerance:g}", err=True)
        raise typer.Exit(1)


@app.command(epilog="Example: onnxfde demo --save demo")
def demo(
    eps: Annotated[float, typer.Option(help="Allowed relative change of the output.")] = 0.1,
    save: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Keep the model, its data and the result here."),
    ] = None,
) -> None:
    """Optimize a small network that ships with onnxfde and show the report."""
    from onnxfde import pipeline
    from onnxfde.command import tables as console
    from onnxfde.demo import demo_data, demo_model
    from onnxfde.graph import files

    result = pipeline.optimize(demo_model(), eps, data=demo_data())
    if save is None:
        console.show_report(result.report, "", verbose=False)
        typer.echo("Try it yourself: onnxfde demo --save demo")
        return
    for file in (demo_model(), demo_data()):
        files.copy_file(file, save / file.name)
    target = save / "gly-small.onnx"
    console.show_report(result.save(target), str(target), verbose=False)
    typer.echo(
        f"Made with: onnxfde optimize {save}/gly.onnx {target} --eps {eps:g} --data {save}/gly.npz"
    )


app.command("bench", epilog="Example: onnxfde bench in.onnx out.onnx --batch 1,32 --target arm64")(
    bench_command
)
app.add_typer(targets, name="target")


def keep_apart(model: Path, data: Path | None, out: Path, report: Path | None) -> None:
    """Refuse a report or a result in the place of another file of this run."""
    taken = [model.resolve(), data and data.resolve(), out.resolve()]
    if report is not None and report.resolve() in taken:
        raise UsageError(
            f"--report {report} is the model, its data or the result; choose another file"
        )
    if data is not None and data.resolve() == out.resolve():
        raise UsageError(f"OUT {out} is the data file; choose another file")


def spare_threads(*models: Path) -> None:
    """Keep BLAS to one thread for small models, which gain nothing from more; call it first."""
    if sum(m.stat().st_size for m in models if m.is_file()) < SMALL_MODEL:
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def remark_on_range(data: Path | None, input_range: str | None) -> None:
    """Say that the inputs were guessed."""
    if data is None and input_range is None:
        typer.echo(
            "note: inputs are taken to be in [-1, 1]; --data or --input-range gives better results",
            err=True,
        )


def main() -> None:
    """Entry point; a termination, or the end of the terminal, cleans up like an interruption."""
    for name in {"SIGTERM", "SIGHUP"} & set(dir(signal)):
        signal.signal(getattr(signal, name), lambda number, _: sys.exit(128 + number))
    app(prog_name="onnxfde")
