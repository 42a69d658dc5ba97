"""What a sweep made of a model, and the page on it with its trade-off curve."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from urllib.parse import quote

from onnxfde import __version__
from onnxfde.limits import SIZE_GOALS
from onnxfde.pages.markup import Markup, fill_in, joined_markup, template_text, whole_page
from onnxfde.pages.plots import Axes, Plot, PlotLine, PlotPoint, bounds_of, top_of
from onnxfde.pages.sweep_rows import ORIGINAL, SweepRow
from onnxfde.pages.words import (
    SIZE_WORDS,
    TOO_LOOSE,
    UNKNOWN_NUMBER,
    percent,
    range_words,
    small,
    whole_number,
)

SWEEP = "sweep.html"
SMALL_CHANGE = 0.05
"""A change of outputs that is called small. Chosen: half of the default of --eps."""
SMALL_LOSS = 0.01
"""A loss of accuracy that is called small: one point."""
UNSORTED = ""
"""Stands for a number that is not known, which is sorted behind all others."""
SIZE_FIELDS = dict(zip(SIZE_GOALS, ("parameters", "multiply_adds", "bytes"), strict=True))
Format = Callable[[float], str]


@dataclass(frozen=True)
class SweepCurve:
    """Points of a curve and what its axes are."""

    points: tuple[PlotPoint, ...]
    x_title: str
    y_title: str
    percent: bool = True
    """Whether what is on the vertical axis is a share."""
    from_zero: bool = True


@dataclass(frozen=True)
class ModelSweep:
    """What came out of one model."""

    name: str
    file: str
    kind: str
    """What sizes are shares of: params, macs or bytes."""
    rows: tuple[SweepRow, ...]

    @property
    def original(self) -> SweepRow | None:
        """The model as it was given."""
        return next((row for row in self.rows if row.size == ORIGINAL), None)

    @property
    def made(self) -> list[SweepRow]:
        """The sizes that have a result."""
        return [row for row in self.rows if row.file is not None]

    @property
    def failed(self) -> list[SweepRow]:
        """The sizes that have none."""
        return [row for row in self.rows if row.failure is not None]

    @property
    def reasons(self) -> dict[str, list[str]]:
        """Why sizes have no result, and which; the same reason only once."""
        found: dict[str, list[str]] = {}
        for row in self.failed:
            found.setdefault(row.failure or "", []).append(row.size)
        return found

    def left(self, row: SweepRow) -> float | None:
        """The share of the original's size that a row has."""
        name = SIZE_FIELDS[self.kind]
        whole_size = getattr(self.original, name, None)
        own = getattr(row, name)
        return own / whole_size if own is not None and whole_size else None

    def curve(self, column: str = "relative_l2") -> SweepCurve | None:
        """A column against the size, if at least two points are known."""
        found = [(self.left(row), getattr(row, column)) for row in self.rows]
        points = sorted({(x, y) for x, y in found if x is not None and y is not None})
        if len(points) < 2:
            return None
        shares, title = Y_TITLES[column]
        if column == "metric_value" and self.metric != "accuracy":
            shares, title = False, "mean squared error"
        size = f"{SIZE_WORDS[self.kind]} left"
        from_zero = column != "metric_value" or self.metric != "accuracy"
        return SweepCurve(tuple(points), size, title, shares, from_zero)

    @property
    def metric(self) -> str | None:
        """What labels measure, if there are any."""
        return next((row.metric for row in self.rows if row.metric), None)

    @property
    def smaller(self) -> list[SweepRow]:
        """The results that are smaller than the original, small ones first."""
        found = [(share, row) for row in self.made if (share := self.left(row)) is not None]
        return [row for share, row in sorted(found, key=lambda pair: pair[0]) if share < 1]

    @property
    def changes(self) -> list[tuple[float, SweepRow]]:
        """By how much the outputs of smaller results change, where that is known."""
        return [(row.relative_l2, row) for row in self.smaller if row.relative_l2 is not None]

    @property
    def losses(self) -> list[tuple[float, SweepRow]]:
        """The accuracy that smaller results lose, where that is known."""
        first = self.original.metric_value if self.original else None
        if first is None or self.metric != "accuracy":
            return []
        scores = [(row.metric_value, row) for row in self.smaller]
        return [(first - score, row) for score, row in scores if score is not None]

    @property
    def with_small_change(self) -> SweepRow | None:
        """The smallest whose outputs change little."""
        return next((row for change, row in self.changes if change <= SMALL_CHANGE), None)

    @property
    def with_small_loss(self) -> SweepRow | None:
        """The smallest that loses little accuracy."""
        return next((row for loss, row in self.losses if loss <= SMALL_LOSS + 1e-12), None)


