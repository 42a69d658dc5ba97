"""The bars that the benchmark should meet, compared with the results."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import mean

from benchmarks.common.table import Section
from benchmarks.paper.published import SYSTEMS, Row, rows_of
from benchmarks.paper.tables import Cell, Cells, measured

SYNTHETIC = ("RN", "EN", "POL", "GLY")
EXACT_MSE = 1e-8
"""Base MSE below which a network of a quadratic system counts as exact; chosen."""
NEARLY = 1.02
"""The largest loss that counts as none, for GLY, which no square network fits exactly; chosen."""
PUBLIC_LOSS = 1.05
"""The largest loss on public data at half of the paper's smallest GRP; chosen."""
MUCH_BELOW = 1000
"""How many times the MSE must lie below the paper's, where a network can be exact; chosen."""
SAME_RATIO = 1.01
"""The factor up to which a loss counts as no larger than the paper's; chosen."""
SAME_GRP = 0.1
"""Points of GRP up to which magnitude pruning counts as the paper's; chosen."""


@dataclass(frozen=True)
class Check:
    """A bar, the figure found, and whether it meets the bar (None: only reported)."""

    where: str
    bar: str
    found: str
    met: bool | None

    @property
    def verdict(self) -> str:
        """The last column of the table."""
        return "reported" if self.met is None else "pass" if self.met else "**fail**"


def table(checks: list[Check]) -> Section:
    """The bars with their figures."""
    rows = [[c.where, c.bar, c.found, c.verdict] for c in checks]
    return Section("", "where | bar | found | ", rows)


def base_checks(cells: Cells) -> Iterator[Check]:
    """The original networks are as good as they should be."""
    for system in SYSTEMS:
        if (system, 1, "base", "C1") not in cells:
            continue
        base, paper = cells[system, 1, "base", "C1"], rows_of(system)[0].fde
        where, found = f"{system}, base MSE", f"{base.figure.mse:.3e} (worst {max(base.mses):.3e})"
        if system in ("EN", "POL"):
            yield Check(where, "≤ 1e-8, each seed", found, max(base.mses) <= EXACT_MSE)
        elif system == "GLY":
            yield quadratic_check(cells, base)
        elif system in ("RN", "HEPC"):
            why = "our own system" if system == "RN" else "partial file"
            yield Check(where, f"not compared: {why}", found, None)
        else:
            limit = paper.mse + paper.ci
            yield Check(where, f"≤ {limit:.3e}, the paper's", found, base.figure.mse <= limit)


def quadratic_check(cells: Cells, base: Cell) -> Check:
    """No square network fits its training rows better than the least-squares quadratic."""
    limit = cells["GLY", 1, "quadratic", "C1"]
    ratios = base.over(limit)
    found = f"{base.figure.mse:.3e}, {mean(ratios):.4f} × (worst {max(ratios):.4f} ×)"
    bar = f"≤ {NEARLY} × the least-squares quadratic ({mean(limit.mses):.3e})"
    return Check("GLY, base MSE", bar, found, max(ratios) <= NEARLY)


def first_checks(cells: Cells) -> Iterator[Check]:
    """Variant 1 of the simulated systems, without data, at the paper's smallest GRP."""
    for system in SYNTHETIC:
        row = rows_of(system)[-1]
        cell = cells.get((system, 1, "minimal", row.config))
        if cell is None:
            continue
        figure, base = cell.figure, cells[system, 1, "base", "C1"]
        where, small = f"{system} variant 1, minimal", max(cell.grps) <= row.fde.grp
        if system == "GLY":
            ratio = cell.loss(base)
            found = f"GRP {figure.grp:.2f} %, MSE {figure.mse:.3e}, {ratio:.4f} × base"
            bar = f"GRP ≤ {row.fde.grp} %, MSE ≤ {NEARLY} × base"
            yield Check(where, bar, found, small and ratio <= NEARLY)
            continue
        limit, worst = row.fde.mse / MUCH_BELOW, max(cell.mses)
        found = f"GRP {figure.grp:.2f} %, MSE {figure.mse:.2e} (worst {worst:.2e}), "
        found += f"{row.fde.mse / figure.mse:,.0f} × below"
        bar = f"GRP ≤ {row.fde.grp} %, MSE ≤ {limit:.2e}"
        yield Check(where, bar, found, small and worst <= limit)


def public_checks(cells: Cells) -> Iterator[Check]:
    """Public data, with unlabelled inputs, at half of the paper's smallest GRP."""
    for system in SYSTEMS:
        cell = cells.get((system, 1, "minimal-data", "half"))
        if cell is None or system in SYNTHETIC:
            continue
        limit, base = rows_of(system)[-1].fde.grp / 2, cells[system, 1, "base", "C1"]
        ratio, worst = cell.loss(base), max(cell.over(base))
        found = f"GRP {cell.figure.grp:.2f} %, {ratio:.4f} × base (worst seed {worst:.4f} ×)"
        met = max(cell.grps) <= limit and ratio <= PUBLIC_LOSS
        where = f"{system}, minimal, 2,000 inputs"
        bar = f"GRP ≤ {limit:.2f} %, MSE ≤ {PUBLIC_LOSS} × base"
        yield Check(where, bar, found, None if system == "HEPC" else met)


def deep_checks(cells: Cells, method: str) -> Iterator[Check]:
    """Variants 2 and 3, every row: a lower error than the paper's, or no larger loss."""
    for system, variant in measured(cells):
        if variant > 1:
            first, *rows = rows_of(system, variant)
            yield from (
                deep_check(cells, cell, row, row.fde.mse / first.fde.mse)
                for row in rows
                if (cell := cells.get((system, variant, method, row.config)))
            )


def deep_check(cells: Cells, cell: Cell, row: Row, paper_ratio: float) -> Check:
    """One row of variant 2 or 3; `paper_ratio` is the loss that the paper has there."""
    figure = cell.figure
    ratio = cell.loss(cells[row.system, row.variant, "base", "C1"])
    lower, fine = figure.mse < row.fde.mse, ratio <= SAME_RATIO * paper_ratio
    how = "lower error" if lower else "no larger loss" if fine else "neither"
    return Check(
        f"{row.system} variant {row.variant} {row.config}",
        f"GRP ≤ {row.fde.grp} %, MSE < {row.fde.mse:.2e} or {paper_ratio:.4g} × base",
        f"GRP {figure.grp:.2f} %, MSE {figure.mse:.2e}, {ratio:.4g} × base: {how}",
        max(cell.grps) <= row.fde.grp and (lower or fine),
    )


def magnitude_checks(cells: Cells) -> Iterator[Check]:
    """Magnitude pruning leaves as many parameters as the paper says."""
    for system in SYNTHETIC:
        gaps = {
            row.config: abs(cell.figure.grp - row.magnitude.grp)
            for row in rows_of(system)[1:]
            if (cell := cells.get((system, 1, "magnitude", row.config)))
        }
        if gaps:
            worst = max(gaps, key=lambda config: gaps[config])
            found = f"largest difference {gaps[worst]:.3f} ({worst})"
            where = f"{system} variant 1, magnitude pruning"
            bar = f"GRP within {SAME_GRP} points, each row"
            yield Check(where, bar, found, gaps[worst] <= SAME_GRP)
