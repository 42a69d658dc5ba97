"""Which network is made how small by which method, and what was found before.

A cell is one network, one method and one size. Finished cells are kept in a JSON file, and are not
run again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.activations.dense_tasks import DENSE
from benchmarks.activations.methods import METHODS, Result
from benchmarks.activations.subjects import FEED_FORWARD

SHARES = ("50%", "30%", "20%", "10%")
"""Shares of every layer's neurons: those that Neuron Merging was published with, and one below."""
LENET = ("lenet-0", "lenet-1", "lenet-2")
QUICK = ("digits-relu", "digits-gelu", "abalone-relu", "lenet-0")
"""Networks of `--quick`."""


@dataclass(frozen=True)
class Cell:
    """A network made smaller."""

    net: str
    method: str
    size: str

    @property
    def key(self) -> str:
        """Its name in the file of results."""
        return f"{self.net} | {self.method} | {self.size}"


EXTRA = (
    *(
        Cell(f"digits-{activation}", method, "26")
        for activation in ("relu", "gelu", "tanh", "silu")
        for method in ("minimal, 1,000 inputs", "refit, 1,000 inputs")
    ),
    Cell("abalone-relu", "minimal, 1,000 inputs", "6"),
    Cell("abalone-relu", "refit, 1,000 inputs", "6"),
    Cell("mnist-deep", "minimal, 3,000 inputs", "50%"),
    *(
        Cell(FEED_FORWARD, method, size)
        for size in ("50%", "25%")
        for method in ("refit, 4,000 inputs", "minimal, 4,000 inputs --time-limit 60")
    ),
)
"""Cells that only the promises of the project ask for."""


def compared(method: str) -> bool:
    """Whether a method is in the tables of all networks."""
    return "3,000" not in method and "--" not in method


def all_cells(quick: bool) -> Iterator[Cell]:
    """Every cell, those that decide a promise first."""
    chosen = [net for net in DENSE if not quick or net in QUICK]
    yield from (cell for cell in EXTRA if not quick or cell.net in QUICK)
    table = [method for method in METHODS if compared(method)]
    if not quick:
        yield from (Cell("vit", method, size) for size in SHARES[:2] for method in table)
    for net in chosen:
        yield from (Cell(net, method, size) for size in SHARES for method in table)


@dataclass
class Found:
    """The results so far."""

    path: Path
    results: dict[str, Result] = field(default_factory=dict)

    @staticmethod
    def opened(path: Path) -> Found:
        """Those of a file, which need not exist."""
        return Found(path, json.loads(path.read_text()) if path.exists() else {})

    def get(self, cell: Cell) -> Result | None:
        """The result of a cell, None if it is missing."""
        return self.results.get(cell.key)

    def add(self, cell: Cell, result: Result) -> None:
        """Keep a result."""
        self.results[cell.key] = result
        self.write()

    def forget(self, cells: Iterable[Cell]) -> None:
        """Drop results, so that their cells run again."""
        for cell in cells:
            self.results.pop(cell.key, None)
        self.write()

    def write(self) -> None:
        """Write the file at once, so that a stopped run loses nothing."""
        part = self.path.with_suffix(".part")
        part.write_text(json.dumps(self.results, indent=0, sort_keys=True, ensure_ascii=False))
        part.replace(self.path)
