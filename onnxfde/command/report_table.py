"""What `optimize`, `demo` and `verify` print: one row per layer, then the model as a whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Console

from onnxfde.command.column_meanings import LAYER_MEANINGS
from onnxfde.command.inspection_table import show_refusals, show_remarks, show_times
from onnxfde.command.tables import UNKNOWN, Grid, before_and_after, show_first_that_fits
from onnxfde.command.terminal import console, print_line
from onnxfde.command.verification_table import show_verification
from onnxfde.estimates import interval_text
from onnxfde.graph import files
from onnxfde.graph.old_weights import OldWeights
from onnxfde.limits import option
from onnxfde.options import COUNTS
from onnxfde.passes.channel_counts import ALIGNED_FROM, USUAL_ALIGNMENT
from onnxfde.passes.goal_outcome import GoalOutcome
from onnxfde.passes.result import LayerChange
from onnxfde.proof.certificate import Certificate
from onnxfde.report import Quantized, Report, large_change

SMALLER_EPS = "optimize with a smaller --eps"
NO_INT8 = "optimize without --int8"
LAYER_COLUMNS = tuple(LAYER_MEANINGS)
"""All columns of the table of layers."""
MORE_COLUMNS = ("layer", "no loss", "estimate", "at least")
"""The columns of the second table in a narrow terminal."""
MAIN_COLUMNS = ("layer", *(name for name in LAYER_COLUMNS if name not in MORE_COLUMNS))
"""The columns of the first table in a narrow terminal."""
SPENDING_COLUMNS = ("layer", "units", "planned error", "of all error", "saves", "of all saving")
"""By what a layer alone was expected to change the outputs of the model when counts were chosen,
and how many parameters (or multiply-adds) it saves."""
NOT_ALIGNED = (
    f"x86 is slow with channels that are no multiple of {USUAL_ALIGNMENT}: "
    f"try --align {USUAL_ALIGNMENT}, and compare with onnxfde bench."
)
OTHER_INPUTS = ": on others, as real ones are, outputs may change far more"


def show_report(report: Report, target: str, verbose: bool, explain: bool = False) -> None:
    """Print the layers before and after, and what was measured."""
    out = console()
    if report.layers:
        show_layers(out, report.layers)
    if explain:
        show_spending(out, report)
    show_remarks(out, report.layers)
    if verbose or not report.changed:
        show_refusals(out, report.refused)
    if report.unchanged:
        show_unchanged(out, report, target)
    else:
        show_totals(out, report, target)
    for file in report.old_weights:
        print_line(out, old_weights_text(file))
    if verbose:
        show_times(out, report.seconds)


def show_unchanged(out: Console, report: Report, target: str) -> None:
    """Print why nothing changed, and what was written."""
    print_line(out, f"Nothing to do: {report.unchanged}.")
    if not target:
        print_line(out, "Nothing was written.")
        return
    how = "converted to onnxruntime's format" if files.is_ort(target) else "byte for byte"
    print_line(out, f"{target} is the input, {how}.")
    if larger := why_larger(report, target):
        print_line(out, larger)


def show_layers(out: Console, layers: tuple[LayerChange, ...]) -> None:
    """Print one row per layer, in one table or, if that is too wide, in two."""
    rows = [layer_cells(layer) for layer in layers]
    show_first_that_fits(
        out,
        [layer_grid(rows, LAYER_COLUMNS)],
        [layer_grid(rows, MAIN_COLUMNS), layer_grid(rows, MORE_COLUMNS)],
    )


def layer_grid(rows: Sequence[Mapping[str, str]], columns: tuple[str, ...]) -> Grid:
    """The table with those of the columns in which something is known."""
    shown = [name for name in columns if any(row[name] != UNKNOWN for row in rows)]
    return Grid(tuple(shown), [[tuple(row[name] for name in shown) for row in rows]])


def layer_cells(layer: LayerChange) -> dict[str, str]:
    """What is shown of a layer, by column."""
    share = 100 * layer.parameters_after / max(layer.parameters_before, 1)
    return {
        "layer": layer.name,
        "shape": f"{layer.inputs}-{layer.neurons_before}-{layer.outputs}",
        "neurons": before_and_after(layer.neurons_before, layer.neurons_after),
        "no loss": UNKNOWN if layer.neurons_lossless is None else f"{layer.neurons_lossless:,}",
        "parameters": before_and_after(layer.parameters_before, layer.parameters_after),
        "left": f"{share:.1f} %",
        "ε": UNKNOWN if layer.eps is None else f"{layer.eps:.3g}",
        "error": f"{layer.measured_error:.2g}{interval_text(layer.measured_error_interval)}",
        "estimate": f"{layer.error:.2g}",
        "at least": UNKNOWN if layer.lower_bound is None else f"{layer.lower_bound:.2g}",
    }


def show_totals(out: Console, report: Report, target: str) -> None:
    """Print size and measured error of the whole model."""
    if len(report.layers) > 1:
        print_line(out, units_text(report.layers))
    parameters = before_and_after(report.parameters.before, report.parameters.after)
    print_line(out, f"parameters  {parameters}  ({report.grp_percent:.1f} % left)")
    print_line(out, f"bytes       {before_and_after(report.bytes.before, report.bytes.after)}")
    if work := report.multiply_adds:
        share = 100 * work.after / max(work.before, 1)
        line = before_and_after(work.before, work.after)
        print_line(out, f"work        {line} multiply-adds  ({share:.1f} % left)")
    if report.goal:
        print_line(out, f"goal        {goal_text(report.goal)}")
    for fold in report.folded:
        saved = before_and_after(fold.parameters_before, fold.parameters_after)
        print_line(out, f"folded      {fold.first} into {fold.second}: parameters {saved}")
    if report.int8:
        show_int8(out, report.int8, files.is_ort(target))
    if report.verification:
        kind = report.goal.kind if report.goal else None
        large = large_change((layer.eps for layer in report.layers), kind)
        show_verification(out, report.verification, cure=remedy(report), large=large)
    if report.assumed:
        lossy = any(layer.changed and not is_without_loss(layer) for layer in report.layers)
        print_line(out, f"assumed     {report.assumed}{OTHER_INPUTS if lossy else ''}")
    if report.certificate:
        show_certificate(out, report.certificate)
    for remark in filter(None, (why_larger(report, target), why_slow(report, target))):
        print_line(out, remark)
    weights = f", weights in {', '.join(report.weight_files)}" if report.weight_files else ""
    written = f"written to  {target}{weights}"
    print_line(out, written if target else "Dry run: nothing was written.")


def old_weights_text(file: OldWeights) -> str:
    """What is said of a file that only the replaced model may have needed."""
    reader = f"{file.read_by} may read it" if file.read_by else "delete it if nothing needs it"
    return f"old weights stay in {file.file} ({file.bytes:,} bytes): {reader}"


def units_text(layers: Sequence[LayerChange]) -> str:
    """How many neurons or channels all layers of the table have together."""
    kinds = {layer.kind for layer in layers}
    name = {"channels": "channels", "dense": "neurons"}[kinds.pop()] if len(kinds) == 1 else "units"
    counts = (sum(a.neurons_before for a in layers), sum(a.neurons_after for a in layers))
    return f"{name:<11} {before_and_after(*counts)}"


def is_without_loss(layer: LayerChange) -> bool:
    """Whether a layer has as many neurons as compute the same."""
    return layer.neurons_lossless is not None and layer.neurons_after >= layer.neurons_lossless


def goal_text(goal: GoalOutcome) -> str:
    """What was asked for, and what came out."""
    found = goal.reached if goal.reached is not None else goal.chosen_by or 0.0
    tries = f", after {goal.tries} tries" if goal.tries > 1 else ""
    asked, has = map(goal.in_words, (goal.limit, found))
    return f"--max-{goal.kind} {asked}: {has}{interval_text(goal.reached_interval)}{tries}"


def show_spending(out: Console, report: Report) -> None:
    """Print what each layer gives for a goal, and what that costs."""
    goal = report.goal
    if goal is None or not goal.spent:
        print_line(
            out,
            "There is nothing to explain: --explain is about goals such as --max-error.",
        )
        return
    rows = [
        (
            one.name,
            before_and_after(one.before, one.after),
            f"{one.error:.2g}",
            f"{one.error_share:.0%}",
            f"{one.saved:,.0f}",
            f"{one.saving_share:.0%}",
        )
        for one in goal.spent
    ]
    show_first_that_fits(out, [Grid(SPENDING_COLUMNS, [rows])])


def remedy(report: Report) -> str:
    """What would make the error smaller, depending on what causes most of it."""
    sizes = (name for name in COUNTS if report.settings.get(name) is not None)
    larger = [f"optimize with a larger {option(name)}" for name in sizes]
    merging = larger[0] if larger else SMALLER_EPS
    if report.int8 is None or report.verification is None:
        return merging
    merged = (report.int8.merged.relative_l2 or 0.0) if report.int8.merged else 0.0
    return merging if merged > (report.verification.relative_l2 or 0.0) / 2 else NO_INT8


def why_larger(report: Report, target: str) -> str | None:
    """Why the model or its file did not get smaller, if it did not."""
    if report.parameters.after > report.parameters.before:
        return "The model grew: weights that other nodes read too were copied (--skip such layers)."
    if report.int8 and report.int8.bytes.after >= report.int8.bytes.before:
        return "8 bits did not make the file smaller: its layers are too small (leave out --int8)."
    if report.bytes.after <= report.bytes.before:
        return larger_than_onnx(report)
    if files.is_ort(target):
        return "The file grew: small models are larger in onnxruntime's own format (write .onnx)."
    return "The file grew: the metadata on how it was made takes more bytes than merging saved."


def larger_than_onnx(report: Report) -> str | None:
    """A line on an .ort file that is larger than the .onnx file would be."""
    if report.onnx_bytes is None or report.bytes.after <= report.onnx_bytes:
        return None
    return f"As .onnx it would take {report.onnx_bytes:,} bytes: small models are larger as .ort."


def show_int8(out: Console, found: Quantized, as_ort: bool) -> None:
    """Print what was rounded to 8 bits, and the errors of the model before that."""
    if found.unmerged:
        print_line(out, f"not merged  {found.unmerged}")
    if found.merged:
        show_verification(out, found.merged, "merged")
    size = before_and_after(found.bytes.before, found.bytes.after)
    note = " as .onnx" if as_ort else ""
    print_line(out, f"int8        {found.mode}, {found.weights} weights; bytes {size}{note}")


def show_certificate(out: Console, found: Certificate) -> None:
    """Print the bound on the change of each output."""
    if found.unavailable:
        print_line(out, f"certified   {found.unavailable}")
        return
    for output in found.outputs:
        if not output.useful:
            loose = f"the bound on '{output.name}' is too loose to be useful"
            print_line(out, f"certified   {loose}: larger than what it varies by")
            continue
        seen = "" if output.measured_max is None else f" (seen: {output.measured_max:.3g})"
        rounding = found.rounding or 0.0
        most = f"'{output.name}' changes by at most {output.bound + rounding:.3g}"
        parts = f"{output.bound:.3g} by the weights, about {rounding:.2g} by rounding"
        print_line(out, f"certified   {most}{seen} for all inputs in the {found.box}: {parts}")


def why_slow(report: Report, target: str) -> str | None:
    """What makes convolutions of a result slow, if something does."""
    channels = [layer for layer in report.layers if layer.kind == "channels"]
    if not channels:
        return None
    if report.int8 and report.int8.mode == "dynamic":
        return "Convolutions mostly run slower in dynamic 8 bits: give --int8 static and --data."
    if files.is_ort(target):
        return "On x86, convolutions run slower from an .ort file than from an .onnx file."
    large = (one for one in channels if one.changed and one.neurons_before >= ALIGNED_FROM)
    odd = any(one.neurons_after % USUAL_ALIGNMENT for one in large)
    return NOT_ALIGNED if odd and report.settings.get("align") is None else None
