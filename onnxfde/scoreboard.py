"""What `bench` prints: for each target a table, models as rows, ratios to the first model first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from onnxfde.comparison import Comparison, Latency, Line, Place, Subject
from onnxfde.console import console, line
from onnxfde.ratios import Ratio

WIDE = 128
UNKNOWN = "–"
SIZES = ("size", "parameters", "mult-adds")
TIMES = ("batch", "speed-up (95 %)", "p50", "p90", "min", "load", "memory")
COUNTS = ("batch", "fewer", "instructions", "SIMD", "repeats within", "differs from here")
NOTABLE_DIFFERENCE = 1e-5


def show_comparison(found: Comparison) -> None:
    """All targets, then what to be wary of."""
    out = console()
    names = short_names(found)
    wide = out.width >= WIDE
    if not wide or not any(place.lines for place in found.targets):
        out.print(size_table(names, found.models))
    for place in found.targets:
        if place.error is None:
            line(out, heading(place, found))
            out.print(target_table(names, found.models, place, wide))
    for text in (*errors(found), *remarks(found)):
        line(out, text)


def short_names(found: Comparison) -> list[str]:
    """File names, with their folders where they would be mistaken for each other."""
    files = [model.file for model in found.models]
    names = Counter(Path(file).name for file in files)
    return [Path(f).name if names[Path(f).name] == 1 else f for f in files]


def heading(place: Place, found: Comparison) -> str:
    """What was measured where."""
    threads = found.settings["threads"]
    what = f"{threads} thread{'s' * (threads > 1)}"
    if place.counts:
        what = "instructions per run (a cost, not a time)"
    return f"{place.target}: {place.machine}, onnxruntime {place.onnxruntime}, {what}"


def size_table(names: list[str], models: tuple[Subject, ...]) -> Table:
    """Sizes alone."""
    table = plain_table("model", *SIZES)
    for name, model in zip(names, models, strict=True):
        table.add_row(Text(name), *sizes(model, models[0]))
    return table


def target_table(names: list[str], models: tuple[Subject, ...], place: Place, wide: bool) -> Table:
    """One target: a section a batch size, a row a model."""
    columns = COUNTS if place.counts else TIMES
    table = plain_table("model", *columns, *(SIZES if wide else ()))
    batches = dict.fromkeys(r.batch for row in place.lines for r in row.latencies)
    for batch in sorted(batches):
        for name, model, row in zip(names, models, place.lines, strict=True):
            run = next((r for r in row.latencies if r.batch == batch), Latency(batch))
            cells = count_cells(run) if place.counts else time_cells(run, row)
            more = sizes(model, models[0]) if wide else ()
            table.add_row(Text(name), str(batch), *cells, *more)
        table.add_section()
    return table


def plain_table(*columns: str) -> Table:
    """A table without walls; all columns but the first are numbers."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for i, column in enumerate(columns):
        table.add_column(column, justify="right" if i else "left", no_wrap=bool(i))
    return table


def time_cells(run: Latency, row: Line) -> tuple[str, ...]:
    """The ratio, then what was measured."""
    times = (seconds(t) for t in (run.p50, run.p90, run.least, row.load))
    return (ratio(run.speedup), *times, amount(row.peak_memory, "B"))


def count_cells(run: Latency) -> tuple[str, ...]:
    """The ratio, then what was counted."""
    exact = (run.repeatability, run.difference)
    spread, differs = (UNKNOWN if x is None else f"{x:.2g}" for x in exact)
    return (
        UNKNOWN if run.speedup is None else f"{run.speedup.value:.3g}×",
        amount(run.instructions),
        amount(run.simd),
        spread,
        differs,
    )


def sizes(model: Subject, first: Subject) -> tuple[str, ...]:
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
            yield f"{name}: {model.error}"
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
                    yield f"{where}: {run.left_out}"
                if run.speedup and run.speedup.is_vague:
                    yield (
                        f"warning: {where}: the times spread too much for a ratio "
                        f"({run.speedup.low:.3g} to {run.speedup.high:.3g}); "
                        "close other programs or raise --seconds"
                    )
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
