"""Curves as PNG, drawn by matplotlib (extra [plot]): the only module that imports it."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from onnxfde.errors import OptionError
from onnxfde.pages.sweep_pages import ModelSweep


def require_matplotlib() -> None:
    """OptionError if it is not installed."""
    if importlib.util.find_spec("matplotlib") is None:
        raise OptionError("--png needs matplotlib: pip install 'onnxfde[plot]'")


def write_png(done: ModelSweep, file: Path) -> None:
    """Draw the curve of a model."""
    from matplotlib.figure import Figure

    curve = done.curve()
    if curve is None:
        return
    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.subplots()
    xs, ys = zip(*curve.points, strict=True)
    axes.plot(xs, [100 * y for y in ys] if curve.percent else ys, marker="o")
    axes.set_xlabel(curve.x_title)
    axes.set_ylabel(f"{curve.y_title}{' (%)' if curve.percent else ''}")
    axes.set_title(done.name, parse_math=False)
    axes.grid(alpha=0.3)
    figure.savefig(file, dpi=150, metadata={"Software": None})
