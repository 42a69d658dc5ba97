"""The page: what became of every group, refusals by reason, failures, and what was merged."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

from benchmarks.common.table import Section
from benchmarks.corpus.cases import Case, Source
from benchmarks.corpus.judging import EPS, Outcome, general
from benchmarks.corpus.results import Outcomes

Judged = dict[Case, Outcomes]

VERDICTS = ("identical", "equal", "within ε", "above ε", "uncompared", "refused", "failed")


def sections(sources: list[Source], found: Judged) -> list[Section]:
    """All tables of the page."""
    return [
        Section("Outcomes", f"group | models | {headings()} | CPU s | MB", list(groups(found))),
        Section("Failures", "model | command | what happened", list(failures(found))),
        Section("Refusals", "reason | ε | models | onnxruntime loads | checker accepts | for example",
                list(refusals(found))),
        Section("What was merged", "model | layers | parameters | ε = 0 | ε = 0.1 | change at 0.1",
                list(merged(found))),
        Section("Where the models are from", "source | version | models | skipped because",
                [(s.name, s.version, len(s.cases), s.skipped) for s in sources]),
    ]  # fmt: skip


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
    order = sorted(counts, key=lambda verdict: ("shown", *VERDICTS).index(verdict))
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
        yield f"{case.group}/{case.name}", command_of(what), cell(outcome.reason)


def refusals(found: Judged) -> Iterator[tuple[object, ...]]:
    """One row per reason, most frequent first."""
    reasons: dict[tuple[str, str], list[tuple[Case, Outcome]]] = defaultdict(list)
    for case, what, outcome in each(found, "refused"):
        reasons[general(outcome.reason), what].append((case, outcome))
    for (reason, what), rows in sorted(reasons.items(), key=lambda row: -len(row[1])):
        loads = sum(bool(outcome.detail.get("loads")) for _, outcome in rows)
        valid = sum(not outcome.detail.get("checker", "?") for _, outcome in rows)
        yield cell(reason), what, len(rows), loads, valid, f"{rows[0][0].group}/{rows[0][0].name}"


def merged(found: Judged) -> Iterator[tuple[object, ...]]:
    """One row per model in which a layer was merged or folded."""
    for case, outcomes in found.items():
        exact, loose = (outcomes[eps] for eps in EPS)
        if any(outcome.verdict in VERDICTS[1:5] for outcome in (exact, loose)):
            detail = loose.detail
            change = detail.get("change")
            yield (
                f"{case.group}/{case.name}",
                detail.get("merged", "–"),
                parameters(detail or exact.detail),
                exact.verdict,
                loose.verdict,
                "–" if change is None else f"{change:.2g}",
            )


def parameters(detail: dict[str, dict[str, int]]) -> str:
    """Parameters before and after."""
    change = detail.get("parameters", {"before": 0, "after": 0})
    return f"{change['before']:,} → {change['after']:,}"


def each(found: Judged, verdict: str) -> Iterator[tuple[Case, str, Outcome]]:
    """All outcomes with this verdict."""
    for case, outcomes in found.items():
        for what, outcome in outcomes.items():
            if outcome.verdict == verdict:
                yield case, what, outcome


def command_of(what: str) -> str:
    """The command behind a column."""
    return what if what == "inspect" else f"optimize --eps {what}"


def cell(text: str) -> str:
    """A text that fits into a cell of a table."""
    return text.replace("|", "\\|").replace("\n", " ")[:300]
