"""A network that people deploy, inputs for it, and a score.

score = Σ top / Σ bottom   over the items that it is judged on (lines of text, pictures, clips)

so that every score has its interval, and two networks are compared item by item
(`onnxfde.estimates`). Items that are judged were never given to the tool.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from onnxfde.estimates import Estimate
from onnxfde.numbers import Array, FloatArray

Run = Callable[[Mapping[str, Array]], list[Array]]
"""Runs a network on named inputs; its outputs in their order."""


@dataclass(frozen=True)
class Material:
    """The files that a user of the network would have."""

    model: Path
    data: Path
    """What goes to `--data`: inputs alone, no labels."""
    words: tuple[str, ...] = ()
    """Other words of the command that this network needs, such as --preprocess."""
    labelled: Path | None = None
    """The same data with labels, for `--max-drop`; None where the tool takes no such labels."""


@dataclass(frozen=True)
class Score:
    """What items add to a score."""

    top: FloatArray
    bottom: FloatArray

    @property
    def estimate(self) -> Estimate:
        """The score, and how far it can be trusted."""
        return Estimate.ratio(self.top, self.bottom)


@dataclass(frozen=True)
class Subject:
    """One network of the benchmark."""

    name: str
    about: str
    """What it does and where it is from, in one line."""
    metric: str
    """What the score is, in two or three words."""
    given: str
    """What the tool is given, in one line."""
    judged: str
    """What it is judged on, in one line."""
    prepare: Callable[[Path], Material]
    """Makes all files in the folder of the subject, once; the same for the same seed."""
    score: Callable[[Path, Run], Score]
    """Scores a network on the items to judge, which `prepare` left in the folder."""
    batch: int = 1
    """Rows that `score` gives at once; the table's latency is always of one."""
