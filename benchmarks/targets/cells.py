"""What is measured: one cell is a target on a network, or three ways to spend the same size."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import onnx

import onnxfde
from benchmarks.common.found_cells import Found, Result
from benchmarks.common.processes import load_note
from benchmarks.common.scores import score
from benchmarks.targets.allocations import by_errors, by_shares, others, search_of, tried
from benchmarks.targets.runs import judged, optimized, original_outputs, sizes
from benchmarks.targets.subjects import GIVEN, Subject, subject
from onnxfde.graph.size import count_parameters
from onnxfde.options import Quotient

ERRORS: dict[str, tuple[float, float]] = {
    "demo": (0.05, 0.1),
    "cryptonets_square": (0.1, 0.2),
    "abalone": (0.05, 0.1),
    "gly-3": (0.05, 0.1),
    "mnist-square-2": (0.1, 0.2),
    "lenet-300-100": (0.1, 0.2),
    "resnet8_cifar10": (0.2, 0.3),
    "resnet20_cifar10": (0.1, 0.2),
}
"""Two values of --max-error of each network; chosen so that a part of it goes."""
LARGE = ("lenet-300-100", "resnet8_cifar10", "resnet20_cifar10")
SEVERAL = tuple(name for name in ERRORS if name != "abalone")
"""Networks with several layers to merge."""
QUOTIENTS: tuple[Quotient, ...] = ("refit", "minimal")
SHARES: dict[str, tuple[float, ...]] = {
    **dict.fromkeys(SEVERAL, (0.25, 0.5)),
    "gly-3": (0.25, 0.15),
    "resnet8_cifar10": (0.5,),
    "resnet20_cifar10": (0.5,),
}
"""Shares of the parameters at which ways to spend are compared: gly-3 has less than a third without
loss, and the streams of ResNets stay."""
LARGER = (1.1, 1.2, 1.35, 1.5, 2.0)
"""How much larger than another allocation a result may be found to be."""
FOLLOWED = 3
"""How many of the best allocations are tried with fewer parameters."""
TIMED_SECONDS = 10.0
"""How long a time is measured again; chosen."""
ROWS = {"macs": slice(500), "drop": slice(None)}
"""Rows that a run is given: by default the first 4,000; ResNet20's accuracy is measured as in
benchmarks/channels."""


@dataclass(frozen=True)
class Cell:
    """A target on a network; `words` are the options."""

    net: str
    part: str
    words: tuple[str, ...]
    quotient: Quotient = "refit"

    @property
    def key(self) -> str:
        """Its name in the file of results."""
        return f"{self.net} | {self.part} | {' '.join(self.words)} | {self.quotient}"

    @property
    def limit(self) -> float:
        """The number of its option."""
        text = self.words[1]
        return float(text.rstrip("%")) / (100 if text.endswith("%") else 1)


def error_cells(quotient: Quotient) -> Iterator[Cell]:
    """--max-error beside --eps of the same number."""
    for net, limits in ERRORS.items():
        for limit in limits:
            yield Cell(net, "eps", ("--eps", f"{limit:g}"), quotient)
            yield Cell(net, "error", ("--max-error", f"{limit:g}"), quotient)


def other_cells() -> Iterator[Cell]:
    """Sizes, drops and times."""
    for net in ERRORS:
        yield Cell(net, "size", ("--max-params", "25%"))
    yield Cell("cryptonets_square", "drop", ("--max-drop", "0.5"))
    yield Cell("cryptonets_square", "drop", ("--max-drop", "0.5"), "minimal")
    for quotient in QUOTIENTS:
        yield Cell("resnet20_cifar10", "macs", ("--max-macs", "50%"), quotient)
    yield Cell("resnet20_cifar10", "latency", ("--max-latency", "60%"))


def all_cells(quick: bool) -> Iterator[Cell]:
    """Every cell; `quick`: those of the demo network."""
    every = [*error_cells("refit"), *spending_cells(), *other_cells(), *compared_cells(),
             *error_cells("minimal")]  # fmt: skip
    yield from (cell for cell in every if not quick or cell.net == "demo")


def compared_cells() -> Iterator[Cell]:
    """Other allocations within the same errors."""
    for net, limits in ERRORS.items():
        for limit in limits:
            yield Cell(net, "others", ("--max-error", f"{limit:g}"))


def spending_cells() -> Iterator[Cell]:
    """Three ways to spend the same number of parameters."""
    for net, shares in SHARES.items():
        for share in shares:
            yield Cell(net, "spending", ("--max-params", f"{share:.0%}"))


def measured(cell: Cell, found: Found) -> Result:
    """Run a cell; others are found already."""
    net = subject(cell.net)
    if cell.part == "spending":
        return spent(net, cell)
    if cell.part == "others":
        result = found.get(replace(cell, part="error")) or {"failed": "not run yet"}
        return {"failed": result["failed"]} if "failed" in result else beaten(net, cell, result)
    return optimized_and_judged(net, cell)


def optimized_and_judged(net: Subject, cell: Cell) -> Result:
    """Run a command, and measure what comes out."""
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "small.onnx"
        words = [*cell.words, "--quotient", cell.quotient]
        words += (
            ["--align", "1"] if cell.net.startswith("resnet") and cell.part != "latency" else []
        )
        rows = ROWS.get(cell.part, slice(GIVEN))
        found = optimized(net, words, target, rows)
        if "failed" in found:
            return found
        found |= {**sizes(target), **judged(net, target)}
        found |= {f"all_{name}": value for name, value in sizes(net.model).items()}
        found["base"] = score(original_outputs(net), net.y_test)
        if cell.part == "latency":
            found |= timed(net, target)
    return found


def timed(net: Subject, target: Path) -> Result:
    """How long a result takes of the original's time, measured again."""
    made = onnxfde.bench([net.model, target], seconds=TIMED_SECONDS)
    speedup = made.targets[0].lines[1].latencies[0].speedup
    assert speedup is not None
    return {"time": [1 / n for n in (speedup.high, speedup.value, speedup.low)],
            "note": load_note()}  # fmt: skip


