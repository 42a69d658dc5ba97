"""Accuracy or error against the parameters that are left, one panel per network."""

from __future__ import annotations

from pathlib import Path
from statistics import mean
from typing import Any

from benchmarks.activations.cells import SHARES, Cell, compared
from benchmarks.activations.methods import METHODS
from benchmarks.activations.page import groups
from benchmarks.common.found_cells import Found

COLORS = {
    "no data": "C0",
    "1,000 inputs": "C1",
    "4,000 inputs": "C2",
    "structured magnitude": "0.75",
    "Torch-Pruning": "C5",
    "onnxsim": "C6",
    "onnxsim Wanda, 1,000 inputs": "C4",
    "interpolative, 1,000 inputs": "black",
}
"""The color of every method: for onnxfde what it knows, for the others their names."""


def curve(found: Found, nets: tuple[str, ...], method: str) -> list[tuple[float, float]]:
    """Percent of parameters left and the relative error, for the sizes that were run."""
    points = []
    for size in SHARES:
        results = [found.get(Cell(net, method, size)) for net in nets]
        known = [r for r in results if r and "failed" not in r]
        if len(known) == len(nets):
            left = mean(100 * r["parameters"] / r["all_parameters"] for r in known)
            points.append((left, mean(r["error"] for r in known)))
    return points


def panel(axes: Any, found: Found, name: str, nets: tuple[str, ...]) -> None:
    """One network."""
    for method in filter(compared, METHODS):
        points = curve(found, nets, method)
        kind, _, known = method.partition(", ")
        style = {"minimal": "o-", "refit": "s--"}.get(kind, ".:")
        color = COLORS[method if style == ".:" else known]
        if points:
            x, y = zip(*points, strict=True)
            axes.plot(x, y, style, color=color, label=method, markersize=4)
    axes.set(title=name, xlabel="parameters left, %", ylabel="relative error", yscale="log")


def plot(found: Found, path: Path) -> None:
    """All networks that were run."""
    import matplotlib.pyplot as plt

    shown = {
        name: nets for name, nets in groups().items()
        if any(curve(found, nets, method) for method in METHODS)
    }  # fmt: skip
    if not shown:
        return
    columns = min(4, len(shown) + 1)
    lines = -(-(len(shown) + 1) // columns)
    figure, panels = plt.subplots(lines, columns, figsize=(4 * columns, 3.2 * lines), squeeze=False)
    for axes, (name, nets) in zip(panels.flat, shown.items(), strict=False):
        panel(axes, found, name, nets)
    for axes in list(panels.flat)[len(shown) :]:
        axes.axis("off")
    handles = panels.flat[0].get_legend_handles_labels()
    panels.flat[-1].legend(*handles, loc="center", fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=50)
