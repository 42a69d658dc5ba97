"""What `bench` prints: for each target a table, models as rows, ratios to the first model first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from onnxfde.command.tables import console, line
from onnxfde.machines.ratios import Ratio
from onnxfde.machines.results import Comparison, Latency, Line, Place, Subject

UNLIMITED = 1000
"""Columns of a table that goes to a file."""
UNKNOWN = "–"
SIZES = ("size", "parameters", "mult-adds")
STATE = ("load", "memory")
TIMES = ("batch", "speed-up (95 %)", "p50", "p90", "min")
COUNTS = ("batch", "fewer", "instructions", "SIMD", "repeats within", "differs from here")
NOTABLE_DIFFERENCE = 1e-5
NOTABLE_SPREAD = 0.01

Cells = tuple[str, ...]


def show_comparison(found: Comparison, out: Console | None = None) -> None:
    """All targets, then what to be wary of."""
    if out is None:
        out = console()
        out.width = out.width if out.is_terminal else UNLIMITED
    for place in found.targets:
        if place.error is None:
            line(out, heading(place, found))
            show_place(out, found, place)
    if all(place.error for place in found.targets):
        out.print(size_table(found, None))
    for text in (*errors(found), *remarks(found)):
        line(out, text)


def show_place(out: Console, found: Comparison, place: Place) -> None:
    """One table, or two where the terminal is narrow."""
    whole = target_table(found, place, sizes=True)
    if Measurement.get(out, out.options.update(width=UNLIMITED), whole).maximum <= out.width:
        out.print(whole)
        return
    out.print(target_table(found, place, sizes=False))
    out.print(size_table(found, place))


def short_names(found: Comparison) -> list[str]:
    """File names, with their folders where they would be mistaken for each other."""
    files = [model.file for model in found.models]
    names = Counter(Path(file).name for file in files)
    return [Path(f).name if Path(f).name and names[Path(f).name] == 1 else f for f in files]


def heading(place: Place, found: Comparison) -> str:
    """What was measured where."""
    threads = found.settings["threads"]
    what = f"{threads} thread{'s' * (threads > 1)}"
    if place.counts:
        what = "instructions per run (a cost, not a time)"
    return f"{place.target}: {place.machine}, onnxruntime {place.onnxruntime}, {what}"


def size_table(found: Comparison, place: Place | None) -> Table:
    """A row a model: what does not change with the batch."""
    timed = place is not None and not place.counts
    table = plain_table("model", *(STATE if timed else ()), *SIZES)
    for i, (name, model) in enumerate(zip(short_names(found), found.models, strict=True)):
        state = state_cells(place.lines[i]) if place is not None and timed else ()
        table.add_row(Text(name), *state, *size_cells(model, found.models[0]))
    return table


def target_table(found: Comparison, place: Place, sizes: bool) -> Table:
    """A section a batch size, a row a model."""
    state = STATE if sizes and not place.counts else ()
    columns = (*(COUNTS if place.counts else TIMES), *state, *(SIZES if sizes else ()))
    table = plain_table("model", *columns)
    batches = sorted({run.batch for row in place.lines for run in row.latencies})
    for batch in batches or [0]:
        for (name, row), model in zip(named_lines(found, place), found.models, strict=True):
            run = next((r for r in row.latencies if r.batch == batch), Latency(batch))
            cells = count_cells(run) if place.counts else time_cells(run)
            more = (*(state_cells(row) if state else ()), *size_cells(model, found.models[0]))
            table.add_row(Text(name), str(batch or UNKNOWN), *cells, *(more if sizes else ()))
        table.add_section()
    return table


def plain_table(*columns: str) -> Table:
    """A table without walls; all columns but the first are numbers."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column(columns[0], overflow="fold", min_width=12)
    for column in columns[1:]:
        table.add_column(column, justify="right", no_wrap=True)
    return table


def time_cells(run: Latency) -> Cells:
    """The ratio, then what was measured."""
    return (ratio(run.speedup), *(seconds(t) for t in (run.p50, run.p90, run.least)))


def state_cells(row: Line) -> Cells:
    """What a model costs before it runs."""
    return seconds(row.load), amount(row.peak_memory, "B")


