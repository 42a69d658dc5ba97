"""The index of a sweep: what came out of each model."""

from __future__ import annotations

from collections.abc import Sequence

from onnxfde import __version__
from onnxfde.pages.markup import Markup, fill_in, joined_markup, whole_page
from onnxfde.pages.plots import sparkline
from onnxfde.pages.sweep_pages import SWEEP, UNSORTED, ModelSweep, SweepCurve, address_of, cell
from onnxfde.pages.sweep_rows import SweepRow
from onnxfde.pages.words import SIZE_WORDS, UNKNOWN_NUMBER, percent, whole_number

TALLEST_CHANGE = 1.0
"""Changes above this are cut off: it is that of a constant output."""
NO_SIZE = "none"
"""Stands for a limit that no smaller size keeps."""


def index_page(models: Sequence[ModelSweep], command: str) -> str:
    """The page with all models."""
    failed = sum(not one.made for one in models)
    points = sum(len(one.made) for one in models)
    count = "One model" if len(models) == 1 else f"{len(models)} models"
    text = f"{count}, of which {points} variants were made."
    if failed:
        text += f" Nothing could be made of {failed}; the table says why."
    highest = highest_change(models)
    body = fill_in(
        SWEEP,
        "index",
        version=__version__,
        text=text,
        scale=f"All have the same scale, up to {percent(highest)}." if highest else "",
        rows=joined_markup(index_row(one, highest) for one in models),
        command=command,
    )
    return whole_page("onnxfde sweep", body, "sort.js")


def highest_change(models: Sequence[ModelSweep]) -> float:
    """The height of all curves: one scale, so that models can be compared."""
    curves = [curve for one in models if (curve := one.curve())]
    found = max((change for curve in curves for _, change in curve.points), default=0.0)
    return min(found, TALLEST_CHANGE)


def index_row(done: ModelSweep, highest: float) -> Markup:
    """A model in the index."""
    curve, first = done.curve(), done.original
    address = address_of(done.name) + "/report.html"
    name = fill_in(SWEEP, "link", address=address, text=done.name) if done.made else done.name
    change, loss = done.with_small_change, done.with_small_loss
    kept = loss if done.losses else change
    why = done.failed[0].failure if not done.made and done.failed else None
    drawn = sparkline(curve_words(done, curve), curve.points, highest) if curve else None
    return fill_in(
        SWEEP,
        "index_row",
        name=name,
        why=fill_in(SWEEP, "why", text=why) if why else Markup(""),
        curve=drawn or UNKNOWN_NUMBER,
        parameters=cell(first.parameters if first else None, whole_number),
        small_change=left_cell(done, change, bool(done.changes)),
        small_loss=left_cell(done, loss, bool(done.losses)),
        speedup=cell(kept.speedup if kept else None, lambda v: f"{v:.2f} ×"),
        sizes=cell(len(done.made), whole_number),
        failed=cell(len(done.failed), whole_number),
    )


def left_cell(done: ModelSweep, row: SweepRow | None, is_known: bool) -> Markup:
    """How large the size is that keeps a limit; none of them may."""
    if row is None:
        text = NO_SIZE if is_known else UNKNOWN_NUMBER
        return fill_in(SWEEP, "cell", exact=UNSORTED, text=text)
    return cell(done.left(row), percent)


def curve_words(done: ModelSweep, curve: SweepCurve) -> str:
    """A small curve for those who do not see it."""
    share, change = curve.points[0]
    size = f"{percent(share)} of the {SIZE_WORDS[done.kind]}"
    return f"{done.name}: with {size} the outputs change by {percent(change)}"
