"""Means over seeds with their confidence intervals, in tables like the paper's."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import nan, sqrt
from statistics import mean, stdev

from benchmarks.common.table import Section
from benchmarks.paper.methods import COUNTED
from benchmarks.paper.published import SYSTEMS, Figure, Row, half, rows_of
from benchmarks.paper.store import Result

MISSING = "–"
LUMPED = ("forward", "backward", "erode")
TITLES = {
    "forward": "ε-FDE",
    "backward": "ε-BDE",
    "erode": "ε-FDE of ERODE, exact",
    "magnitude": "magnitude",
    "wanda": "Wanda",
    "structured": "structured magnitude",
    "refit": "budget + refit",
    "refit-data": "budget + refit, 2,000 inputs",
    "minimal": "minimal",
    "minimal-data": "minimal, 2,000 inputs",
}


@dataclass(frozen=True)
class Cell:
    """A method at a configuration: one result per seed."""

    seeds: tuple[int, ...]
    grps: tuple[float, ...]
    mses: tuple[float, ...]
    neurons: tuple[str, ...]

    @property
    def figure(self) -> Figure:
        """The figure that the paper prints for such a cell."""
        return Figure(mean(self.grps), mean(self.mses), confidence(self.mses))

    def over(self, other: Cell) -> list[float]:
        """The ratio of errors, for each seed that both have."""
        known = dict(zip(other.seeds, other.mses, strict=True))
        pairs = zip(self.seeds, self.mses, strict=True)
        return [mse / known[seed] for seed, mse in pairs if seed in known]

    def loss(self, base: Cell) -> float:
        """The mean error over the mean error of the same networks before."""
        known = dict(zip(base.seeds, base.mses, strict=True))
        return mean(self.mses) / mean(known[seed] for seed in self.seeds)


Cells = Mapping[tuple[str, int, str, str], Cell]
"""By system, variant, method and configuration."""


def confidence(values: Iterable[float]) -> float:
    """Half of the 95 % confidence interval of the mean (Student's t)."""
    from scipy.stats import t

    values = list(values)
    if len(values) < 2:
        return nan
    return float(t.ppf(0.975, len(values) - 1)) * stdev(values) / sqrt(len(values))


def summarised(results: Iterable[Result]) -> Cells:
    """The results, with all seeds of a method and configuration in one cell."""
    groups = defaultdict(list)
    for found in sorted(results, key=lambda r: r.seed):
        groups[found.system, found.variant, found.method, found.config].append(found)
    return {
        key: Cell(*(tuple(getattr(r, f) for r in group) for f in ("seed", "grp", "mse", "neurons")))
        for key, group in groups.items()
    }


def shown(figure: Figure | None) -> list[str]:
    """GRP %, and MSE ± its interval."""
    if figure is None:
        return [MISSING, MISSING]
    spread = f" ± {figure.ci:.2e}" if figure.ci == figure.ci else ""
    return [f"{figure.grp:.2f}", f"{figure.mse:.2e}{spread}"]


def found_at(cells: Cells, row: Row, method: str) -> Figure | None:
    """Our figure beside one of the paper's; the first configuration is the original."""
    method = "base" if row.config == "C1" else method
    cell = cells.get((row.system, row.variant, method, row.config))
    return cell.figure if cell else None


def measured(cells: Cells) -> Iterator[tuple[str, int]]:
    """The systems and variants that have results, by variant and in the paper's order."""
    for variant in (1, 2, 3):
        for system in SYSTEMS:
            if (system, variant, "base", "C1") in cells:
                yield system, variant


def seeds(cells: Cells, system: str, variant: int) -> int:
    """How many networks a table covers."""
    return len(cells[system, variant, "base", "C1"].mses)


def paper_table(cells: Cells, system: str, variant: int) -> Section:
    """The paper's methods: its own figures, and ours at the same ε and ratios."""
    heads = ["ε-FDE, paper", *(f"{TITLES[method]} here" for method in LUMPED)]
    heads += [f"{name}, {where}" for name in ("magnitude", "Wanda") for where in ("paper", "here")]
    header = "config | ε | " + " | ".join(f"{head}: GRP % | MSE" for head in heads)
    body = []
    for row in rows_of(system, variant):
        figures = [row.fde, *(found_at(cells, row, method) for method in LUMPED)]
        figures += [row.magnitude, found_at(cells, row, "magnitude")]
        figures += [row.wanda, found_at(cells, row, "wanda")]
        eps = ", ".join(f"{e:g}" for e in row.eps)
        body.append([row.config, eps, *(text for figure in figures for text in shown(figure))])
    return Section("", header, body)


def counted_table(cells: Cells, system: str, variant: int) -> Section:
    """The methods that get a number of neurons, with no more parameters than each paper row."""
    header = "config | paper: GRP % | MSE | neurons | " + " | ".join(
        f"{TITLES[method]}: GRP % | MSE" for method in COUNTED
    )
    rows = rows_of(system, variant)
    if (system, variant, "minimal-data", "half") in cells:
        rows.append(half(system))
    body = []
    for row in rows:
        paper = [f"{row.fde.grp:.2f}", MISSING] if row.config == "half" else shown(row.fde)
        cell = cells.get((system, variant, "minimal", row.config))
        neurons = " ".join(dict.fromkeys(cell.neurons)) if cell else MISSING
        figures = (shown(found_at(cells, row, method)) for method in COUNTED)
        body.append([row.config, *paper, neurons, *(text for pair in figures for text in pair)])
    return Section("", header, body)


def base_table(cells: Cells) -> Section:
    """The original networks beside the paper's."""
    body = []
    for system, variant in measured(cells):
        row, base = rows_of(system, variant)[0], cells[system, variant, "base", "C1"]
        limit = cells.get((system, variant, "quadratic", "C1"))
        ours, paper = shown(base.figure)[1], shown(row.fde)[1]
        best = f"{mean(limit.mses):.3e}" if limit else MISSING
        body.append([system, variant, len(base.mses), ours, paper, best])
    header = "system | variant | seeds | base MSE here | paper | least-squares quadratic"
    return Section("", header, body)


def difference_table(cells: Cells) -> Section:
    """GRP of magnitude pruning and Wanda, and its difference from the paper's."""
    body = []
    for system, variant in measured(cells):
        for row in rows_of(system, variant)[1:]:
            line = [system, variant, row.config]
            pairs = (("magnitude", row.magnitude_percent), ("wanda", row.wanda_percent))
            for method, percent in pairs:
                ours, paper = found_at(cells, row, method), getattr(row, method).grp
                if ours is None:
                    line += [f"{percent:g}", MISSING, f"{paper:.2f}", MISSING]
                    continue
                gap = f"{ours.grp - paper:+.2f}"
                line += [f"{percent:g}", f"{ours.grp:.2f}", f"{paper:.2f}", gap]
            body.append(line)
    names = "pruned % | GRP % | paper | difference"
    header = f"system | variant | config | magnitude: {names} | Wanda: {names}"
    return Section("", header, body)
