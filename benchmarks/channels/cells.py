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
MACS = ("90% MACs", "75% MACs", "50% MACs")
HALF = MACS[-1]
EACH = ("75% of each", "50% of each")
NO_LOSS = ("no loss", "no loss, inputs in 0:1", "no loss, inputs in 0:1, align 8")
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
DEFAULT = "default options, 500 images"
"""What a user types who gives no more than data and a size."""
PEERS = (*WITHOUT_IMAGES, *WITH_IMAGES)
METHOD_NAMES = (*PEERS, *USUAL, *OTHER_COUNTS, *ALIGNED, DEFAULT, *NO_LOSS)
COMPARED = (RESNET20[0], RESNET8[0], *TASKS)
"""Networks that every method is applied to; the others are the same ones in another spelling."""
VARIED = (RESNET20[0], RESNET8[0])
"""Networks that are fitted to more and fewer images, and left with aligned counts."""
QUICK = RESNET8[0]
"""The network of `--quick`, with one draw and without the limit of 90 %."""


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
    nets: tuple[str, ...],
    methods: tuple[str, ...],
    sizes: tuple[str, ...],
    draws: tuple[int, ...] = DRAWS,
) -> Iterator[Cell]:
    """These draws of all methods for these networks and sizes."""
    for net, size, method in product(nets, sizes, methods):
        known = draws_of(method)
        yield from (Cell(net, method, size, draw) for draw in draws if draw in known)


def detector_cells() -> Iterator[Cell]:
    """The person detector without data."""
    return drawn_cells(DETECTOR, NO_LOSS, ("ε 0",))


def promised_cells() -> Iterator[Cell]:
    """What the promises of the project ask for, in all draws."""
    refit, minimal = USUAL
    yield from detector_cells()
    yield from drawn_cells(RESNET20, USUAL, (HALF,))
    yield from drawn_cells(RESNET20[:1], (minimal,), EACH[1:])
    yield from drawn_cells(RESNET20[:1], (refit,), EACH[:1])
    yield from drawn_cells(RESNET20[:1], OTHER_COUNTS[:2], (HALF,))
    yield from drawn_cells(RESNET8[:1], (*PEERS, minimal), MACS)
    yield from drawn_cells(VARIED, (DEFAULT,), MACS[1:])


def other_cells() -> Iterator[Cell]:
    """What is shown beside, in one draw."""
    yield from drawn_cells(COMPARED, (*PEERS, *USUAL), MACS[1:], DRAWS[:1])
    yield from drawn_cells(RESNET8[:1], USUAL, MACS[:1], DRAWS[:1])
    yield from drawn_cells(VARIED, (*OTHER_COUNTS, *ALIGNED), (HALF,), DRAWS[:1])
    yield from drawn_cells(RESNET20[:1], USUAL, EACH, DRAWS[:1])
    yield from drawn_cells(RESNET8[1:], USUAL, (HALF,), DRAWS[:1])


def all_cells(quick: bool) -> Iterator[Cell]:
    """Every cell, those that decide a promise first."""
    if quick:
        yield from drawn_cells((QUICK,), (*PEERS, *USUAL), MACS[1:], DRAWS[:1])
        return
    yield from promised_cells()
    yield from other_cells()
