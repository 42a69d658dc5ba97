"""What `bench` prints: one table per target, one row per model, ratios to the first model first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console

from onnxfde.command.tables import UNKNOWN, UNLIMITED, Cells, Grid, show_first_that_fits
from onnxfde.command.terminal import console, print_line
from onnxfde.machines.ratios import Ratio
from onnxfde.machines.results import BatchResult, Comparison, ModelResult, ModelSize, TargetResult
from onnxfde.machines.targets.base import Figure

SIZE_COLUMNS = ("size", "parameters", "mult-adds")
LOAD_COLUMNS = ("load", "memory")
TIME_COLUMNS = ("batch", "speed-up (95 %)", "p50", "p90", "min")
COUNT_COLUMNS = ("batch", "fewer", "instructions", "SIMD", "varies", "differs")
WITHOUT_CALL = "without\ncall"
"""The column of ratios without the call, behind "fewer"."""
NOTABLE_CALL = 0.1
"""Share of the instructions that is the call from which on ratios without it are shown. Chosen: a
ratio of 2 then becomes one of about 2.2; not tuned."""
NOTABLE_SPREAD = 0.01
"""Spread of counts that deserves a warning: three times the largest, 0.32 % in
benchmarks/latency/RESULTS.md."""


def show_comparison(found: Comparison, out: Console | None = None) -> None:
    """Print a table for each target, then errors and warnings."""
    if out is None:
        out = console()
        out.width = out.width if out.is_terminal else UNLIMITED
    for result in found.targets:
        if result.error is None:
            print_line(out, heading(result, found))
            show_target(out, found, result)
    if all(result.error for result in found.targets):
        show_first_that_fits(out, [size_grid(found, None)])
    for text in (*errors(found), *remarks(found)):
        print_line(out, text)


def show_target(out: Console, found: Comparison, result: TargetResult) -> None:
    """Print one table, or two if the terminal is too narrow for one."""
    whole = target_grid(found, result, sizes=True)
    parts = [target_grid(found, result, sizes=False), size_grid(found, result)]
    show_first_that_fits(out, [whole], parts)
    if any(run.figures for row in result.lines for run in row.latencies):
        show_first_that_fits(out, [figure_grid(found, result)])


def short_names(found: Comparison) -> list[str]:
    """The names of the models' files, with folders where two files have the same name."""
    files = [model.file for model in found.models]
    names = Counter(Path(file).name for file in files)
    return [Path(f).name if Path(f).name and names[Path(f).name] == 1 else f for f in files]


def heading(result: TargetResult, found: Comparison) -> str:
    """The line above a table: the machine, and what was measured."""
    threads = found.settings["threads"]
    what = f"{threads} thread{'s' * (threads > 1)}"
    if result.counts:
        what = "instructions per run (a cost, not a time)"
    engine = f"onnxruntime {result.onnxruntime}, {what}"
    return f"{result.target}: {result.machine}, {result.engine or engine}"


def size_grid(found: Comparison, result: TargetResult | None) -> Grid:
    """One row per model: the figures that do not depend on the batch size."""
    timed = result is not None and not result.counts
    rows: list[Cells] = []
    for i, (name, model) in enumerate(zip(short_names(found), found.models, strict=True)):
        state = load_cells(result.lines[i]) if result is not None and timed else ()
        rows.append((name, *state, *size_cells(model, found.models[0])))
    return Grid(("model", *(LOAD_COLUMNS if timed else ()), *SIZE_COLUMNS), [rows])


def target_grid(found: Comparison, result: TargetResult, sizes: bool) -> Grid:
    """One section per batch size, one row per model."""
    state = LOAD_COLUMNS if sizes and not result.counts else ()
    costs, small = COUNT_COLUMNS if result.counts else TIME_COLUMNS, call_is_notable(result)
    if small:
        costs = (*costs[:2], WITHOUT_CALL, *costs[2:])
    batches = sorted({run.batch for row in result.lines for run in row.latencies})
    sections = []
    for batch in batches or [0]:
        rows: list[Cells] = []
        for (name, row), model in zip(named_results(found, result), found.models, strict=True):
            run = next((r for r in row.latencies if r.batch == batch), BatchResult(batch))
            cells = count_cells(run, small) if result.counts else time_cells(run)
            more = (*(load_cells(row) if state else ()), *size_cells(model, found.models[0]))
            rows.append((name, str(batch or UNKNOWN), *cells, *(more if sizes else ())))
        sections.append(rows)
    return Grid(("model", *costs, *state, *(SIZE_COLUMNS if sizes else ())), sections)


def figure_grid(found: Comparison, result: TargetResult) -> Grid:
    """One section per batch size, one row per figure, one column per model."""
    sections = []
    for batch in sorted({run.batch for row in result.lines for run in row.latencies}):
        runs = [
            next((run for run in row.latencies if run.batch == batch), BatchResult(batch))
            for row in result.lines
        ]
        known = [{figure.name: figure for figure in run.figures} for run in runs]
        names = dict.fromkeys(name for figures in known for name in figures)
        rows: list[Cells] = [(f"batch {batch}", *("" for _ in runs))]
        rows += [(name, *(figure_cell(figures.get(name)) for figures in known)) for name in names]
        rows.append(("error", *(share_cell(run.difference) for run in runs)))
        sections.append(rows)
    return Grid(("", *short_names(found)), sections)