def count_cells(run: Latency) -> Cells:
    """The ratio, then what was counted."""
    return (
        UNKNOWN if run.speedup is None else f"{run.speedup.value:.3g}×",
        amount(run.instructions),
        amount(run.simd),
        UNKNOWN if run.repeatability is None else f"{run.repeatability:.2%}",
        UNKNOWN if run.difference is None else f"{run.difference:.2g}",
    )


def size_cells(model: Subject, first: Subject) -> Cells:
    """Each size, and its share of the first model's."""
    pairs = (
        (model.bytes, first.bytes, "B"),
        (model.parameters, first.parameters, ""),
        (model.multiply_adds, first.multiply_adds, ""),
    )
    return tuple(
        amount(own, unit) + (f" ({own / whole:.0%})" if own and whole and own != whole else "")
        for own, whole, unit in pairs
    )


def ratio(found: Ratio | None) -> str:
    """A ratio with its interval."""
    if found is None:
        return UNKNOWN
    if found.low == found.high == 1.0:
        return "1×"
    return f"{found.value:.3g}× ({found.low:.3g}–{found.high:.3g})"


def seconds(time: float | None) -> str:
    """A time with three digits.

    >>> seconds(0.0123), seconds(4.2e-05), seconds(None)
    ('12.3 ms', '42 µs', '–')
    """
    if time is None:
        return UNKNOWN
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if time >= size:
            return f"{time / size:.3g} {unit}"
    return f"{time / 1e-6:.3g} µs"


def amount(number: float | None, unit: str = "") -> str:
    """A count with three digits.

    >>> amount(999), amount(1234567), amount(20_000, "B")
    ('999', '1.23 M', '20 kB')
    """
    if number is None:
        return UNKNOWN
    for prefix, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= size:
            return f"{number / size:.3g} {prefix}{unit}"
    return f"{number:.3g} {unit}".strip()


def errors(found: Comparison) -> Iterator[str]:
    """What could not be measured, and why."""
    for name, model in zip(short_names(found), found.models, strict=True):
        if model.error:
            yield model.error if model.file in model.error else f"{name}: {model.error}"
    for place in found.targets:
        if place.error:
            yield place.error
        for name, row in named_lines(found, place):
            if row.error:
                yield f"{name} on {place.target}: {row.error}"
            yield from (f"{w}: {run.error}" for w, run in runs(name, place, row) if run.error)


def remarks(found: Comparison) -> Iterator[str]:
    """Batch sizes left out, ratios that mean little, and outputs that differ between machines."""
    for place in found.targets:
        for name, row in named_lines(found, place):
            for where, run in runs(name, place, row):
                if run.left_out:
                    yield f"note: {where} is left out: {run.left_out}"
                if run.speedup and run.speedup.is_vague:
                    yield (
                        f"warning: {where}: the times spread too much for a ratio "
                        f"({run.speedup.low:.3g} to {run.speedup.high:.3g}); "
                        "close other programs or raise --seconds"
                    )
                if run.repeatability is not None and run.repeatability > NOTABLE_SPREAD:
                    yield f"warning: {where}: the counts repeat only within {run.repeatability:.1%}"
                if run.difference is None and is_elsewhere(place) and (run.p50 or run.instructions):
                    yield f"warning: {where}: its outputs could not be compared with this machine's"
                elif run.difference is not None and run.difference > NOTABLE_DIFFERENCE:
                    yield (
                        f"warning: {where}: its outputs differ from this machine's by "
                        f"{run.difference:.2g} of the largest"
                    )


def is_elsewhere(place: Place) -> bool:
    """Whether outputs come from another processor."""
    return place.target != "cpu"


def named_lines(found: Comparison, place: Place) -> Iterator[tuple[str, Line]]:
    """Every model's line on a target, if it has any."""
    return zip(short_names(found), place.lines, strict=bool(place.lines))


def runs(name: str, place: Place, row: Line) -> Iterator[tuple[str, Latency]]:
    """Every batch size, and how to speak of it."""
    return ((f"{name} on {place.target}, batch {run.batch}", run) for run in row.latencies)
