"""The page of results: all networks at a glance, then a table for each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path

from benchmarks.common import table
from benchmarks.common.found_cells import Found, Result
from benchmarks.real.cells import INT8, ORIGINAL, SIZES
from benchmarks.real.remarks import WHY
from benchmarks.real.subject import Subject

NOTE = """Networks as people deploy them, default options, one thread, no labels to fit to.
Items that are judged were never given to the tool. Brackets: 95 % intervals; those of a change are
of the difference item by item. "Multiply-adds" are counted in the written file, with the shapes of
a run. "Time": one run of one sample with one thread as a share of the original's, both in turns.
"Seconds" and "MB": the whole command, wall time (CPU time) and peak memory."""
GOALS = ("--max-drop 1", "--max-error 5%")
GLANCE = " | ".join(("network", "score", "original", *SIZES, "goal: multiply-adds, score", *INT8))
HEADER = "options | multiply-adds | bytes | score | change | time | seconds | MB | what was said"


def result_of(found: Found, net: str, command: str) -> Result:
    """The result of a cell on whatever state of the code; empty if it was not run."""
    prefix = f"{net} | {command} | "
    return next((r for key, r in found.results.items() if key.startswith(prefix)), {})


def points(value: float, metric: str = "") -> str:
    """A score or a change of it: in percent, or in what the metric says.

    >>> points(0.8984), points(-0.0123), points(-0.0001), points(4.25, "gain in dB")
    ('89.8', '−1.2', '0.0', '4.25')
    """
    text = f"{value:.2f}" if "dB" in metric else f"{100 * value:.1f}"
    return text.replace("-", "−") if float(text) else text.lstrip("-")


def with_interval(found: Result, metric: str) -> str:
    """A score or a change of it, and its interval."""
    ends = found["interval"]
    between = f" ({points(ends[0], metric)} to {points(ends[1], metric)})" if ends else ""
    return points(found["value"], metric) + between


def share(result: Result, original: Result, name: str) -> str:
    """What is left of something, in percent; nothing where it is not known."""
    if not result.get(name) or not original.get(name):
        return "–"
    return f"{points(result[name] / original[name])} %"


def score_text(result: Result, metric: str) -> str:
    """A score, or that there is none."""
    if "score" in result:
        return points(result["score"]["value"], metric)
    return "refused" if result else ""


def glance_rows(found: Found, subjects: Iterable[Subject]) -> Iterator[list[str]]:
    """One line for each network."""
    for subject in subjects:
        first = result_of(found, subject.name, ORIGINAL)
        if not first:
            continue
        sizes = [result_of(found, subject.name, f"--max-macs {size}") for size in SIZES]
        eight = [result_of(found, subject.name, kind) for kind in INT8]
        goal = next((r for name in GOALS if (r := result_of(found, subject.name, name))), {})
        text = partial(score_text, metric=subject.metric)
        reached = f"{share(goal, first, 'macs')}, {text(goal)}" if goal else ""
        yield [subject.name, subject.metric, text(first), *map(text, sizes), reached,
               *map(text, eight)]  # fmt: skip


def cell_row(command: str, result: Result, original: Result, metric: str) -> list[str]:
    """One line of a network's table."""
    took = ["", ""]
    if "seconds" in result:
        took = [f"{result['seconds']:,.0f} ({result['cpu']:,.0f})", f"{result['megabytes']:,.0f}"]
    said = result.get("said", "").removeprefix("onnxfde: ").replace("|", "\\|")
    name = f"`{command}`" if command.startswith("--") else command
    if "score" not in result:
        return [name, "", "", "", "", "", *took, f"**{said or result.get('code')}**"]
    time, change = "", ""
    if command != ORIGINAL:
        change = with_interval(result["change"], metric)
        if "latency" in result:
            low, high = map(points, result["latency"]["interval"])
            time = f"{points(result['latency']['ratio'])} % ({low} to {high})"
    elif "latency" in result:
        time = f"{result['latency']['ms']:.2f} ms"
    sizes = [share(result, original, "macs"), share(result, original, "bytes")]
    if command == ORIGINAL:
        sizes = [f"{result['macs']:,}" if result["macs"] else "–", f"{result['bytes']:,}"]
    return [name, *sizes, with_interval(result["score"], metric), change, time, *took, said]


