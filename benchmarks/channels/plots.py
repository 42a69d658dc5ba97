"""Accuracy against the multiply-adds that are left, one panel per network."""

from __future__ import annotations

from pathlib import Path
from statistics import mean
from typing import Any

from benchmarks.channels.cells import COMPARED, MACS, PEERS, USUAL, Cell, draws_of
from benchmarks.common.found_cells import Found

STYLES = {
    "structured magnitude": (".:", "0.75"),
    "Torch-Pruning": (".:", "C5"),
    "Torch-Pruning, stream too": ("x:", "C5"),
    "onnxsim": (".:", "C6"),
    "onnxsim Wanda, 500 images": (".:", "C4"),
    "interpolative + refit, 500 images": (".:", "black"),
    "refit, 500 images": ("s--", "C1"),
    "minimal, 500 images": ("o-", "C0"),
}


def curve(found: Found, net: str, method: str) -> list[tuple[float, float]]:
    """Percent of multiply-adds left and of images that are right, for the sizes that were run."""
    points = []
    for size in MACS:
        results = [found.get(Cell(net, method, size, draw)) for draw in draws_of(method)]
        known = [r for r in results if r and "failed" not in r]
        if known:
            left = mean(100 * r["macs"] / r["all_macs"] for r in known)
            points.append((left, mean(100 * r["score"] for r in known)))
    return points


def panel(axes: Any, found: Found, net: str) -> None:
    """One network."""
    for method in (*PEERS, *USUAL):
        style, color = STYLES[method]
        if points := curve(found, net, method):
            x, y = zip(*points, strict=True)
            axes.plot(x, y, style, color=color, label=method, markersize=4)
    base = [
        r["base"] for key, r in found.results.items() if key.startswith(f"{net} |") and "base" in r
    ]
    axes.axhline(100 * base[0], color="grey", linewidth=0.8)
    axes.set(title=net, xlabel="multiply-adds left, %", ylabel="accuracy, %")


def plot(found: Found, path: Path) -> None:
    """All networks that were run."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    shown = [net for net in COMPARED if any(curve(found, net, m) for m in (*PEERS, *USUAL))]
    if not shown:
        return
    figure, panels = plt.subplots(1, len(shown), figsize=(4.5 * len(shown), 3.6), squeeze=False)
    for axes, net in zip(panels.flat, shown, strict=True):
        panel(axes, found, net)
    panels.flat[0].legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(path, dpi=60)
