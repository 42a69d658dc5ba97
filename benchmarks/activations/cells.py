"""Which network is made how small by which method: a cell is one network, method and size."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.activations.dense_tasks import DENSE
from benchmarks.activations.methods import METHODS
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
