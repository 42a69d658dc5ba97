"""What the project promises about targets, beside what was found."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from benchmarks.common.found_cells import Found, Result
from benchmarks.targets.cells import QUOTIENTS, Cell, compared_cells, error_cells, other_cells
from benchmarks.targets.cells import spending_cells as ways_cells

BAR_HEADER = "promise | found | not met by | "
NO_WORSE = 1.02
"""How much larger than that of another way the error of the greedy one may be."""
MOST_COST = 3.0
"""How many times as long as an ε a target may take."""
LOST = {"refit": 7.0, "minimal": 4.5}
"""Points that ResNet20 may lose with half of its multiply-adds."""


@dataclass(frozen=True)
class Judged:
    """A cell, and whether it keeps a promise."""

    name: str
    good: bool


def row(promise: str, cells: list[Judged], wanted: int, most_bad: int = 0) -> tuple[object, ...]:
    """A line of the table; up to `most_bad` cells may not keep a promise."""
    bad = [cell.name for cell in cells if not cell.good]
    missing = f", {wanted - len(cells)} not run yet" if len(cells) < wanted else ""
    verdict = "pass" if len(bad) <= most_bad else "**fail**"
    text = f"{len(cells) - len(bad)} of {len(cells)}{missing}"
    return promise, text, ", ".join(bad) or "–", verdict if cells else "–"


def judged(
    found: Found, cells: Iterator[Cell], good: Callable[[Cell, Result], bool]
) -> tuple[list[Judged], int]:
    """The cells that were run, and how many there are."""
    every = list(cells)
    known = [(cell, result) for cell in every if (result := found.get(cell))]
    short = [Judged(name(cell), "failed" not in r and good(cell, r)) for cell, r in known]
    return short, len(every)


def name(cell: Cell) -> str:
    """A cell in few words."""
    return f"{cell.net} {cell.words[1]}{'' if cell.quotient == 'refit' else ' minimal'}"


def bar_rows(found: Found) -> Iterator[tuple[object, ...]]:
    """One line per promise."""
    errors = (c for q in QUOTIENTS for c in error_cells(q) if c.part == "error")
    met = judged(found, errors, lambda cell, r: r["error"] <= cell.limit)
    yield row("`--max-error` is met on rows never seen", *met)
    larger = judged(found, compared_cells(), lambda _, r: r["larger"] < 1.1)
    yield row("at most 10 % larger than the best of others within E on test rows", *larger)
    same = judged(found, compared_cells(), lambda cell, r: r["other_error"] >= own(found, cell))
    yield row("the same, of others within the result's own test error", *same)
    yield from other_bars(found)
    yield from way_bars(found)
    ratios = [Judged(name(cell), ratio <= MOST_COST) for cell, ratio in costs(found)]
    yield row("costs at most 3 × one `--eps`", ratios, len(ratios))


def own(found: Found, cell: Cell) -> float:
    """The error of a result on the test rows."""
    result = found.get(Cell(cell.net, "error", cell.words, cell.quotient)) or {}
    return float(result.get("error", 0.0))


def other_bars(found: Found) -> Iterator[tuple[object, ...]]:
    """Sizes, drops and times."""
    goods: dict[str, tuple[str, Callable[[Cell, Result], bool]]] = {
        "size": ("`--max-params 25%` leaves more than 23 % and at most 25 %",
                 lambda _, r: 0.23 < r["params"] / r["all_params"] <= 0.25),
        "drop": ("`--max-drop 0.5` keeps 96.8 % on MNIST's test images",
                 lambda _, r: r["score"] >= 0.968),
        "macs": ("`--max-macs 50%` of ResNet20 loses at most 7 points (refit), 4.5 (minimal)",
                 lambda c, r: 100 * (r["base"] - r["score"]) <= LOST[c.quotient]
                 and r["macs"] <= 0.5 * r["all_macs"]),
        "latency": ("`--max-latency 60%` of ResNet20 holds again (upper end of the interval)",
                    lambda c, r: r["time"][2] <= c.limit),
    }  # fmt: skip
    for part, (promise, good) in goods.items():
        cells = (cell for cell in other_cells() if cell.part == part)
        yield row(promise, *judged(found, cells, good))


def way_bars(found: Found) -> Iterator[tuple[object, ...]]:
    """Greedy spending against others."""
    for other in ("equal ε", "equal share"):
        never, count = judged(found, ways_cells(), lambda _, r: ratio_of(r, other) <= NO_WORSE)  # noqa: B023
        yield row(f"greedy is never worse than {other} by more than 2 %", never, count)
        better, count = judged(found, ways_cells(), lambda _, r: ratio_of(r, other) < 1)  # noqa: B023
        yield row(f"greedy is better than {other} on most", better, count, (len(better) - 1) // 2)


def ratio_of(result: Result, other: str) -> float:
    """The error of greedy spending over that of another way; 0 where that is not possible."""
    ways = result["ways"]
    return float(ways["greedy"][0] / ways[other][0]) if other in ways else 0.0


def costs(found: Found) -> Iterator[tuple[Cell, float]]:
    """CPU time of targets over that of the same ε."""
    for quotient in QUOTIENTS:
        for cell in error_cells(quotient):
            target = found.get(cell)
            eps = found.get(Cell(cell.net, "eps", ("--eps", cell.words[1]), quotient))
            if cell.part == "error" and target and eps:
                yield cell, target["cpu"] / eps["cpu"]