def beaten(net: Subject, cell: Cell, found: Result) -> Result:
    """How many times as large as the best other allocation within the same error a result is.

    All allocations are tried at 1/1.1 of its parameters; the best of those that meet the error with
    fewer and fewer. `other_error`: the least at 1/1.1.
    """
    within, number, least, ratio, followed = cell.limit, 0, np.inf, 1.0, None
    for larger in LARGER:
        made = []
        spending = search_of(net, cell.quotient).spending("params")
        cost = found["params"] / larger
        for counts in followed or others(
            net, cell.quotient, found["counts"], cost, cell.net in LARGE
        ):
            fitting = by_shares(spending, counts / spending.whole, cost) if followed else counts
            if fitting is not None:
                error, _ = tried(net, cell.quotient, fitting)
                made.append((error, tuple(int(n) for n in fitting)))
        number, least = (len(made), min(made)[0]) if larger == LARGER[0] else (number, least)
        if not made or min(made)[0] > within:
            break
        ratio = larger
        followed = [np.array(counts) for _, counts in sorted(made)[:FOLLOWED]]
    return {"others": number, "other_error": float(least), "larger": ratio}


def spent(net: Subject, cell: Cell) -> Result:
    """The error of three ways to spend the same size."""
    search = search_of(net, cell.quotient)
    spending = search.spending("params")
    cost = cell.limit * count_parameters(onnx.load(net.model))
    even = np.ones(len(spending.whole))
    ways = {"greedy": spending.under(cost), "equal share": by_shares(spending, even, cost),
            "equal ε": by_errors(search, spending, cost)}  # fmt: skip
    found = {name: tried(net, cell.quotient, counts) for name, counts in ways.items()
             if counts is not None}  # fmt: skip
    return {"ways": found}
