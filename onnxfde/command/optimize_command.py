"""`onnxfde optimize`: merge neurons of a model and write the smaller one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from onnxfde.command.arguments import (
    DataFile,
    In,
    InputNames,
    InputRange,
    Labels,
    Preprocess,
    Quiet,
    Verbose,
    parse_eps,
    parse_limit,
    parse_names,
    parse_points,
    parse_share,
    range_of,
    remark_on_range,
)
from onnxfde.command.ascii_fallback import say
from onnxfde.command.dataclass_options import command_line, takes_fields
from onnxfde.command.interruption import interruptible
from onnxfde.command.json_output import (
    JSON_HELP,
    STDOUT,
    refuse_outputs,
    write_json,
)
from onnxfde.command.quick_imports import importing
from onnxfde.data_use import DataUse
from onnxfde.errors import UsageError, after_writing
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
    from collections.abc import Callable

    from onnxfde.optimization import Result
    from onnxfde.progress import Progress
    from onnxfde.report import Report

UNCHANGED = 3
"""The exit code of --fail-if-unchanged."""
GOAL_OPTIONS = "Instead of ε, what the whole model is to be like (give one)"
"""The heading of goals."""
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
            help="Aimed-at relative change of a layer's output, 0.05 or 5%; repeat for single "
            "layers. If you know what the whole model may lose, --max-error is better. "
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
    max_error: Annotated[
        str | None,
        typer.Option(
            metavar="E",
            help="As small as possible, with outputs that change by at most E of what they vary "
            "(relative L2), e.g. 0.05 or 5%. Needs --data.",
            rich_help_panel=GOAL_OPTIONS,
        ),
    ] = None
    max_drop: Annotated[
        str | None,
        typer.Option(
            metavar="P",
            help="As small as possible, with at most P points of accuracy less (labels in --data "
            "name classes) or P % more squared error (they are targets).",
            rich_help_panel=GOAL_OPTIONS,
        ),
    ] = None
    max_params: Annotated[
        str | None,
        typer.Option(
            metavar="N|P%",
            help="As good as possible, with at most so many parameters, e.g. 25%.",
            rich_help_panel=GOAL_OPTIONS,
        ),
    ] = None
    max_macs: Annotated[
        str | None,
        typer.Option(
            metavar="N|P%",
            help="The same for multiply-adds of one sample.",
            rich_help_panel=GOAL_OPTIONS,
        ),
    ] = None
    max_bytes: Annotated[
        str | None,
        typer.Option(
            metavar="N|P%", help="The same for bytes of OUT.", rich_help_panel=GOAL_OPTIONS
        ),
    ] = None
    max_latency: Annotated[
        str | None,
        typer.Option(
            metavar="MS|P%",
            help="The same for the time of one run (one sample, one thread), in milliseconds or as "
            "a share of IN's.",
            rich_help_panel=GOAL_OPTIONS,
        ),
    ] = None
    latency_target: Annotated[
        str,
        typer.Option(
            "--target",
            metavar="TARGET",
            help="The machine that --max-latency is about: cpu, arm64, ssh://user@host.",
            rich_help_panel=GOAL_OPTIONS,
        ),
    ] = "cpu"
    explain: Annotated[
        bool,
        typer.Option(
            "--explain",
            help="Also show what each layer gives for such a goal, and what that costs.",
            rich_help_panel=GOAL_OPTIONS,
        ),
    ] = False
    align: Annotated[
        int | None,
        typer.Option(
            metavar="8|4|1",
            help="Leave a multiple of so many channels in each layer, also with --eps 0. [default: "
            "8 where a layer has at least 16, 1 with --eps 0]",
        ),
    ] = None
    data: DataFile = None
    preprocess: Preprocess = None
    inputs: InputNames = None
    labels: Labels = None
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
            metavar="E",
            help="Lower ε until the certified change of outputs is at most E; fewer neurons may "
            "be possible.",
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
    html_file: Annotated[
        Path | None,
        typer.Option(
            "--html",
            metavar="FILE",
            help="Write a page to look at in a browser: what was asked for and what came out, "
            "layer by layer.",
            readable=False,
        ),
    ] = None
    quiet: Quiet = False
    verbose: Verbose = False
    semantics: Annotated[
        Semantics,
        typer.Option(
            help="What ε means. budget: the change of a layer's output. paper, erode: "
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
        found = Options(
            eps=overall,
            layer_eps=tuple(sorted(by_layer.items())),
            neurons=self.neurons,
            keep=parse_share(self.keep),
            max_macs=parse_limit(self.max_macs, "--max-macs"),
            max_params=parse_limit(self.max_params, "--max-params"),
            max_bytes=parse_limit(self.max_bytes, "--max-bytes"),
            max_error=parse_share(self.max_error, "--max-error"),
            max_drop=parse_points(self.max_drop),
            max_latency=self.max_latency,
            latency_target=self.latency_target,
            align=self.align,
            semantics=self.semantics,
            quotient=self.quotient,
            relation=self.relation,
            norm=self.norm,
            linkage=self.linkage,
            layers=tuple(self.layers or ()),
            skip=tuple(self.skip or ()),
            seed=self.seed,
            data=self.data,
            data_use=DataUse.given(self.preprocess or (), parse_names(self.inputs), self.labels),
            input_range=None if self.input_range is None else range_of(self.input_range),
            verify=self.verify,
            certify=self.certify,
            max_certified_error=self.max_certified_error,
            int8=self.int8,
            time_limit=self.time_limit,
            force=self.force,
        )
        if self.eps and found.asks_for_count:
            raise UsageError(EPS_AND_COUNT)
        return found


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

    with interruptible(None if given.dry_run else given.out, given.json_file, given.html_file):
        report = optimize_and_write(given)
    if not given.quiet and report.layers:
        remark_on_range(given.data, given.input_range)
    silent = given.quiet or given.json_file == STDOUT
    if not silent:
        with after_writing(None if given.dry_run else given.out):
            shown = "" if given.dry_run else str(given.out)
            show_report(report, shown, given.verbose, given.explain)
    if given.fail_if_unchanged and not report.changed:
        if silent:
            say(f"onnxfde: unchanged: {report.unchanged}", err=True)
        raise typer.Exit(UNCHANGED)


def optimize_and_write(given: OptimizeArguments) -> Report:
    """Optimize and write; returns the report."""
    from onnxfde import pipeline
    from onnxfde.command.progress_bar import progress_bar
    from onnxfde.graph.drafts import write_text

    options, dry, html = given.options, given.dry_run, given.html_file
    out = None if dry else given.out
    refuse_outputs((given.model,), given.data, given.json_file, out, html)
    report_file = None if given.json_file == STDOUT else given.json_file
    with progress_bar(given.quiet, given.verbose) as progress:
        result = pipeline.optimized(given.model, options, progress, frontiers=html is not None)
        pages = {} if html is None else {html: page_of(given, result, progress)}
        progress.say("writing")
        report = result.report if dry else result.save(given.out, report_file, pages)
    for page, text in pages.items() if dry else ():
        write_text(page, text(report))
    left = given.json_file if dry or given.json_file == STDOUT else None
    write_json(left, report.to_json(), out)
    return report


def page_of(
    given: OptimizeArguments, result: Result, progress: Progress
) -> Callable[[Report], str]:
    """Makes the page of a result from its report."""
    from onnxfde.pages.report_page import ReportPage

    progress.say("drawing the page")
    command = command_line("optimize", given, leave_out=("quiet", "verbose", "html_file"))
    return ReportPage.of(result, given.model.name, command).html