Y_TITLES = {
    "relative_l2": (True, "change of the outputs"),
    "metric_value": (True, "accuracy"),
    "latency_ms": (False, "milliseconds of one run"),
}
"""What a column is called on a vertical axis, and whether it is a share."""


def plotted(done: ModelSweep, curve: SweepCurve) -> Plot:
    """A curve as a plot."""
    lowest, highest = bounds_of(y for _, y in curve.points)
    room = 0.08 * ((highest - lowest) or 1.0)
    limits = (
        (0.0, top_of([highest])) if curve.from_zero else (max(lowest - room, 0), highest + room)
    )
    axes = Axes((0.0, 1.0), limits, curve.x_title, curve.y_title, True, curve.percent)
    shown: Format = percent if curve.percent else small
    (x0, y0), (x1, y1) = curve.points[0], curve.points[-1]
    told = (
        f"From {shown(y1)} with {percent(x1)} of the {SIZE_WORDS[done.kind]} to {shown(y0)} with "
        f"{percent(x0)}"
    )
    return Plot(f"{done.name}: {curve.y_title}", told, axes, [PlotLine(curve.points)])


def model_page(done: ModelSweep, command: str) -> str:
    """The page of one model."""
    curves = [curve for column in Y_TITLES if (curve := done.curve(column))]
    figures = [
        fill_in(
            "report.html", "figure", picture=plotted(done, curve).drawn(), caption=caption(curve)
        )
        for curve in curves
    ]
    body = fill_in(
        SWEEP,
        "model",
        version=__version__,
        name=done.name,
        lead=" ".join(lead(done)),
        figures=joined_markup(figures),
        rows=joined_markup(point_row(done, row) for row in done.rows if row.failure is None),
        failures=failures(done),
        command=command,
        unit=SIZE_WORDS[done.kind],
        rows_told=rows_told(done),
        metric="accuracy" if done.metric in (None, "accuracy") else "mean squared error",
    )
    return whole_page(f"{done.name} – onnxfde sweep", body, "sort.js")


def caption(curve: SweepCurve) -> str:
    """What is to be seen on a curve."""
    texts = {
        "change of the outputs": "How far the outputs are from the original's, compared with how "
        "much they vary from input to input. Lower is better; smaller models are on the left.",
        "accuracy": "The share of inputs that the model gets right, of those that were kept aside "
        "for this. Higher is better.",
        "mean squared error": "How far the outputs are from the targets. Lower is better.",
        "milliseconds of one run": "The median time of one run on the machine that made this page.",
    }
    return texts[curve.y_title]


def rows_told(done: ModelSweep) -> str:
    """On how many inputs of which kind changes were measured."""
    row = next((row for row in done.made if row.samples), None)
    if row is None:
        return ""
    kind = "random inputs" if row.held_out is None else "inputs"
    aside = " that were kept aside" if row.held_out else ""
    return f", on {whole_number(row.samples or 0)} {kind}{aside}"


def lead(done: ModelSweep) -> Iterator[str]:
    """What came out, in sentences."""
    if not done.made:
        yield "No size has a result."
        return
    sizes = "one size" if len(done.made) == 1 else f"{len(done.made)} sizes"
    yield f"The same network at {sizes}, made by merging neurons that do the same; no retraining."
    if not done.smaller:
        yield "None of them is smaller than the original."
    if done.losses:
        yield small_loss_words(done)
    if done.changes:
        yield small_change_words(done)


def small_loss_words(done: ModelSweep) -> str:
    """Which size keeps the accuracy, or how near the best comes."""
    row = done.with_small_loss
    if row is None:
        loss, best = min(done.losses, key=lambda pair: pair[0])
        return (
            f"No smaller size loses at most one point of accuracy; the best ({best.size}) loses "
            f"{100 * loss:.3g}."
        )
    before = percent((done.original and done.original.metric_value) or 0)
    after = percent(row.metric_value or 0)
    return (
        "The smallest of them that loses at most one point of accuracy has "
        f"{share_words(done, row)}: accuracy goes from {before} to {after}"
        f"{row_range(row, 'metric', percent)}."
    )


