"""The progress bar, the groups of failures, and the page with all figures."""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from statistics import quantiles

from benchmarks.common.table import Section, write_sections
from benchmarks.fuzz.engine import CPU_SECONDS, IDLE_SECONDS, WALL_SECONDS
from benchmarks.fuzz.finding import Outcome
from benchmarks.fuzz.judging import MOST_MEGABYTES

SCRIPT = str(Path(__file__).parents[1] / "fuzz.py")
"""Names the page and the command on it."""
FAILURES = ("traceback", "boundary", "hang", "memory", "signal", "exit code", "warning", "noise",
            "not one line", "changed", "OUT", "stray", "left in", "bad JSON")  # fmt: skip
"""What the page counts: problems by their first words."""


def watched(outcomes: Iterable[Outcome], total: int) -> list[Outcome]:
    """All outcomes, with a bar while they come in."""
    from rich.console import Console
    from rich.progress import Progress

    found = []
    with Progress(console=Console(stderr=True), disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task("fuzzing", total=total)
        for outcome in outcomes:
            found.append(outcome)
            bar.update(task, advance=1)
            if outcome.problems:
                bar.console.print(
                    f"{outcome.seed}: {outcome.signature}", markup=False, soft_wrap=True
                )
    return found


def groups(outcomes: Iterable[Outcome]) -> list[list[Outcome]]:
    """Failures with the same signature, the most frequent first, the smallest number first."""
    by_signature: dict[str, list[Outcome]] = defaultdict(list)
    for outcome in outcomes:
        if outcome.problems:
            by_signature[outcome.signature].append(outcome)
    ordered = sorted(by_signature.values(), key=len, reverse=True)
    return [sorted(group, key=lambda o: (o.number, o.name)) for group in ordered]


def finds(outcomes: Iterable[Outcome]) -> str:
    """One paragraph per group of failures."""
    found = list(outcomes)
    codes = Counter(o.code for o in found)
    parts = [
        f"{len(found):,} inputs, {sum(bool(o.problems) for o in found):,} failures, "
        f"{sum(o.seconds for o in found):.0f} CPU seconds, "
        f"exit codes {', '.join(f'{code}: {n:,}' for code, n in sorted(codes.items()))}"
    ]
    for group in groups(found):
        first = group[0]
        seeds = " ".join(o.seed for o in group[:4])
        parts.append(f"{len(group)} × {first.signature}\n  {seeds}\n  {first.line}\n  {first.last}")
    return "\n".join(parts)


def write(outcomes: list[Outcome], seconds: float, jobs: int, load: str) -> None:
    """Write fuzz.md, and print it."""
    problems = Counter(
        kind for o in outcomes for kind in FAILURES if any(p.startswith(kind) for p in o.problems)
    )
    rate = len(outcomes) / seconds if seconds else 0.0
    note = (
        f"Options: {shown_options(sys.argv[1:])}. "
        f"{len(outcomes):,} inputs in {seconds / 60:.0f} minutes by {jobs} processes "
        f"({rate:.0f} per second). {load} A run hangs after {CPU_SECONDS} s of CPU time, "
        f"{IDLE_SECONDS} s without any, or {WALL_SECONDS} s on the clock; more than "
        f"{MOST_MEGABYTES} MB is too much memory."
    )
    sections = [
        Section("What must not happen", "what | times", [(k, problems[k]) for k in FAILURES]),
        Section("By command", "command | inputs | 0 | 1 | 2 | 3 | failures", by_command(outcomes)),
        Section("Cost of one run", "what | median | 90 % | 99 % | most", costs(outcomes)),
    ]
    lines = [(len(g), g[0].signature.replace("|", "/"), g[0].seed) for g in groups(outcomes)]
    if lines:
        sections.append(Section("Failures", "times | signature | first", lines))
    write_sections(SCRIPT, "Broken, odd and hostile files", sections, note)


def shown_options(words: list[str]) -> str:
    """The options of this run, without the folder of another checkout."""
    shown = ["FOLDER" if before == "--package" else w for before, w in pairwise(["", *words])]
    return " ".join(shown) or "none"


def by_command(outcomes: list[Outcome]) -> list[tuple[object, ...]]:
    """How often each command ended with each exit code."""
    rows: list[tuple[object, ...]] = []
    for command in sorted({o.command for o in outcomes}):
        own = [o for o in outcomes if o.command == command]
        codes = Counter(o.code for o in own)
        failed = sum(bool(o.problems) for o in own)
        shown = command if command.isalpha() else "(none)"
        rows.append((shown, len(own), *(codes[c] for c in range(4)), failed))
    return rows


def costs(outcomes: list[Outcome]) -> list[tuple[object, ...]]:
    """Quantiles of CPU time and of memory."""
    rows: list[tuple[object, ...]] = []
    for name, values in (
        ("CPU seconds", [o.seconds for o in outcomes]),
        ("peak MB", [o.megabytes for o in outcomes]),
    ):
        cuts = quantiles(values, n=100) if len(values) > 1 else values * 99
        rows.append((name, *(f"{v:.3g}" for v in (cuts[49], cuts[89], cuts[98], max(values)))))
    return rows
