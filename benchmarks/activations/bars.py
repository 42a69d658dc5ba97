"""What the project promises about these networks, beside what was found."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from statistics import mean

from benchmarks.activations.autoencoder import VARIANTS, detector_cells
from benchmarks.activations.cells import LENET, SHARES, Cell
from benchmarks.activations.subjects import FEED_FORWARD
from benchmarks.common.found_cells import Found, Result

BAR_HEADER = "network | method | size | bar | found | "
WAITING = "not run yet"
LENET_LIMITS = {
    "minimal, no data": (0.8, 2.2, 3.5, 9.0),
    "minimal, 1,000 inputs": (0.4, 1.0, 2.0, 5.0),
    "minimal, 4,000 inputs": (0.4, 0.8, 1.8, 4.0),
}
"""Points of accuracy that may be lost at each share, mean of three seeds."""
DIGITS_LIMITS = {"relu": 0.035, "gelu": 0.02, "tanh": 0.02}
"""Relative errors of the logits with 26 of 256 neurons."""
CPU_LIMIT = 15.0
"""Seconds that each run on LeNet-300-100 may take."""


@dataclass(frozen=True)
class Bar:
    """A promise about some cells; `judge` gives what was found, and whether it is enough."""

    cells: tuple[Cell, ...]
    promise: str
    judge: Callable[[list[Result]], tuple[str, bool]]

    def row(self, found: Found) -> tuple[object, ...]:
        """Its line in the table."""
        results = [result for cell in self.cells if (result := found.get(cell))]
        first = self.cells[0]
        name = "lenet, 3 seeds" if first.net in LENET else first.net
        if len(results) < len(self.cells):
            text, verdict = WAITING, "–"
        elif failed := [result["failed"] for result in results if "failed" in result]:
            text, verdict = failed[0], "**fail**"
        else:
            text, good = self.judge(results)
            verdict = "pass" if good else "**fail**"
        return name, first.method, first.size, self.promise, text, verdict


def points_lost(limit: float, results: list[Result]) -> tuple[str, bool]:
    """Mean points of accuracy lost; the CPU seconds count too."""
    lost = mean(100 * (result["base"] - result["score"]) for result in results)
    cpu = max(result["cpu"] for result in results)
    return f"{lost:.2f} points, {cpu:.1f} s", lost <= limit and cpu <= CPU_LIMIT


def within_error(limit: float, results: list[Result]) -> tuple[str, bool]:
    """The relative error."""
    return f"{results[0]['error']:.4f}", results[0]["error"] <= limit


def within_ratio(limit: float, results: list[Result]) -> tuple[str, bool]:
    """The mean squared error over the original's."""
    ratio = results[0]["score"] / results[0]["base"]
    return f"{ratio:.4f} ×", ratio <= limit


def deep_enough(results: list[Result]) -> tuple[str, bool]:
    """Points lost, and the relative error."""
    lost, error = 100 * (results[0]["base"] - results[0]["score"]), results[0]["error"]
    return f"{lost:.2f} points, error {error:.4f}", lost <= 0.15 and error <= 0.04


def transformer_points(results: list[Result]) -> tuple[str, bool]:
    """Points lost by the vision transformer, and which axes of its input are still dynamic."""
    lost = 100 * (results[0]["base"] - results[0]["score"])
    dynamic = results[0].get("dynamic", [])
    return f"{lost:.2f} points, dynamic: {', '.join(dynamic)}", lost <= 1 and "sequence" in dynamic


def below_refit(results: list[Result]) -> tuple[str, bool]:
    """How far the first result's error is below the second's."""
    minimal, refit = (result["error"] for result in results)
    share = 1 - minimal / refit
    return f"{minimal:.4f} against {refit:.4f}: {share:.1%} below", share >= 0.05


def lenet_bars() -> Iterator[Bar]:
    """LeNet-300-100 on FashionMNIST."""
    for method, limits in LENET_LIMITS.items():
        for size, limit in zip(SHARES, limits, strict=True):
            cells = tuple(Cell(net, method, size) for net in LENET)
            promise = f"≤ {limit:g} points lost, ≤ {CPU_LIMIT:g} s of CPU each"
            yield Bar(cells, promise, partial(points_lost, limit))


def other_bars() -> Iterator[Bar]:
    """All other networks."""
    known = "minimal, 1,000 inputs"
    for activation, limit in DIGITS_LIMITS.items():
        cell = Cell(f"digits-{activation}", known, "26")
        yield Bar((cell,), f"error ≤ {limit:g}", partial(within_error, limit))
    abalone = Cell("abalone-relu", known, "6")
    yield Bar((abalone,), "MSE ≤ 1.03 × base", partial(within_ratio, 1.03))
    deep = Cell("mnist-deep", "minimal, 3,000 inputs", "50%")
    yield Bar((deep,), "≤ 0.15 points lost, error ≤ 0.04", deep_enough)
    yield Bar((Cell("vit", known, "50%"),), "≤ 1 point lost, sequence dynamic", transformer_points)
    for size in ("50%", "25%"):
        methods = ("minimal, 4,000 inputs --time-limit 60", "refit, 4,000 inputs")
        cells = tuple(Cell(FEED_FORWARD, method, size) for method in methods)
        yield Bar(cells, "error at least 5 % below refit's", below_refit)


def same_counts(results: list[Result]) -> tuple[str, bool]:
    """Neurons of all layers together, in each spelling of a network."""
    counts = [sum(result["neurons"]) for result in results]
    return ", ".join(map(str, counts)), max(counts) - min(counts) <= 0.01 * min(counts)


def detector_bars() -> Iterator[Bar]:
    """The anomaly detector: its three spellings end with the same number of neurons."""
    cells = list(detector_cells())
    for at in range(0, len(cells), len(VARIANTS)):
        same = tuple(cells[at : at + len(VARIANTS)])
        yield Bar(same, "neurons of three variants within 1 %", same_counts)


def bar_rows(found: Found) -> Iterator[tuple[object, ...]]:
    """One line per promise."""
    for bar in (*lenet_bars(), *other_bars(), *detector_bars()):
        yield bar.row(found)
