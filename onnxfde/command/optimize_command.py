"""`onnxfde optimize`: merge neurons of a model and write the smaller one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from onnxfde.command.arguments import (
    DataFile,
    In,
    InputRange,
    Quiet,
    Verbose,
    parse_eps,
    parse_share,
    range_of,
    remark_on_range,
)
from onnxfde.command.ascii_fallback import say
from onnxfde.command.dataclass_options import takes_fields
from onnxfde.command.interruption import interruptible
from onnxfde.command.json_output import (
    JSON_HELP,
    STDOUT,
    after_writing,
    refuse_outputs,
    write_json,
)
from onnxfde.command.quick_imports import importing
from onnxfde.errors import UsageError
from onnxfde.options import (
    EPS_AND_COUNT,
    Int8,
    Linkage,
    Norm,
    Options,
    Quotient,
    Relation,
    Semantics,
)
from onnxfde.threads import spare_threads

if TYPE_CHECKING:
    from onnxfde.report import Report

UNCHANGED = 3
"""The exit code of --fail-if-unchanged."""
METHOD_OPTIONS = "Other methods, to compare with the paper"
"""The heading of the options that users need least."""


@dataclass(frozen=True)
class OptimizeArguments:
    """The arguments and options of `onnxfde optimize`."""

    model: In
    out: Annotated[
        Path,
        typer.Argument(
            metavar="OUT",
            readable=False,
            help="Where to write; may be IN. *.ort: in onnxruntime's own format.",
        ),
    ]
    eps: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[LAYER=]EPS",
            help="Allowed relative change of a layer's output; repeat for single layers. "
            "[default: 0.1; without --data 0 for all but polynomials]",
        ),
    ] = None
    neurons: Annotated[
        int | None,
        typer.Option(metavar="N", help="Leave at most N neurons in each layer, instead of ε."),
    ] = None
    keep: Annotated[
        str | None,
        typer.Option(
            metavar="SHARE",
            help="Leave at most this share of each layer's neurons, e.g. 25% or 0.25, instead of "
            "ε.",
        ),
    ] = None
    data: DataFile = None
    input_range: InputRange = None
    layers: Annotated[
        list[str] | None,
        typer.Option(
            metavar="GLOB", help="Only layers whose name matches, e.g. 'fc*' (repeatable)."
        ),
    ] = None
    skip: Annotated[
        list[str] | None, typer.Option(metavar="GLOB", help="Not these layers (repeatable).")
    ] = None
    int8: Annotated[
        Int8 | None,
        typer.Option(
            help="Then round weights and values to 8 bits; static takes the ranges of values from "
            "--data."
        ),
    ] = None
    verify: Annotated[
        bool, typer.Option("--verify/--no-verify", help="Run both models and compare them.")
    ] = True
    certify: Annotated[
        bool | None,
        typer.Option(
            "--certify/--no-certify",
            help="Bound the change for all inputs in the range. [default: if cheap]",
            show_default=False,
        ),
    ] = None
    max_certified_error: Annotated[
        float | None,
        typer.Option(
            metavar="E", help="Merge only as much as keeps the certified change of outputs below E."
        ),
    ] = None
    time_limit: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            help="End the search for fewer neurons so long after the start and take the best so "
            "far, or what --quotient refit gives; that, proof and verification always finish.",
        ),
    ] = None
    force: Annotated[
        bool,
        typer.Option("--force", help="Optimize again even what onnxfde made with these settings."),
    ] = False
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Do everything but write OUT.")] = False
    fail_if_unchanged: Annotated[
        bool,
        typer.Option(
            "--fail-if-unchanged", help="Exit with 3 if nothing changed (OUT is written anyway)."
        ),
    ] = False
    json_file: Annotated[
        Path | None,
        typer.Option("--json", "--report", metavar="FILE", help=JSON_HELP, readable=False),
    ] = None
    quiet: Quiet = False
    verbose: Verbose = False
    semantics: Annotated[
        Semantics,
        typer.Option(
            help="What ε means. budget: the allowed change of a layer's output. paper, erode: "
            "how far the weights of two neurons that are merged may be apart.",
            rich_help_panel=METHOD_OPTIONS,
        ),
    ] = "budget"
    quotient: Annotated[
        Quotient | None,
        typer.Option(
            help="How a layer gets fewer neurons: minimal chooses them freely, the others "
            "merge blocks. [default: minimal for budget, single for paper]",
            rich_help_panel=METHOD_OPTIONS,
        ),
    ] = None
    relation: Annotated[
        Relation,
        typer.Option(
            help="paper: compare outgoing or incoming weights.", rich_help_panel=METHOD_OPTIONS
        ),
    ] = "forward"
    norm: Annotated[
        Norm,
        typer.Option(
            help="paper, backward: how differences add up.", rich_help_panel=METHOD_OPTIONS
        ),
    ] = "sum"
    linkage: Annotated[
        Linkage,
        typer.Option(
            help="paper: blocks by chains of neighbours, or all pairs within ε.",
            rich_help_panel=METHOD_OPTIONS,
        ),
    ] = "closure"
    seed: Annotated[
        int,
        typer.Option(
            metavar="N", help="Seed of minimal's random starts.", rich_help_panel=METHOD_OPTIONS
        ),
    ] = 0

    @property
    def options(self) -> Options:
        """The options of the pipeline."""
        overall, by_layer = parse_eps(self.eps or [])
        if self.eps and (self.neurons is not None or self.keep is not None):
            raise UsageError(EPS_AND_COUNT)
        return Options(
            eps=overall,
            layer_eps=tuple(sorted(by_layer.items())),
            neurons=self.neurons,
            keep=parse_share(self.keep),
            semantics=self.semantics,
            quotient=self.quotient,
            relation=self.relation,
            norm=self.norm,
            linkage=self.linkage,
            layers=tuple(self.layers or ()),
            skip=tuple(self.skip or ()),
            seed=self.seed,
            data=self.data,
            input_range=None if self.input_range is None else range_of(self.input_range),
            verify=self.verify,
            certify=self.certify,
            max_certified_error=self.max_certified_error,
            int8=self.int8,
            time_limit=self.time_limit,
            force=self.force,
        )


@takes_fields(OptimizeArguments)
def optimize_command(given: OptimizeArguments) -> None:
    """Merge neurons of a model and write the smaller one.

    Prints one row per layer, then figures of the whole model.

    Exit codes: 0 done (also if nothing could be merged), 1 error, 2 wrong usage, 3 unchanged and
    --fail-if-unchanged, 130 interrupted.
    """
    spare_threads(given.model)
    with importing():
        from onnxfde.command.report_table import show_report

    with interruptible(None if given.dry_run else given.out, given.json_file):
        report = optimize_and_write(given)
    if not given.quiet and report.layers:
        remark_on_range(given.data, given.input_range)
    silent = given.quiet or given.json_file == STDOUT
    if not silent:
        with after_writing(None if given.dry_run else given.out):
            show_report(report, "" if given.dry_run else str(given.out), given.verbose)
    if given.fail_if_unchanged and not report.changed:
        if silent:
            say(f"onnxfde: unchanged: {report.unchanged}", err=True)
        raise typer.Exit(UNCHANGED)


def optimize_and_write(given: OptimizeArguments) -> Report:
    """Optimize and write; returns the report."""
    from onnxfde import pipeline
    from onnxfde.command.progress_bar import progress_bar

    options, dry = given.options, given.dry_run
    refuse_outputs((given.model,), given.data, given.json_file, None if dry else given.out)
    report_file = None if given.json_file == STDOUT else given.json_file
    with progress_bar(given.quiet, given.verbose) as progress:
        result = pipeline.optimized(given.model, options, progress)
        progress.say("writing")
        report = result.report if dry else result.save(given.out, report_file)
    left = given.json_file if dry or given.json_file == STDOUT else None
    write_json(left, report.to_json(), None if dry else given.out)
    return report
