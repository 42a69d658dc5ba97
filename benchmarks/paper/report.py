"""RESULTS.md: what was run, the bars, the reading, and all tables."""

from __future__ import annotations

from pathlib import Path

from benchmarks.common.table import Section
from benchmarks.paper import checks, reading
from benchmarks.paper.published import SYSTEMS
from benchmarks.paper.store import Store
from benchmarks.paper.tables import (
    Cells,
    base_table,
    counted_table,
    difference_table,
    measured,
    paper_table,
    seeds,
    summarised,
)

FIGURES = """![GRP and MSE against ε, simulated systems](sensitivity-synthetic.png)

![GRP and MSE against ε, public data](sensitivity-public.png)

![MSE against GRP, simulated systems](frontier-synthetic.png)

![MSE against GRP, public data](frontier-public.png)"""


def write(store: Store, folder: Path) -> None:
    """Write the page from all current results."""
    (folder / "RESULTS.md").write_text(page(summarised(store.current())))


def page(cells: Cells) -> str:
    """The whole page."""
    parts = [
        reading.HEAD,
        f"Networks measured: {extent(cells)}.",
        "## What it should show",
        *bars(cells),
        "## Reading",
        reading.summary(cells),
        reading.TEXT,
        "## Figures",
        FIGURES,
        "## Base errors",
        base_table(cells).text(),
        reading.BASE,
        *tables(cells),
        "## Parameters that magnitude pruning and Wanda leave",
        reading.PRUNING,
        difference_table(cells).text(),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def extent(cells: Cells) -> str:
    """Which systems, variants and how many seeds."""
    texts = []
    for variant in (1, 2, 3):
        counts = {s: seeds(cells, s, v) for s, v in measured(cells) if v == variant}
        if counts:
            each = ", ".join(f"{system} {count}" for system, count in counts.items())
            texts.append(f"variant {variant}: {each} seeds")
    return "; ".join(texts)


def bars(cells: Cells) -> list[str]:
    """The bars, with one table per topic."""
    groups = [
        ("Base errors", list(checks.base_checks(cells))),
        (
            "Smaller at the paper's size (variant 1, without data; public data, with inputs)",
            [*checks.first_checks(cells), *checks.public_checks(cells)],
        ),
        ("Magnitude pruning's GRP", list(checks.magnitude_checks(cells))),
        ("Variants 2 and 3, `minimal` without data", list(checks.deep_checks(cells, "minimal"))),
        (
            "Variants 2 and 3, `minimal` with 2,000 inputs",
            list(checks.deep_checks(cells, "minimal-data")),
        ),
    ]
    return [f"### {title}\n\n{checks.table(found).text()}" for title, found in groups if found]


def tables(cells: Cells) -> list[str]:
    """Two tables per system and variant, in the paper's order."""
    known = sorted(measured(cells), key=lambda pair: (SYSTEMS.index(pair[0]), pair[1]))
    parts = []
    for system, variant in known:
        title = f"## {system}, variant {variant} ({seeds(cells, system, variant)} seeds)"
        sections: list[Section] = [
            paper_table(cells, system, variant),
            counted_table(cells, system, variant),
        ]
        parts += [title, *(section.text() for section in sections)]
    return parts
