"""The paper's sensitivity figures (GRP % and MSE against ε), and MSE against GRP %."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.paper.published import Figure, Row, half, rows_of
from benchmarks.paper.store import Store
from benchmarks.paper.tables import LUMPED, TITLES, Cells, found_at, measured, summarised

GROUPS = {
    "synthetic": ("RN", "EN", "POL", "GLY"),
    "public": ("Abalone", "HEPC", "Metro", "Protein"),
}
STYLES = {
    "forward": ("tab:blue", "s-"),
    "backward": ("tab:cyan", "v-"),
    "erode": ("navy", "^:"),
    "magnitude": ("tab:orange", ".:"),
    "wanda": ("tab:brown", ".:"),
    "structured": ("tab:gray", ".--"),
    "refit": ("tab:olive", ".--"),
    "refit-data": ("tab:pink", ".--"),
    "minimal": ("tab:green", "o-"),
    "minimal-data": ("tab:purple", "o-"),
}
PAPER = ("ε-FDE, the paper's figures", "tab:red", "x--")


def write(store: Store, folder: Path) -> None:
    """All figures, each as PNG and SVG."""
    cells = summarised(store.current())
    for name, systems in GROUPS.items():
        shown = [s for s in systems if (s, 1) in set(measured(cells))]
        if shown:
            sensitivity(cells, shown, folder / f"sensitivity-{name}")
            frontier(cells, shown, folder / f"frontier-{name}")


def panels(rows: int, columns: int) -> tuple[Any, Any]:
    """A figure and its grid of axes."""
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams["svg.hashsalt"] = "onnxfde"  # the same figure gives the same file
    import matplotlib.pyplot as plt

    size = (4 * columns, 3.4 * rows)
    figure, axes = plt.subplots(rows, columns, figsize=size, squeeze=False)
    return figure, axes


def save(figure: Any, handles: tuple[Any, Any], path: Path) -> None:
    """Save as PNG and SVG, with one legend for all panels."""
    width, height = figure.get_size_inches()
    columns = max(2, int(width // 3.2))
    lines = -(-len(handles[0]) // columns)
    figure.legend(*handles, loc="lower center", ncol=columns, frameon=False)
    figure.tight_layout(rect=(0, (0.1 + 0.22 * lines) / height, 1, 1))
    figure.savefig(path.with_suffix(".png"), dpi=110)
    figure.savefig(path.with_suffix(".svg"), metadata={"Date": None})


def ours(cells: Cells, system: str, method: str) -> list[tuple[Row, Figure]]:
    """The figures of a method on variant 1, at each configuration and at `half`."""
    rows = [*rows_of(system), half(system)]
    pairs = ((row, found_at(cells, row, method)) for row in rows)
    return [(row, figure) for row, figure in pairs if figure]


def sensitivity(cells: Cells, systems: list[str], path: Path) -> None:
    """GRP % in the upper row and MSE in the lower one, against ε."""
    figure, axes = panels(2, len(systems))
    for at, system in enumerate(systems):
        curves = [(PAPER, [(row, row.fde) for row in rows_of(system)])] + [
            ((f"{TITLES[method]} here", *STYLES[method]), ours(cells, system, method))
            for method in LUMPED
        ]
        for (label, color, style), curve in curves:
            x = [row.eps[0] for row, _ in curve]
            axes[0, at].plot(x, [f.grp for _, f in curve], style, color=color, label=label)
            axes[1, at].plot(x, [f.mse for _, f in curve], style, color=color, label=label)
        axes[0, at].set(title=system, xlabel="ε", ylabel="GRP %")
        axes[1, at].set(xlabel="ε", ylabel="MSE", yscale="log")
    save(figure, axes[0, 0].get_legend_handles_labels(), path)


def frontier(cells: Cells, systems: list[str], path: Path) -> None:
    """MSE against GRP %, every method."""
    figure, axes = panels(1, len(systems))
    for at, system in enumerate(systems):
        draw: Callable[..., Any] = axes[0, at].plot
        paper = [row.fde for row in rows_of(system)]
        label, color, style = PAPER
        draw([f.grp for f in paper], [f.mse for f in paper], style, color=color, label=label)
        for method, (color, style) in STYLES.items():
            found = [figure for _, figure in ours(cells, system, method)]
            xs, ys = [f.grp for f in found], [f.mse for f in found]
            draw(xs, ys, style, color=color, label=f"{TITLES[method]} here")
        axes[0, at].set(title=system, xlabel="GRP %", ylabel="MSE", yscale="log")
        axes[0, at].set_ylim(top=min(1.0, axes[0, at].get_ylim()[1]))  # targets lie in [0, 1]
    save(figure, axes[0, 0].get_legend_handles_labels(), path)
