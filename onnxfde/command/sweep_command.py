"""`onnxfde sweep`: the trade-off between size and error, for one model or many."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from onnxfde.command.arguments import (
    InputNames,
    InputRange,
    Labels,
    Preprocess,
    Quiet,
    Verbose,
    parse_limit,
    parse_names,
    range_of,
)
from onnxfde.command.ascii_fallback import say
from onnxfde.command.dataclass_options import (
    command_line,
    option_spelling,
    option_words,
    takes_fields,
)
from onnxfde.command.interruption import interruptible
from onnxfde.data_use import DataUse
from onnxfde.errors import UsageError
from onnxfde.options import Options, Quotient

if TYPE_CHECKING:
    from onnxfde.limits import Limit
    from onnxfde.pages.sweep_pages import ModelSweep
    from onnxfde.sweeping.ladder import SizeKind, SizeLadder
    from onnxfde.sweeping.sweep import Pool, Sweep

SHARED = ("preprocess", "inputs", "labels", "input_range", "certify", "quotient", "seed")
"""Options that every point has as `optimize` has them."""
MOST_JOBS = 512
"""More processes are taken for a typing error."""


@dataclass(frozen=True)
class SweepArguments:
    """The arguments and options of `onnxfde sweep`."""

    models: Annotated[
        list[Path],
        typer.Argument(
            metavar="IN",
            help="Models: .onnx files, folders of them, or globs such as 'nets/**/*.onnx'.",
            readable=False,
        ),
    ]
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Where results go: sweep.csv, index.html and a folder for each model. A run that "
            "was stopped goes on here.",
            readable=False,
        ),
    ] = None
    sizes: Annotated[
        str,
        typer.Option(metavar="P%,P%,N", help="Sizes to try; 100% merges without loss."),
    ] = "100%,75%,50%,35%,25%,15%,10%"
    by: Annotated[
        str, typer.Option(metavar="params|macs|bytes", help="What sizes are shares of.")
    ] = "params"
    data: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH",
            help="Real inputs, as for optimize; {name} in it stands for the name of the model "
            "without .onnx, e.g. 'data/{name}.npz'.",
            readable=False,
        ),
    ] = None
    preprocess: Preprocess = None
    inputs: InputNames = None
    labels: Labels = None
    input_range: InputRange = None
    certify: Annotated[
        bool | None,
        typer.Option(
            "--certify/--no-certify",
            help="Bound the change for all inputs in the range. [default: if cheap]",
            show_default=False,
        ),
    ] = None
    quotient: Annotated[
        Quotient | None,
        typer.Option(help="As for optimize; refit is quicker than minimal, the default."),
    ] = None
    seed: Annotated[int, typer.Option(metavar="N", help="Seed of minimal's random starts.")] = 0
    jobs: Annotated[
        int, typer.Option(metavar="N", help="Processes on this machine, with one thread each.")
    ] = 1
    cluster: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="Run the points on this Dask cluster instead, e.g. tcp://host:8786; models and "
            "data travel there, nothing stays. Needs the extra [cluster]. Workers are faster if "
            "they keep freed memory: MALLOC_MMAP_THRESHOLD_=33554432 "
            "MALLOC_TRIM_THRESHOLD_=268435456 dask worker ADDRESS --nthreads 1",
        ),
    ] = None
    latency: Annotated[
        bool,
        typer.Option(
            "--latency/--no-latency",
            help="At the end, measure on this machine how long each size takes.",
        ),
    ] = True
    png: Annotated[
        bool,
        typer.Option("--png", help="Also draw curves as PNG. Needs the extra [plot]."),
    ] = False
    quiet: Quiet = False
    verbose: Verbose = False

    @property
    def options(self) -> Options:
        """What all points have in common."""
        return Options(
            data_use=DataUse.given(self.preprocess or (), parse_names(self.inputs), self.labels),
            input_range=None if self.input_range is None else range_of(self.input_range),
            certify=self.certify,
            quotient=self.quotient,
            seed=self.seed,
        )

    @property
    def shared_words(self) -> tuple[str, ...]:
        """The same as words of a command."""
        from typing import get_type_hints

        hints = get_type_hints(type(self), include_extras=True)
        given = {name: getattr(self, name) for name in SHARED}
        defaults: dict[str, Any] = {name: getattr(type(self), name) for name in SHARED}
        return tuple(
            word
            for name, value in given.items()
            if value != defaults[name]
            for word in option_words(option_spelling(name, hints[name]), value)
        )


@takes_fields(SweepArguments)
def sweep_command(given: SweepArguments) -> None:
    """Try many sizes of one model or many.

    For each size: parameters, bytes, multiply-adds, error, accuracy (if the data holds labels), a
    proven bound (if cheap; in the unit of the outputs, or "too loose" if it is more than they vary
    by anyway) and the time of one run; the smaller models, a page on each, and index.html to begin
    with. What was computed with the same files, settings and version before is not computed again.

    Exit codes: 0 done, 1 a model has no result at all or something went wrong, 2 wrong usage, 130
    interrupted; results so far are kept.
    """
    with interruptible():
        found = swept(given)
    if any(not one.made for one in found):
        raise typer.Exit(1)


def swept(given: SweepArguments) -> list[ModelSweep]:
    """Do the sweep; returns what came out of each model."""
    from onnxfde.command.progress_bar import progress_bar
    from onnxfde.command.sweep_table import show_sweep
    from onnxfde.sweeping.png_plot import require_matplotlib, write_png
    from onnxfde.sweeping.results_folder import INDEX_FILE, opened_results
    from onnxfde.sweeping.sweep import Sweep, models_read

    if given.out is None:
        raise UsageError("give a folder for the results: --out DIR")
    refuse_senseless_pool(given)
    ladder = ladder_of(given)
    if given.png:
        require_matplotlib()
    command = command_line("sweep", given, leave_out=("quiet", "verbose"))
    with (
        opened_results(given.out, models_read(ladder)) as results,
        progress_bar(given.quiet, given.verbose) as progress,
    ):
        sweep = Sweep(ladder, results, command, progress, given.latency)
        progress.say("reading models")
        sweep.plan()
        found = run_on_pool(given, sweep)
        for done in found if given.png else ():
            if done.made:
                write_png(done, given.out / done.name / "curve.png")
    if not given.quiet:
        show_sweep(found)
        say(f"written to  {given.out / INDEX_FILE}")
    return found


def run_on_pool(given: SweepArguments, sweep: Sweep) -> list[ModelSweep]:
    """Compute the points that are left, if any are."""
    with pool_of(given, bool(sweep.left())) as pool:
        return sweep.run(pool)


def refuse_senseless_pool(given: SweepArguments) -> None:
    """UsageError if points cannot be computed where they should be; nothing is written before."""
    if not 1 <= given.jobs <= MOST_JOBS:
        raise UsageError(f"--jobs {given.jobs} is not a number from 1 to {MOST_JOBS}")
    if given.cluster is not None and given.jobs != 1:
        raise UsageError(
            "--jobs is about this machine, and --cluster has its own workers: drop one"
        )


def pool_of(given: SweepArguments, needed: bool) -> AbstractContextManager[Pool]:
    """Where points are computed; nobody connects to a cluster if nothing is left to do."""
    from onnxfde.sweeping.local_pool import LocalPool

    if given.cluster is None or not needed:
        return LocalPool(given.jobs)
    from onnxfde.sweeping.cluster import ClusterPool

    return ClusterPool.connected(given.cluster)


def ladder_of(given: SweepArguments) -> SizeLadder:
    """What is asked for."""
    from onnxfde.sweeping.ladder import SizeLadder, rungs_of, swept_models

    kinds: dict[str, SizeKind] = {"params": "params", "macs": "macs", "bytes": "bytes"}
    if given.by not in kinds:
        raise UsageError(f"--by '{given.by}' is not one of {', '.join(kinds)}")
    if not given.sizes.strip(", "):
        raise UsageError("--sizes names no size: give shares such as 75%,50%,25%")
    texts = [text.strip() for text in given.sizes.split(",") if text.strip()]
    sizes: list[tuple[str, Limit]] = [(t, limit_given(t)) for t in texts]
    models = swept_models(given.models, given.data)
    return SizeLadder(models, rungs_of(sizes), kinds[given.by], given.options, given.shared_words)


def limit_given(text: str) -> Limit:
    """One size."""
    found = parse_limit(text, "--sizes")
    assert found is not None
    return found
