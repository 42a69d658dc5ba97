"""What `optimize`, `demo` and `verify` print of a model beside the original."""

from __future__ import annotations

import math

from rich.console import Console

from onnxfde.command.tables import UNKNOWN, Grid, show_first_that_fits
from onnxfde.command.terminal import print_line
from onnxfde.estimates import Interval, interval_text
from onnxfde.row_split import JUDGED
from onnxfde.running.dead_leaves import DEAD_LEAVES
from onnxfde.running.output_changes import OutputChange
from onnxfde.running.random_inputs import RANDOM_INPUTS
from onnxfde.running.verification import Verification

OUTPUT_COLUMNS = ("output", "relative L2", "max", "entries that differ")
REAL_INPUTS = ", or with the inputs the model really sees (--data)"


def show_verification(
    out: Console,
    found: Verification,
    model: str = "measured",
    cure: str = "",
    large: float = math.inf,
) -> None:
    """Print the errors of a model beside the original; `cure` says how to make them smaller."""
    if found.unverified:
        print_line(out, f"NOT VERIFIED: {found.unverified}")
        return
    show_errors(out, found, model)
    if found.metric and found.metric_before is not None and found.metric_after is not None:
        print_line(out, f"{found.metric:<11} {score_text(found)}")
    if found.metric_remark:
        print_line(out, f"{'labels':<11} {found.metric_remark}")
    if found.relative_l2 is not None and found.relative_l2 > large:
        inputs = REAL_INPUTS if found.source.startswith((RANDOM_INPUTS, DEAD_LEAVES)) else ""
        print_line(out, f"{change_words(found.relative_l2, large)}: {cure}{inputs}.")


def show_errors(out: Console, found: Verification, model: str) -> None:
    """Print how far outputs are from the original's, and what could not be compared."""
    several = len(found.outputs) > 1
    if several:
        cells = [output_cells(output) for output in found.outputs]
        show_first_that_fits(out, [Grid(OUTPUT_COLUMNS, [cells])])
    rows = f"({found.samples:,} {kind_of_rows(found)}, {found.engine})"
    if found.max_abs_error is not None:
        error = relative_text(found.relative_l2, found.relative_l2_interval)
        worst = " in the worst output" if several else ""
        most = f"max {found.max_abs_error:.3g}"
        print_line(out, f"{model:<11} relative L2 {error}{worst}, {most}  {rows}")
    if found.rows_wanted is not None:
        print_line(out, f"{'':<11} {few_rows_text(found, found.rows_wanted)}")
    if found.left_out is not None:
        share = f"{found.left_out:.2%} of the original's values"
        print_line(out, f"{'left out':<11} {share}, which are NaN or infinite")
    if found.differing_share is not None:
        share = f"{found.differing_share:.2%}" if found.differing_share else "none"
        text = f"{share} of the integers, booleans and texts differ"
        print_line(out, f"{'equality':<11} {text}  {rows}")
    for one in found.outputs:
        if one.fault:
            print_line(out, f"{'not equal':<11} output '{one.name}' {one.fault}")


def kind_of_rows(found: Verification) -> str:
    """What the rows are that a model was measured on."""
    if found.held_out is None:
        return f"samples: {found.source}"
    if found.held_out:
        return f"rows of {found.source} that were kept for this"
    return f"rows of {found.source}: too few to keep any for this, and it was fitted to them"


def relative_text(error: float | None, interval: Interval | None) -> str:
    """A relative error; there is none of a constant output."""
    if error is None:
        return "n/a (constant output)"
    return f"{error:.3g}{interval_text(interval, '{:.3g}'.format)}"


def few_rows_text(found: Verification, wanted: int) -> str:
    """How many rows it takes to know an error better."""
    rows = f"{JUDGED * wanted:,} rows of data" if found.held_out else f"{wanted:,} rows"
    return f"{found.samples:,} rows tell this roughly; about {rows} would halve the range"


def score_text(found: Verification) -> str:
    """A score before and after, and what is lost."""
    pairs = (
        (found.metric_before, found.metric_before_interval),
        (found.metric_after, found.metric_after_interval),
    )
    ends = (f"{value:.4g}{interval_text(ends, '{:.3g}'.format)}" for value, ends in pairs)
    if found.metric_lost is None:
        return " → ".join(ends)
    unit = "points lost" if found.metric == "accuracy" else "% more"
    lost = f"{found.metric_lost:.3g} {unit}{interval_text(found.metric_lost_interval)}"
    return f"{' → '.join(ends)}, {lost}"


def output_cells(output: OutputChange) -> tuple[str, ...]:
    """What is shown of one of several outputs."""
    if output.uncompared:
        return output.name, UNKNOWN, UNKNOWN, f"not compared: {output.uncompared}"
    differ = UNKNOWN if output.differing_share is None else f"{output.differing_share:.2%}"
    if output.max_abs_error is None:
        return output.name, UNKNOWN, UNKNOWN, differ
    error = relative_text(output.relative_l2, output.relative_l2_interval)
    return output.name, error, f"{output.max_abs_error:.3g}", differ


def change_words(change: float, large: float) -> str:
    """What a large change of the outputs means."""
    if change >= 1:
        return "The result is useless, its outputs are further off than a constant would be"
    return f"The outputs changed by more than {100 * large:.3g} % of what they vary"