def figure_cell(figure: Figure | None) -> str:
    """A figure in its unit; whole numbers in full."""
    if figure is None:
        return UNKNOWN
    if figure.unit:
        return seconds(figure.value) if figure.unit == "s" else amount(figure.value, figure.unit)
    return f"{figure.value:,.0f}"


def share_cell(difference: float | None) -> str:
    """A difference from this machine's outputs."""
    return UNKNOWN if difference is None else f"{difference:.2g}"


def time_cells(run: BatchResult) -> Cells:
    """The speed-up, then the times."""
    return (ratio_cell(run.speedup), *(seconds(t) for t in (run.p50, run.p90, run.least)))


def load_cells(row: ModelResult) -> Cells:
    """Load time and memory."""
    return seconds(row.load), amount(row.peak_memory, "B")


def count_cells(run: BatchResult, without_call: bool) -> Cells:
    """The ratio of instructions, perhaps the one without the call, then the counts."""
    rest = run.speedup_without_call
    return (
        UNKNOWN if run.speedup is None else f"{run.speedup.value:.3g}×",
        *((UNKNOWN if rest is None else f"{rest:.3g}×",) if without_call else ()),
        amount(run.instructions),
        amount(run.simd),
        UNKNOWN if run.repeatability is None else f"{run.repeatability:.2%}",
        share_cell(run.difference),
    )


def call_is_notable(result: TargetResult) -> bool:
    """Whether the call is a notable share of any count."""
    return max(call_shares(result), default=0.0) > NOTABLE_CALL


def call_shares(result: TargetResult) -> list[float]:
    """The share of the call in each count."""
    runs = ((row.call, run.instructions) for row in result.lines for run in row.latencies)
    return [call / instructions for call, instructions in runs if call and instructions]


def size_cells(model: ModelSize, first: ModelSize) -> Cells:
    """Each size, with the percentage of the first model's size."""
    pairs = (
        (model.bytes, first.bytes, "B"),
        (model.parameters, first.parameters, ""),
        (model.multiply_adds, first.multiply_adds, ""),
    )
    return tuple(
        amount(own, unit) + (f" ({own / whole:.0%})" if own and whole and own != whole else "")
        for own, whole, unit in pairs
    )


def ratio_cell(found: Ratio | None) -> str:
    """A ratio with its confidence interval."""
    if found is None:
        return UNKNOWN
    if found.low == found.high == 1.0:
        return "1×"
    return f"{found.value:.3g}× ({found.low:.3g}–{found.high:.3g})"


def seconds(time: float | None) -> str:
    """A time with three significant digits.

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
    """A count with three significant digits.

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
    """One line for each thing that could not be measured, with the reason."""
    for name, model in zip(short_names(found), found.models, strict=True):
        if model.error:
            yield model.error if model.file in model.error else f"{name}: {model.error}"
    for result in found.targets:
        if result.error and found.readable:
            yield result.error
        for name, row in named_results(found, result):
            if row.error:
                yield f"{name} on {result.target}: {row.error}"
            yield from (
                f"{w}: {run.error}" for w, run in described_runs(name, result, row) if run.error
            )


def remarks(found: Comparison) -> Iterator[str]:
    """Notes on the call and batch sizes left out, warnings about ratios, counts and outputs."""
    for result in found.targets:
        if call_is_notable(result):
            yield call_remark(result)
        for name, row in named_results(found, result):
            for where, run in described_runs(name, result, row):
                yield from run_remarks(where, run, result)


def call_remark(result: TargetResult) -> str:
    """How much of the counts is the call itself."""
    shares = call_shares(result)
    calls = [row.call for row in result.lines if row.call]
    low, high = f"{min(shares):.0%}", f"{max(shares):.0%}"
    return (
        f"note: on {result.target} a call takes {amount(max(calls))} instructions whatever the "
        f"model, {low if low == high else f'{low} to {high}'} of the counts; 'without call' "
        "compares the rest"
    )


def run_remarks(where: str, run: BatchResult, result: TargetResult) -> Iterator[str]:
    """Notes and warnings about one run."""
    if run.left_out:
        yield f"note: {where} is left out: {run.left_out}"
    if run.speedup and run.speedup.is_vague:
        yield (
            f"warning: {where}: the times vary too much for a ratio "
            f"({run.speedup.low:.3g} to {run.speedup.high:.3g}); "
            "close other programs or raise --seconds"
        )
    if run.repeatability is not None and run.repeatability > NOTABLE_SPREAD:
        yield f"warning: {where}: repeated counts differ by {run.repeatability:.1%}"
    if run.difference is None and is_elsewhere(result) and (run.p50 or run.instructions):
        yield f"warning: {where}: its outputs could not be compared with this machine's"
    elif run.difference is not None and run.difference > result.notable_difference:
        yield (
            f"warning: {where}: its outputs differ from this machine's by "
            f"{run.difference:.2g} of the largest"
        )


def is_elsewhere(result: TargetResult) -> bool:
    """Whether the outputs come from another processor than this machine's."""
    return result.target != "cpu"


def named_results(found: Comparison, result: TargetResult) -> Iterator[tuple[str, ModelResult]]:
    """The name and the result of each model on a target that could be used."""
    return zip(short_names(found), result.lines, strict=bool(result.lines))


def described_runs(
    name: str, result: TargetResult, row: ModelResult
) -> Iterator[tuple[str, BatchResult]]:
    """Each run of a model on a target, with a description for messages."""
    return ((f"{name} on {result.target}, batch {run.batch}", run) for run in row.latencies)
