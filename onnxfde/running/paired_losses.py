"""How much worse a model is than the original on the same rows, and how far to trust that.

    error    v² = Σ d / Σ s          d: ‖y′ − y‖² of a row,  s: ‖y − mean y‖²
    drop     v = 100 · mean(hit − hit′)                      where labels name classes
             v = 100 · (Σ q′ / Σ q − 1)                      else; q: squared error of a row

Each is a ratio of sums over rows, so its standard error is that of Σ (d − v² s) / Σ s, and so on.
On other rows it is likely to be at most

    v + (z + λ (1 + 2 z²) / 6) · standard error · √(1 + rows / other rows)

λ, the skewness of the losses over √rows, is for the few rows with a large loss that most choices of
rows do not have: they make a mean look smaller and surer than it is (Johnson's t).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from onnxfde.errors import DataError
from onnxfde.numbers import Array, FloatArray
from onnxfde.running.label_scores import as_classes, guessing, scaled, strange_classes
from onnxfde.running.outputs import is_floating
from onnxfde.running.verification import deviations, difference, flat

CAUTION = 1.65
"""z: how many standard errors are added. Chosen: other rows agree 19 times in 20, if losses are
about normally distributed; not tuned."""
CAUTION_FOR_POINTS = 0.84
"""The same for points of accuracy: other rows agree 4 times in 5. Lowered from 1.65 after
cryptonets_square with 4,000 images was left as it was. Points are counted in few
rows: with more caution, a thousand rows would not be enough to lose half a point."""


@dataclass(frozen=True)
class Loss:
    """A loss on some rows, with its standard error."""

    value: float
    spread: float
    rows: int
    lean: float = 0.0
    """λ: how much of it comes from few rows."""
    caution: float = CAUTION

    def expected(self, other_rows: int) -> float:
        """What it is likely to be at most on other rows."""
        more = math.sqrt(1 + self.rows / max(other_rows, 1))
        caution = self.caution + max(self.lean, 0.0) * (1 + 2 * self.caution**2) / 6
        return self.value + caution * self.spread * more


def error_loss(before: list[Array], after: list[Array]) -> Loss:
    """The relative L2 of the outputs; DataError if they do not vary."""
    old, new, scale = scaled(flat(before), flat(after))
    if not old.size:
        raise DataError("--max-error: the model's outputs hold no floating-point numbers")
    change = np.sum(difference(old, new) ** 2, axis=1)
    spread = np.sum(deviations(before, scale) ** 2, axis=1)
    if not spread.sum() > 0:
        raise DataError("--max-error: the model's outputs are the same for all rows of the data")
    square = ratio_of_sums(change, spread)
    value = math.sqrt(square.value)
    return replace(square, value=value, spread=square.spread / (2 * value) if value else 0.0)


def drop_loss(before: list[Array], after: list[Array], labels: Array | None) -> Loss:
    """Points of accuracy, or percent of the mean squared error; DataError if labels do not fit."""
    if labels is None:
        raise DataError(
            "--max-drop needs labels or targets in the data: an array called 'y', or what --labels "
            "names"
        )
    for old, new in zip(before, after, strict=True):
        classes = as_classes(labels, old.shape[1]) if old.ndim == 2 else None
        if classes is not None and old.dtype.kind in "fiu":
            hits = [(a.argmax(axis=1) == classes).astype(np.float64) for a in (old, new)]
            right, count = float(hits[0].mean()), old.shape[1]
            if fault := strange_classes(classes, count) or guessing(right, count, len(old)):
                raise DataError(f"--max-drop: {fault}")
            return points_lost(hits[0] - hits[1])
        if is_floating(old) and old.size == labels.size:
            return squared_rise(old, new, labels.reshape(old.shape))
    shapes = " or ".join("×".join(map(str, a.shape)) for a in before)
    own = "×".join(map(str, labels.shape))
    raise DataError(f"--max-drop: the labels 'y' are {own}, the model's output is {shapes}")


def points_lost(lost: FloatArray) -> Loss:
    """Points of accuracy that rows lose: each 1, 0 or −1.

    Where none changes, other rows may: their standard error counts one row more.
    """
    found = ratio_of_sums(100 * lost, np.ones(len(lost)))
    spread = math.hypot(found.spread, 100 / max(len(lost), 1))
    return replace(found, spread=spread, caution=CAUTION_FOR_POINTS)


def squared_rise(old: Array, new: Array, target: Array) -> Loss:
    """The relative rise of the mean squared error, in percent."""
    wanted = target.astype(np.float64)
    squares = [np.sum((a - wanted).reshape(len(a), -1) ** 2, axis=1) for a in (old, new)]
    if not squares[0].sum() > 0:
        raise DataError("--max-drop: the original makes no error on this data: give --max-error")
    ratio = ratio_of_sums(squares[1], squares[0])
    return replace(ratio, value=100 * (ratio.value - 1), spread=100 * ratio.spread)


def ratio_of_sums(top: FloatArray, bottom: FloatArray) -> Loss:
    """Σ top / Σ bottom, with its standard error over the rows."""
    ratio = float(top.sum() / bottom.sum())
    left = top - ratio * bottom
    size = float(np.linalg.norm(left))
    lean = float(np.sum((left / size) ** 3)) if size else 0.0
    return Loss(ratio, size / float(bottom.sum()), len(top), lean)
