"""What the project promises about these networks, beside what was found."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from math import sqrt
from statistics import mean

from benchmarks.channels.cells import DRAWS, PEERS, USUAL, Cell, draws_of
from benchmarks.channels.latency import LatencyCell
from benchmarks.channels.subjects import DETECTOR, RESNET8, RESNET20
from benchmarks.common.found_cells import Found, Result

BAR_HEADER = "network | method | size | bar | found | "
WAITING = "not run yet"
REFIT, MINIMAL = USUAL
TESTED = 4000
"""Images that accuracies are measured on."""
FASTER = 1.4
"""How many times as fast half of the multiply-adds must be, in aligned widths."""
CPU_LIMITS = {REFIT: 15.0, MINIMAL: 40.0}
"""Seconds of the whole command for ResNet20."""


@dataclass(frozen=True)
class Bar:
    """A promise about some cells; `judge` gives what was found, and whether it is enough."""

    cells: tuple[Cell | LatencyCell, ...]
    method: str
    size: str
    promise: str
    judge: Callable[[list[Result]], tuple[str, bool]]

    def row(self, found: Found) -> tuple[object, ...]:
        """Its line in the table."""
        results = [result for cell in self.cells if (result := found.get(cell))]
        if len(results) < len(self.cells):
            text, verdict = WAITING, "–"
        else:
            text, good = self.judge(results)
            verdict = "pass" if good else "**fail**"
        return self.cells[0].net, self.method, self.size, self.promise, text, verdict


def all_draws(net: str, method: str, size: str) -> tuple[Cell, ...]:
    """The cells of all draws."""
    return tuple(Cell(net, method, size, draw) for draw in draws_of(method))


def lost(results: list[Result]) -> float:
    """Mean points of accuracy lost."""
    return 100 * mean(float(result["base"] - result["score"]) for result in results)


def without_loss(results: list[Result]) -> tuple[str, bool]:
    """What is left of the person detector, and how much its outputs change."""
    (found,) = results
    parameters = found["parameters"] / found["all_parameters"]
    macs, change = found["macs"] / found["all_macs"], found["max_change"]
    text = f"{parameters:.2%} of the parameters, {macs:.2%} of the MACs, {change:.2g}"
    return text, parameters <= 0.15 and macs <= 0.505 and change <= 1e-5


def same_counts(results: list[Result]) -> tuple[str, bool]:
    """Multiply-adds that are left of each spelling."""
    left = [result["macs"] for result in results]
    return ", ".join(f"{n:,}" for n in left), max(left) - min(left) <= 0.01 * min(left)


def points_lost(most: float, seconds: float | None, results: list[Result]) -> tuple[str, bool]:
    """Points lost, and the longest CPU time."""
    points, cpu = lost(results), max(result["cpu"] for result in results)
    good = points <= most and (seconds is None or cpu <= seconds)
    return f"{points:.2f} points, {cpu:.1f} s", good


def little_more(most: float, results: list[Result]) -> tuple[str, bool]:
    """How many more points fewer images cost: the first half of the results against the others."""
    half = len(results) // 2
    few, many = lost(results[:half]), lost(results[half:])
    return f"{few:.2f} against {many:.2f} points", few - many <= most


def beside_peers(errors: float, results: list[Result]) -> tuple[str, bool]:
    """The mean of all draws against the best other method, less some standard errors."""
    ours, peers = results[: len(DRAWS)], results[len(DRAWS) :]
    score, best = mean(r["score"] for r in ours), max(peer_scores(peers))
    spread = sqrt(score * (1 - score) * 2 / TESTED)
    text = f"{score:.2%}, best other {best:.2%}, standard error {spread:.2%}"
    return text, score >= best - errors * spread if errors else score > best


def peer_scores(results: list[Result]) -> Iterator[float]:
    """The mean accuracy of each other method that could be applied."""
    results = list(results)
    for method in PEERS:
        part = [results.pop(0) for _ in draws_of(method)]
        if not any("failed" in result for result in part):
            yield mean(result["score"] for result in part)


def fast_enough(results: list[Result]) -> tuple[str, bool]:
    """How many times as fast the aligned network is."""
    model = results[0]["models"]["refit, 500 images, align 8, 50% MACs"]
    ratio = model["runs"]["1"]["speedup"]["value"]
    macs = model["macs"] / results[0]["models"]["original"]["macs"]
    return f"× {ratio:.2f} with {macs:.1%} of the MACs", ratio >= FASTER


def detector_bars() -> Iterator[Bar]:
    """The person detector."""
    method, size = "no loss, inputs in 0:1", "ε 0"
    cells = tuple(Cell(net, method, size) for net in DETECTOR)
    promise = "≤ 15 % of the parameters, ≤ 50.5 % of the MACs, change ≤ 1e-5"
    yield Bar(cells[:1], method, size, promise, without_loss)
    yield Bar(cells, method, size, "MACs of three spellings within 1 %", same_counts)


def resnet20_bars() -> Iterator[Bar]:
    """ResNet20 in both exports."""
    for net, (method, most) in ((n, m) for n in RESNET20 for m in ((REFIT, 7.0), (MINIMAL, 4.5))):
        seconds = CPU_LIMITS[method]
        promise = f"≤ {most:g} points lost, ≤ {seconds:g} s of CPU each"
        cells = all_draws(net, method, "50% MACs")
        yield Bar(cells, method, "50% MACs", promise, partial(points_lost, most, seconds))
    for method, size, most in ((MINIMAL, "50% of each", 5.5), (REFIT, "75% of each", 3.0)):
        cells = all_draws(RESNET20[0], method, size)
        judge = partial(points_lost, most, None)
        yield Bar(cells, method, size, f"≤ {most:g} points lost", judge)
    for method in USUAL:
        few = method.replace("500", "200")
        cells = tuple(c for m in (few, method) for c in all_draws(RESNET20[0], m, "50% MACs"))
        yield Bar(cells, few, "50% MACs", "≤ 2.5 points more than 500", partial(little_more, 2.5))


def resnet8_bars() -> Iterator[Bar]:
    """ResNet8 beside the other methods."""
    for size, errors in (("90% MACs", 2.0), ("75% MACs", 0.0), ("50% MACs", 0.0)):
        methods = (MINIMAL, *PEERS)
        cells = tuple(cell for m in methods for cell in all_draws(RESNET8[0], m, size))
        promise = "not worse within two standard errors" if errors else "better than all others"
        yield Bar(cells, MINIMAL, size, promise, partial(beside_peers, errors))


def bar_rows(found: Found) -> Iterator[tuple[object, ...]]:
    """One line per promise."""
    timed = (LatencyCell(RESNET20[0], "cpu, 1 thread"),)
    fast = Bar(timed, "refit, align 8", "50% MACs", f"× ≥ {FASTER:g} at batch 1", fast_enough)
    for bar in (*detector_bars(), *resnet20_bars(), *resnet8_bars(), fast):
        yield bar.row(found)