def subject_rows(found: Found, subject: Subject) -> Iterator[list[str]]:
    """The lines of a network's table."""
    original = result_of(found, subject.name, ORIGINAL)
    sizes = (f"--max-macs {size}" for size in SIZES)
    for command in (ORIGINAL, "--eps 0", *sizes, *GOALS, *INT8):
        result = result_of(found, subject.name, command)
        if result:
            yield cell_row(command, result, original, subject.metric)


def about(found: Found, subject: Subject) -> str:
    """What a network is, what it was given, and by which command."""
    any_made = (result_of(found, subject.name, f"--max-macs {size}") for size in SIZES)
    shown = next((r["shown"] for r in any_made if "shown" in r), "")
    template = shown.rsplit(" --max-macs", 1)[0]
    unit = "" if "dB" in subject.metric else ", in percent"
    lines = [
        f"{subject.about}. Score: {subject.metric}{unit}. "
        f"Given: {subject.given}. Judged on: {subject.judged}."
    ]
    if template:
        lines.append(
            f"Files in `benchmarks/.cache/real/{subject.name}`: `{template} OPTIONS`; all again: "
            f"`python -m benchmarks.real {subject.name}`."
        )
    return "\n".join(lines)


def alone_rows(found: Found, subjects: Iterable[Subject]) -> Iterator[list[object]]:
    """What the tool leaves alone, and why."""
    for subject in subjects:
        made = (result_of(found, subject.name, f"--max-macs {size}") for size in SIZES)
        lossless = result_of(found, subject.name, "--eps 0")
        alone: dict[str, int] = next((r["alone"] for r in (lossless, *made) if r.get("alone")), {})
        for reason, count in sorted(alone.items(), key=lambda item: -item[1]):
            yield [subject.name, count, reason.replace("|", "\\|")]


def page_text(found: Found, subjects: tuple[Subject, ...]) -> str:
    """The page."""
    note = f"{NOTE}\n\nCode of onnxfde (SHA-256 of its files): {sources_text(found)}."
    parts = [table.Section("At a glance: scores", GLANCE, glance_rows(found, subjects)).text()]
    for subject in subjects:
        rows = list(subject_rows(found, subject))
        if rows:
            section = table.Section("", HEADER, rows).text()
            parts.append(f"## {subject.name}\n\n{about(found, subject)}\n\n{section}")
    why = ((s.name, WHY[s.name]) for s in subjects if s.name in WHY)
    parts.append(table.Section("Why", "network | reason", why).text())
    header = "network | places | why they are left alone"
    parts.append(table.Section("Left alone", header, alone_rows(found, subjects)).text())
    head = table.text("real", "Networks that people deploy", (), note)
    return head + "\n" + "\n\n".join(parts) + "\n"


def sources_text(found: Found) -> str:
    """On which states of the code networks were measured."""
    nets: dict[str, set[str]] = {}
    for key in found.results:
        net, command, source = key.split(" | ")
        if command.startswith("--"):
            nets.setdefault(source, set()).add(net)
    if len(nets) < 2:
        return "".join(nets)
    return "; ".join(f"{source}: {', '.join(sorted(names))}" for source, names in nets.items())


def write_page(found: Found, subjects: tuple[Subject, ...], path: Path) -> None:
    """Write the page."""
    path.write_text(page_text(found, subjects))


def quick_rows(found: Found, kept: Found, subjects: Iterable[Subject]) -> Iterator[list[str]]:
    """What was measured now beside what is checked in."""
    for subject in subjects:
        net = subject.name
        for size in SIZES:
            now, before = (result_of(f, net, f"--max-macs {size}") for f in (found, kept))
            original = result_of(kept, net, ORIGINAL)
            if now:
                yield [net, f"--max-macs {size}", *both(now, before, original, subject.metric)]


def both(now: Result, before: Result, original: Result, metric: str) -> list[str]:
    """Multiply-adds, score and CPU seconds, before → now."""
    macs = [share(r, original, "macs") for r in (before, now)]
    scores = [with_interval(r["score"], metric) if "score" in r else r.get("said", "–")
              for r in (before, now)]  # fmt: skip
    seconds = [f"{r['cpu']:.0f}" if "cpu" in r else "–" for r in (before, now)]
    return [" → ".join(pair) for pair in (macs, scores, seconds)]
