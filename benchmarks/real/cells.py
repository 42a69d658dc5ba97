"""Which network is made smaller by which command: a cell is both, on one state of the code."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache

from benchmarks.common.folders import BENCHMARKS

SIZES = ("95%", "90%", "75%", "50%")
QUICK_SIZES = SIZES[2:]
QUICK = ("ppocr-recognition", "page-orientation", "magika", "resnet20")
"""Networks of `--quick`."""
ORIGINAL = "original"
INT8 = ("int8 static", "int8 dynamic")
"""The original alone in 8 bits."""

WITHOUT = "without onnxfde"


@dataclass(frozen=True)
class Cell:
    """A network, and options of `onnxfde optimize` or what else is done to it."""

    net: str
    command: str
    source: str
    """The state of the code that it depends on."""

    @property
    def key(self) -> str:
        """Its name in the file of results."""
        return f"{self.net} | {self.command} | {self.source}"

    @property
    def slug(self) -> str:
        """A name for its file."""
        return "".join(c if c.isalnum() else "-" for c in self.command).strip("-")


def cells_of(net: str, labelled: bool, quick: bool) -> tuple[Cell, ...]:
    """What is measured of a network."""
    sizes = tuple(f"--max-macs {size}" for size in (QUICK_SIZES if quick else SIZES))
    goal = "--max-drop 1" if labelled else "--max-error 5%"
    words = sizes if quick else (ORIGINAL, "--eps 0", *sizes, goal, *INT8)
    return tuple(
        Cell(net, word, source_hash() if word.startswith("--") else WITHOUT) for word in words
    )


@cache
def source_hash() -> str:
    """The first digits of the SHA-256 of all code of onnxfde."""
    root, digest = BENCHMARKS.parent, hashlib.sha256()
    folders = (root / "onnxfde", root / "passes")
    for path in sorted({p.resolve() for folder in folders for p in folder.rglob("*.py")}):
        digest.update(str(path.relative_to(root)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:10]
