"""What the commands print: tables and findings on stdout, progress on stderr."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.table import Table
from rich.text import Text

from onnxfde.graph import files
from onnxfde.graph.match import Refusal
from onnxfde.inspection import Inspection
from onnxfde.passes.result import LayerChange
from onnxfde.progress import Progress
from onnxfde.proof.certificate import Certificate
from onnxfde.report import Quantized, Report
from onnxfde.running.samples import RANDOM_INPUTS
from onnxfde.running.verification import Verification

LARGE_ERROR = 0.1
SMALLER_EPS = "optimize with a smaller --eps"
NO_INT8 = "optimize without --int8"
REAL_INPUTS = ", or with the inputs the model really sees (--data or --input-range)"
PLAIN_WIDTH = 140


def console(stderr: bool = False) -> Console:
    """A console that does not cut tables when its output goes to a file."""
    stream = sys.stderr if stderr else sys.stdout
    return Console(stderr=stderr, width=None if stream.isatty() else PLAIN_WIDTH, highlight=False)


@contextmanager
def progress(quiet: bool) -> Iterator[Progress]:
    """Show what is being worked on while it lasts; only on a terminal."""
    if quiet or not sys.stderr.isatty():
        yield Progress()
        return
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        TextColumn,
        TimeRemainingColumn,
    )
    from rich.progress import Progress as Bar

    name = TextColumn("{task.description}", markup=False)
    columns = (name, BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Bar(*columns, console=console(stderr=True), transient=True) as bar:
        task = bar.add_task("reading", total=None)
        yield Progress(
            say=lambda text: bar.reset(task, description=text, total=None),
            at=lambda done, total: bar.update(task, completed=done, total=total),
        )


def show_report(report: Report, target: str, verbose: bool) -> None:
    """The before/after table and what was measured."""
    out = console()
    if report.layers:
        out.print(layer_table(report.layers))
    for layer in report.layers:
        if layer.remark:
            line(out, f"{layer.name}: {layer.remark}")
    if verbose or not report.changed:
        show_refusals(out, report.refused)
    if report.unchanged:
        line(out, f"Nothing to do: {report.unchanged}.")
        line(out, f"{target} is the input, {how(target)}." if target else "Nothing was written.")
        show_growth(out, report, target)
    else:
        show_totals(out, report, target)
    if verbose:
        spent = ", ".join(f"{stage} {s:.3f} s" for stage, s in report.seconds.items())
        line(out, f"time: {spent}")


def how(target: str) -> str:
    """How a file holds a model that did not change."""
    return "converted to onnxruntime's format" if files.is_ort(target) else "byte for byte"


def layer_table(layers: tuple[LayerChange, ...]) -> Table:
    """One row a layer."""
    sizes = ("shape", "neurons", "lossless", "parameters", "GRP %", "bytes")
    table = Table("layer", *sizes, "ε", "Gaussian error", "measured")
    for layer in layers:
        known = layer.lower_bound is not None
        bound = f"≥ {layer.lower_bound:.2g}" if known else "no bound"
        share = 100 * layer.parameters_after / max(layer.parameters_before, 1)
        table.add_row(
            Text(layer.name),
            f"{layer.inputs}-{layer.neurons_before}-{layer.outputs}",
            arrow(layer.neurons_before, layer.neurons_after),
            "–" if layer.neurons_lossless is None else f"{layer.neurons_lossless:,}",
            arrow(layer.parameters_before, layer.parameters_after),
            f"{share:.1f}",
            arrow(layer.bytes_before, layer.bytes_after),
            "–" if layer.eps is None else f"{layer.eps:.3g}",
            f"{layer.error:.2g} ({bound})",
            f"{layer.measured_error:.2g}",
        )
    return table


def line(out: Console, text: str) -> None:
    """One line of text, as it is."""
    out.print(text, markup=False, soft_wrap=True)


def arrow(before: int, after: int) -> str:
    """A number before and after."""
    return f"{before:,} → {after:,}" if before != after else f"{before:,}"


def show_totals(out: Console, report: Report, target: str) -> None:
    """Size and measured error of the whole model."""
    size, count = report.bytes, report.parameters
    line(out, f"parameters  {arrow(count.before, count.after)}  (GRP {report.grp_percent:.1f} %)")
    line(out, f"bytes       {arrow(size.before, size.after)}")
    for fold in report.folded:
        saved = arrow(fold.parameters_before, fold.parameters_after)
        line(out, f"folded      {fold.first} into {fold.second}: parameters {saved}")
    if report.int8:
        show_int8(out, report.int8)
    if report.verification:
        show_verification(out, report.verification, cure=remedy(report))
    if report.certificate:
        show_certificate(out, report.certificate)
    show_growth(out, report, target)
    line(out, f"written to  {target}" if target else "Dry run: nothing was written.")


def remedy(report: Report) -> str:
    """What would make the error smaller: less of what has the larger part in it."""
    if report.int8 is None or report.verification is None:
        return SMALLER_EPS
    merged = (report.int8.merged.relative_l2 or 0.0) if report.int8.merged else 0.0
    return SMALLER_EPS if merged > (report.verification.relative_l2 or 0.0) / 2 else NO_INT8


def show_growth(out: Console, report: Report, target: str) -> None:
    """Why the result is no smaller, in one line."""
    grew = report.bytes.after > report.bytes.before
    if report.parameters.after > report.parameters.before:
        line(out, "The model grew: weights that other nodes read were copied (--skip such layers).")
    elif report.int8 and report.int8.bytes.after >= report.int8.bytes.before:
        line(out, "8 bits save nothing here: the layers are too small (leave out --int8).")
    elif grew and files.is_ort(target):
        line(out, "The file grew: onnxruntime's own format adds to small models (write .onnx).")
    elif grew:
        line(out, "The file grew: the notes on how it was made take more than was saved.")


def show_int8(out: Console, found: Quantized) -> None:
    """What was rounded to 8 bits, and the model before that."""
    if found.unmerged:
        line(out, f"not merged  {found.unmerged}")
    if found.merged:
        show_verification(out, found.merged, "merged", cure="")
    size = arrow(found.bytes.before, found.bytes.after)
    line(out, f"int8        {found.mode}, {found.weights} weights; bytes {size}")


def show_certificate(out: Console, found: Certificate) -> None:
    """What can happen at worst."""
    if found.unavailable:
        line(out, f"certified   {found.unavailable}")
        return
    for output in found.outputs:
        seen = "" if output.measured_max is None else f" (seen: {output.measured_max:.3g})"
        most = f"'{output.name}' changes by at most {output.bound:.3g}"
        rounding = f"and about {found.rounding or 0:.1g} of rounding{seen}"
        line(out, f"certified   {most} for all inputs in the {found.box}, {rounding}")


def show_verification(
    out: Console, found: Verification, model: str = "measured", cure: str = SMALLER_EPS
) -> None:
    """What running both models showed."""
    if found.unverified:
        line(out, f"NOT VERIFIED: {found.unverified}")
        return
    if found.max_abs_error is None or found.mean_abs_error is None:
        line(out, "the model has no floating-point output to compare")
        return
    relative = "n/a (constant output)" if found.relative_l2 is None else f"{found.relative_l2:.3g}"
    line(
        out,
        f"{model:<11} relative L2 {relative}, max {found.max_abs_error:.3g}, "
        f"mean {found.mean_abs_error:.3g}  ({found.samples:,} samples: {found.source}, "
        f"{found.engine})",
    )
    if found.metric and found.metric_before is not None and found.metric_after is not None:
        line(out, f"{found.metric:<11} {found.metric_before:.4g} → {found.metric_after:.4g}")
    if cure and found.relative_l2 is not None and found.relative_l2 > LARGE_ERROR:
        line(
            out,
            f"The outputs changed by more than {LARGE_ERROR:.0%}: {cure}"
            f"{REAL_INPUTS if found.source.startswith(RANDOM_INPUTS) else ''}.",
        )


def at_least(count: int, fewest: int) -> str:
    """A count, and what it cannot go below."""
    return f"{count:,} (≥ {fewest:,})" if fewest else f"{count:,}"


def show_refusals(out: Console, refused: tuple[Refusal, ...]) -> None:
    """Every near miss with its reason."""
    for refusal in refused:
        line(out, f"left alone  {refusal.node}: {refusal.reason}")


def show_inspection(found: Inspection) -> None:
    """Layers, what merging would leave of them, and near misses."""
    out = console()
    if found.layers:
        steps = list(found.layers[0].neurons_at)[1:]
        ladder = [f"ε {eps:g}" for eps in steps]
        table = Table("layer", "shape", "parameters", "neurons", "lossless", *ladder)
        for layer in found.layers:
            table.add_row(
                Text(layer.name),
                f"{layer.inputs}-{layer.neurons}-{layer.outputs}",
                f"{layer.parameters:,}",
                f"{layer.neurons:,}",
                f"{layer.lossless:,}",
                *(at_least(layer.neurons_at[eps], layer.fewest_at[eps]) for eps in steps),
            )
        out.print(table)
        line(out, "neurons left by merging blocks; optimize usually lands nearer to the bound (≥)")
    for layer in found.layers:
        if layer.remark:
            line(out, f"{layer.name}: {layer.remark}")
    show_refusals(out, found.refused)
    if found.layers and found.other_activations:
        others = ", ".join(f"{n} × {op}" for op, n in found.other_activations.items())
        line(out, f"left alone  activations that are not squares: {others}")
    if found.nothing:
        line(out, f"No layer found: {found.nothing}.")