def small_change_words(done: ModelSweep) -> str:
    """Which size changes the outputs little, or how near the best comes."""
    row, limit = done.with_small_change, f"{percent(SMALL_CHANGE)} of how much they vary"
    if row is None:
        change, best = min(done.changes, key=lambda pair: pair[0])
        return (
            f"No smaller size changes the outputs by at most {limit}; the best ({best.size}) "
            f"changes them by {percent(change)}."
        )
    return (
        f"The smallest of them whose outputs change by at most {limit} has "
        f"{share_words(done, row)}: they change by {percent(row.relative_l2 or 0)}"
        f"{row_range(row, 'relative_l2', percent)}."
    )


def share_words(done: ModelSweep, row: SweepRow) -> str:
    """How large a result is."""
    return f"{percent(done.left(row) or 0)} of the {SIZE_WORDS[done.kind]}"


def row_range(row: SweepRow, name: str, shown: Callable[[float], str]) -> str:
    """The range of a number behind it."""
    return range_words(row.interval(name), shown)


def point_row(done: ModelSweep, row: SweepRow) -> Markup:
    """A size in the table of a model."""
    value = percent if row.metric == "accuracy" else small
    loose = row.certified_useful is False
    return fill_in(
        SWEEP,
        "point",
        size=size_link(row),
        share=UNSORTED if (share := done.left(row)) is None else share,
        parameters=cell(row.parameters, whole_number),
        left=cell(done.left(row), percent),
        bytes=cell(row.bytes, whole_number),
        work=cell(row.multiply_adds, whole_number),
        change=cell(row.relative_l2, lambda v: percent(v) + row_range(row, "relative_l2", percent)),
        score=cell(row.metric_value, lambda v: value(v) + row_range(row, "metric", value)),
        proven=cell(row.certified_change, (lambda _: TOO_LOOSE) if loose else small),
        time=cell(row.latency_ms, small),
        speedup=cell(row.speedup, lambda v: f"{v:.2f} ×"),
        file=file_link(row),
    )


def size_link(row: SweepRow) -> Markup | str:
    """The size, which leads to the page of its own."""
    if row.file is None:
        return row.size
    page = row.file.rpartition("/")[2].removesuffix(".onnx") + ".html"
    return fill_in(SWEEP, "link", address=address_of(page), text=row.size)


def file_link(row: SweepRow) -> Markup | str:
    """Where the model is."""
    if row.file is None:
        return ""
    name = row.file.rpartition("/")[2]
    return fill_in(SWEEP, "file_link", address=address_of(name), size=row.size)


def address_of(name: str) -> str:
    r"""A file name in a link, byte by byte: it need not be valid text.

    >>> address_of("a b\udcff")
    'a%20b%FF'
    """
    return quote(os.fsencode(name))


def cell(value: float | None, shown: Format) -> Markup:
    """A number in a table that can be sorted by it."""
    if value is None:
        return fill_in(SWEEP, "cell", exact=UNSORTED, text=UNKNOWN_NUMBER)
    exact = format(value, ".17g") if isinstance(value, float) else str(value)
    return fill_in(SWEEP, "cell", exact=exact, text=shown(value))


def failures(done: ModelSweep) -> Markup:
    """Sizes without a result, and why."""
    if not done.failed:
        return Markup("")
    parts = [
        fill_in("report.html", "refusal", name=", ".join(sizes), reason=reason)
        for reason, sizes in done.reasons.items()
    ]
    return fill_in(SWEEP, "failures", rows=joined_markup(parts))


def standalone_curve(done: ModelSweep) -> str:
    """The curve of a model as an SVG file of its own."""
    curve = done.curve()
    if curve is None:
        return fill_in(SWEEP, "no_curve", text=f"{done.name}: fewer than two points are known")
    drawn = plotted(done, curve).drawn()
    style = f"<style>{template_text('curve.css')}</style>"
    head, _, tail = drawn.partition("</title>")
    return f"{head}</title>{style}{tail}\n"
