"""`onnxfde optimize`: merge neurons of a model and write the smaller one."""

from __future__ import annotations

import os
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
from onnxfde.command.dataclass_options import takes_fields
from onnxfde.errors import UsageError
from onnxfde.options import (
    DEFAULT_EPS,
    Int8,
    Linkage,
    Norm,
    Options,
    Quotient,
    Relation,
    Semantics,
)

if TYPE_CHECKING:
    from onnxfde.report import Report

SMALL_MODEL = 4_000_000
"""Bytes below which a model is small: a million float32 numbers, as in `threads.py`."""


@dataclass(frozen=True)
class OptimizeArguments:
    """The arguments and options of `onnxfde optimize`."""

    model: In
    out: Annotated[
        Path,
        typer.Argument(
            metavar="OUT", help="Where to write; may be IN. *.ort: in onnxruntime's own format."
        ),
    ]
    eps: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[LAYER=]EPS",
            help="Allowed relative change of a layer's output; repeat for single layers. "
            "[default: 0.1]",
        ),
    ] = None
    neurons: Annotated[
        int | None,
        typer.Option(metavar="N", help="Leave at most N neurons in each layer, instead of ε."),
    ] = None
    keep: Annotated[
        str | None,
        typer.Option(
            metavar="PERCENT", help="Leave at most this share of each layer's neurons, e.g. 25%."
        ),
    ] = None
    data: DataFile = None
    input_range: InputRange = None
    semantics: Annotated[
        Semantics,
        typer.Option(help="What ε means: a bound on the change, or a pairwise threshold."),
    ] = "budget"
    quotient: Annotated[
        Quotient | None,
        typer.Option(
            help="How a layer gets fewer neurons: minimal chooses them freely, the others "
            "merge blocks. [default: minimal for budget, single for paper]"
        ),
    ] = None
    relation: Annotated[
        Relation, typer.Option(help="paper: compare outgoing or incoming weights.")
    ] = "forward"
    norm: Annotated[Norm, typer.Option(help="paper, backward: how differences add up.")] = "sum"
    linkage: Annotated[
        Linkage, typer.Option(help="paper: blocks by chains of neighbours, or all pairs within ε.")
    ] = "closure"
    layers: Annotated[
        list[str] | None, typer.Option(metavar="GLOB", help="Only these layers (repeatable).")
    ] = None
    skip: Annotated[
        list[str] | None, typer.Option(metavar="GLOB", help="Not these layers (repeatable).")
    ] = None
    seed: Annotated[int, typer.Option(metavar="N", help="Seed of minimal's random starts.")] = 0
    report: Annotated[Path | None, typer.Option(metavar="FILE", help="Write a report as JSON.")] = (
        None
    )
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
    int8: Annotated[
        Int8 | None,
        typer.Option(
            help="Then round weights and values to 8 bits; static takes the ranges of values from "
            "--data."
        ),
    ] = None
    force: Annotated[
        bool,
        typer.Option("--force", help="Optimize again even what onnxfde made with these settings."),
    ] = False
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Do everything but write.")] = False
    quiet: Quiet = False
    verbose: Verbose = False

    @property
    def options(self) -> Options:
        """The options of the pipeline."""
        overall, by_layer = parse_eps(self.eps or [])
        if self.eps and (self.neurons is not None or self.keep is not None):
            raise UsageError("--eps cannot be combined with --neurons or --keep")
        return Options(
            eps=DEFAULT_EPS if overall is None else overall,
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
            force=self.force,
        )


@takes_fields(OptimizeArguments)
def optimize_command(given: OptimizeArguments) -> None:
    """Merge neurons of IN and write the smaller model to OUT."""
    spare_threads(given.model)
    from onnxfde.command.report_table import show_report

    written = optimize_and_write(given)
    if not given.quiet:
        remark_on_range(given.data, given.input_range)
        show_report(written, "" if given.dry_run else str(given.out), given.verbose)


def optimize_and_write(given: OptimizeArguments) -> Report:
    """Optimize and write; returns the report."""
    from onnxfde import pipeline
    from onnxfde.command.progress_bar import progress_bar
    from onnxfde.graph import files

    options = given.options
    targets = [t for t in (None if given.dry_run else given.out, given.report) if t is not None]
    for target in targets:
        files.check_target(target)
    keep_apart(given.model, given.data, given.out, given.report)
    with progress_bar(given.quiet) as progress:
        result = pipeline.optimized(given.model, options, progress)
        written = result.report if given.dry_run else result.save(given.out)
    if given.report is not None:
        files.write_text(given.report, written.to_json())
    return written


def keep_apart(model: Path, data: Path | None, out: Path, report: Path | None) -> None:
    """Refuse to write a report or a result over another file of this run."""
    taken = [model.resolve(), data and data.resolve(), out.resolve()]
    if report is not None and report.resolve() in taken:
        raise UsageError(
            f"--report {report} is the model, its data or the result; choose another file"
        )
    if data is not None and data.resolve() == out.resolve():
        raise UsageError(f"OUT {out} is the data file; choose another file")


def spare_threads(*models: Path) -> None:
    """Limit BLAS to one thread for small models; must be called before numpy is imported."""
    if sum(m.stat().st_size for m in models if m.is_file()) < SMALL_MODEL:
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
