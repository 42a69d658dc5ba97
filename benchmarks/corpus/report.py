"""The page: what became of every group, refusals by reason, failures, and what was merged."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

from benchmarks.common.table import Section
from benchmarks.corpus.cases import Case, Source
from benchmarks.corpus.judging import EPS, MEANINGS, Outcome, general
from benchmarks.corpus.results import Outcomes

Judged = dict[Case, Outcomes]

WRITTEN = {"equal", "within ε", "within kε", "above ε", "uncompared"}
"""Verdicts on a result that is another file than the original."""
ALARMING = {"above ε", "uncompared", "refused", "failed"}
MATRICES = ("torch", "keras")
"""Groups whose models are named by the way they were exported, then by the network."""
REFUSAL_HEADER = "reason | command | models | onnxruntime loads | checker accepts | for example"
MERGED_HEADER = "model | layers | parameters | ε = 0 | ε = 0.1 | change | change by its report"


def sections(sources: list[Source], found: Judged) -> list[Section]:
    """All tables of the page."""
    matrices = [matrix(group, found) for group in MATRICES]
    return [
        Section("Outcomes", f"group | models | {headings()} | CPU s | MB", list(groups(found))),
        Section("What the outcomes mean", "outcome | meaning", list(MEANINGS.items())),
        Section("Failures", "model | command | what happened", list(failures(found))),
        Section("Refusals", REFUSAL_HEADER, list(refusals(found))),
        Section("Smaller without loss (ε = 0), besides the exporters' matrix",
                "model | layers | parameters | left", list(smaller_without_loss(found))),
        Section("Merged, besides the exporters' matrix", MERGED_HEADER, list(merged(found))),
        *(section for section in matrices if section.rows),
        Section("Where the models are from", "source | version | models | skipped because",
                [(s.name, s.version, len(s.cases), s.skipped) for s in sources]),
    ]  # fmt: skip


def matrix(group: str, found: Judged) -> Section:
    """One row per network, one column per way to export it."""
    cells: dict[str, dict[str, str]] = defaultdict(dict)
    for case, outcomes in found.items():
        if case.group == group:
            way, _, network = case.name.partition(" ")
            cells[network][way] = summary(*(outcomes[eps] for eps in EPS))
    ways = sorted({way for row in cells.values() for way in row})
    rows = [(name, *(row.get(way, "") for way in ways)) for name, row in sorted(cells.items())]
    title = (
        f"Networks exported by {group}: layers merged at ε = 0 and 0.1, change of outputs at 0.1"
    )
    return Section(title, " | ".join(["network", *ways]), rows)


def summary(exact: Outcome, loose: Outcome) -> str:
    """What became of a network, in a few characters."""
    if {exact.verdict, loose.verdict} == {"identical"}:
        return "copied"
    bad = [o.verdict for o in (exact, loose) if o.verdict in ALARMING]
    counts = " → ".join(str(o.detail.get("merged", "?")) for o in (exact, loose))
    return ", ".join([counts, f"{loose.detail.get('change', 0):.2g}", *bad])


def headings() -> str:
    """The columns of the outcomes: one for `inspect`, one for each ε."""
    return " | ".join(["inspect", *(f"ε = {eps}" for eps in EPS)])


def groups(found: Judged) -> Iterator[tuple[object, ...]]:
    """One row per group, and one for all."""
    parts: dict[str, list[Outcomes]] = defaultdict(list)
    for case, outcomes in found.items():
        parts[case.group].append(outcomes)
    for name, rows in [*parts.items(), ("all", list(found.values()))]:
        yield name, len(rows), *(tally(rows, what) for what in ("inspect", *EPS)), *costs(rows)


def tally(rows: Iterable[Outcomes], what: str) -> str:
    """How many of each verdict."""
    counts: dict[str, int] = defaultdict(int)
    for outcomes in rows:
        counts[outcomes[what].verdict] += 1
    order = [verdict for verdict in MEANINGS if verdict in counts]
    return ", ".join(f"{counts[verdict]:,} {verdict}" for verdict in order)


def costs(rows: list[Outcomes]) -> tuple[str, str]:
    """The seconds of all commands together and of the slowest, and the largest memory."""
    all_outcomes = [outcome for outcomes in rows for outcome in outcomes.values()]
    seconds = [outcome.seconds for outcome in all_outcomes]
    memory = max((outcome.megabytes for outcome in all_outcomes), default=0.0)
    return f"{sum(seconds):,.0f}, slowest {max(seconds, default=0):.1f}", f"{memory:,.0f}"


def failures(found: Judged) -> Iterator[tuple[object, ...]]:
    """One row per failure."""
    for case, what, outcome in each(found, "failed"):
        yield f"{case.group}/{case.name}", command_of(what), cell(reason_of(case, outcome))


def refusals(found: Judged) -> Iterator[tuple[object, ...]]:
    """One row per reason, most frequent first."""
    reasons: dict[tuple[str, str], list[tuple[Case, Outcome]]] = defaultdict(list)
    for case, what, outcome in each(found, "refused"):
        reasons[general(reason_of(case, outcome)), what].append((case, outcome))
    for (reason, what), rows in sorted(reasons.items(), key=lambda row: -len(row[1])):
        loads = sum(bool(outcome.detail.get("loads")) for _, outcome in rows)
        valid = sum(not outcome.detail.get("checker", "?") for _, outcome in rows)
        example = f"{rows[0][0].group}/{rows[0][0].name}"
        yield cell(reason), command_of(what), len(rows), loads, valid, example


def merged(found: Judged) -> Iterator[tuple[object, ...]]:
    """One row per model outside the matrix in which something was merged or folded."""
    for case, outcomes in found.items():
        exact, loose = (outcomes[eps] for eps in EPS)
        written = any(outcome.verdict in WRITTEN for outcome in (exact, loose))
        if written and case.group not in MATRICES:
            detail, name = loose.detail, f"{case.group}/{case.name}"
            measured = None if detail.get("uncompared") else detail.get("change")
            changes = (figure(measured), figure(detail.get("claimed")))
            count = detail.get("merged", "–")
            yield name, count, parameters(detail), exact.verdict, loose.verdict, *changes


def smaller_without_loss(found: Judged) -> Iterator[tuple[object, ...]]:
    """One row per model outside the matrix that has fewer parameters at ε = 0."""
    for case, outcomes in found.items():
        detail = outcomes[EPS[0]].detail
        count = detail.get("parameters", {"before": 0, "after": 0})
        if case.group not in MATRICES and count["after"] < count["before"]:
            left = f"{count['after'] / count['before']:.2%}"
            name = f"{case.group}/{case.name}"
            yield name, detail.get("merged", "–"), parameters(detail), left


def figure(value: float | None) -> str:
    """A relative change."""
    return "–" if value is None else f"{value:.2g}"


def parameters(detail: dict[str, Any]) -> str:
    """Parameters before and after."""
    change = detail.get("parameters", {"before": 0, "after": 0})
    return f"{change['before']:,} → {change['after']:,}"


def each(found: Judged, verdict: str) -> Iterator[tuple[Case, str, Outcome]]:
    """All outcomes with this verdict."""
    for case, outcomes in found.items():
        for what, outcome in outcomes.items():
            if outcome.verdict == verdict:
                yield case, what, outcome


def reason_of(case: Case, outcome: Outcome) -> str:
    """The reason without this machine's paths."""
    return outcome.reason.replace(str(case.path), "IN")


def command_of(what: str) -> str:
    """The command behind a column."""
    return what if what == "inspect" else f"optimize --eps {what}"


def cell(text: str) -> str:
    """A text that fits into a cell of a table."""
    return text.replace("|", "\\|").replace("\n", " ")[:300]
