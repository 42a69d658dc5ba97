"""Time against weights, both relative to the original, one panel per engine."""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.common.found_cells import Found
from benchmarks.encrypted.page import models_in, weights
from benchmarks.encrypted.variants import PRUNED

PANELS = {
    "batch": "encrypted, one sample per slot",
    "vector": "encrypted, one sample per ciphertext",
    "proof": "proof",
}


def panel(axes: Any, found: Found, engine: str) -> None:
    """One engine: a line per network, and a cross where it was pruned instead."""
    points: dict[str, list[tuple[float, float]]] = {}
    crosses: dict[str, tuple[float, float]] = {}
    for net, name, model, original in models_in(found, engine):
        share = median(model["times"]) / median(original["times"])
        left = weights(model) / weights(original)
        if name == PRUNED:
            nonzero = model["batch"]["plain_multiplications"] / weights(original)
            crosses[net] = (100 * nonzero, 100 * share)
        else:
            points.setdefault(net, []).append((100 * left, 100 * share))
    for number, (net, line) in enumerate(points.items()):
        axes.plot(*zip(*line, strict=True), "o-", color=f"C{number}", label=net, markersize=4)
        if net in crosses:
            axes.plot(*crosses[net], "x", color=f"C{number}")
    axes.axline((0, 0), slope=1, color="0.8", linewidth=0.8)
    axes.set(title=PANELS[engine], xlabel="weights left, % (×: pruned)", ylabel="time, %")


def plot(found: Found, path: Path) -> None:
    """All engines."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(1, len(PANELS), figsize=(4.5 * len(PANELS), 3.6))
    for axes, engine in zip(panels, PANELS, strict=True):
        panel(axes, found, engine)
    panels[0].legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(path, dpi=60)
    plt.close(figure)
