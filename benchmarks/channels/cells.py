"""Which network is made how small by which method, fitted to which draw of images.

`50% MACs` is a limit on the multiply-adds of the whole network, `50% of each` the same share of
the channels of every axis.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from benchmarks.channels.subjects import DETECTOR, RESNET8, RESNET20
from benchmarks.channels.trained import TASKS

DRAWS = (0, 1, 2)
MACS = ("90% MACs", "75% MACs", "50% MACs", "25% MACs")
EACH = ("75% of each", "50% of each")
NO_LOSS = ("no loss", "no loss, inputs in 0:1")
USUAL = ("refit, 500 images", "minimal, 500 images")
ALIGNED = (
    "refit, 500 images, align 4",
    "refit, 500 images, align 8",
    "minimal, 500 images, align 8",
)
OTHER_COUNTS = ("refit, 200 images", "minimal, 200 images", "refit, 1,000 images",
                "minimal, 1,000 images")  # fmt: skip
WITHOUT_IMAGES = ("structured magnitude", "Torch-Pruning", "Torch-Pruning, stream too", "onnxsim")
WITH_IMAGES = ("onnxsim Wanda, 500 images", "interpolative + refit, 500 images")
PEERS = (*WITHOUT_IMAGES, *WITH_IMAGES)
METHOD_NAMES = (*PEERS, *USUAL, *OTHER_COUNTS, *ALIGNED, *NO_LOSS)
COMPARED = (RESNET20[0], RESNET8[0], *TASKS)
"""Networks that every method is applied to; the others are the same ones in another spelling."""
QUICK = RESNET8[0]
"""The network of `--quick`, with one draw and without the limits of 90 and 25 %."""


@dataclass(frozen=True)
class Cell:
    """A network made smaller."""

    net: str
    method: str
    size: str
    draw: int = 0

    @property
    def key(self) -> str:
        """Its name in the file of results."""
        return f"{self.net} | {self.method} | {self.size} | {self.draw}"


def draws_of(method: str) -> tuple[int, ...]:
    """Draws of images; one where a method needs none."""
    return DRAWS if "images" in method else DRAWS[:1]


def drawn_cells(
    nets: tuple[str, ...], methods: tuple[str, ...], sizes: tuple[str, ...]
) -> Iterator[Cell]:
    """All draws of all methods for these networks and sizes."""
    for net, size, method in product(nets, sizes, methods):
        yield from (Cell(net, method, size, draw) for draw in draws_of(method))


def detector_cells() -> Iterator[Cell]:
    """The person detector without data."""
    return drawn_cells(DETECTOR, NO_LOSS, ("ε 0",))


def promised_cells() -> Iterator[Cell]:
    """What the promises of the project ask for."""
    yield from detector_cells()
    yield from drawn_cells(RESNET20[:1], USUAL, ("50% MACs", *EACH))
    yield from drawn_cells(RESNET8[:1], (*PEERS, *USUAL), MACS[:3])
    yield from drawn_cells(RESNET20[1:], USUAL, ("50% MACs",))
    yield from drawn_cells(RESNET20[:1], OTHER_COUNTS[:2], ("50% MACs", "50% of each"))
    yield from drawn_cells(RESNET20[:1], ALIGNED[1:], ("50% MACs",))


def all_cells(quick: bool) -> Iterator[Cell]:
    """Every cell, those that decide a promise first."""
    if quick:
        some = drawn_cells((QUICK,), (*PEERS, *USUAL), MACS[1:3])
        yield from (cell for cell in some if cell.draw == 0)
        return
    yield from promised_cells()
    yield from drawn_cells(COMPARED, (*PEERS, *USUAL), MACS)
    yield from drawn_cells(COMPARED, (*OTHER_COUNTS, *ALIGNED), ("50% MACs",))
    yield from drawn_cells(COMPARED, (*PEERS, *USUAL), EACH)
    yield from drawn_cells(RESNET8[1:], USUAL, ("50% MACs",))
