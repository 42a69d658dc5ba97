"""The task's metric of two models: accuracy where labels name classes, else mean squared error.

    accuracy   share of rows with  argmax y = label       (labels 0, 1, …: numbers, or one-hot rows)
    MSE        mean of (y − target)²                      (as many targets as values)
    lost       100 · mean(hit − hit′), points, or 100 · (MSE′ / MSE − 1), percent

Each with its interval (`estimates`). What is strange about labels is said in one line.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from onnxfde.estimates import Estimate, paired_interval, share_interval
from onnxfde.numbers import Array, Data, FloatArray
from onnxfde.running.csv_files import is_table
from onnxfde.running.data_files import ArrayFile
from onnxfde.running.data_rows import LABELS

OTHER_NAMES = ("labels", "label", "targets", "target", "Y")
"""What arrays of labels are called by mistake."""
CAUTION_FOR_POINTS = 0.84
"""How many standard errors are added to points of accuracy: other rows agree 4 times in 5. Lowered
from 1.65 after cryptonets_square with 4,000 images was left as it was. Points are counted in few
rows: with more caution, a thousand rows would not be enough to lose half a point."""
GUESSING = 2.0
"""Standard errors above chance up to which an accuracy is called guessing. Chosen."""


class Scores(NamedTuple):
    """A metric of both models, if labels fit an output, and what is strange about the labels."""

    metric: str | None = None
    before: Estimate | None = None
    after: Estimate | None = None
    lost: Estimate | None = None
    """Points of accuracy, or percent of the mean squared error; None where the original makes no
    error."""
    remark: str | None = None


def scores(before: list[Array], after: list[Array], labels: Array | None) -> Scores:
    """The metric, from the first output that labels fit."""
    if labels is None:
        return Scores()
    for old, new in zip(before, after, strict=True):
        if old.dtype.kind not in "fiub":
            continue
        classes = as_classes(labels, old.shape[1]) if old.ndim == 2 else None
        if classes is not None:
            return accuracy_scores(old, new, classes)
        if old.size == labels.size and old.dtype.kind == "f" and old.size:
            return squared_scores(old, new, labels.reshape(old.shape))
    shapes = [
        " or ".join("×".join(map(str, a.shape)) for a in arrays) for arrays in ([labels], before)
    ]
    return Scores(remark=f"'{LABELS}' is not used: it is {shapes[0]}, the output {shapes[1]}")


def accuracy_scores(old: Array, new: Array, classes: Array) -> Scores:
    """The shares of rows that both models get right, and the points that are lost."""
    rows = min(len(old), len(classes))
    right = [a[:rows].argmax(axis=1) == classes[:rows] for a in (old, new)]
    before, after = map(share_right, right)
    remark = strange_classes(classes, old.shape[1]) or guessing(before.value, old.shape[1], rows)
    return Scores("accuracy", before, after, points_lost(*right), remark)


def share_right(right: Array) -> Estimate:
    """An accuracy."""
    share, rows = float(right.mean()), len(right)
    error = math.sqrt(share * (1 - share) / rows)
    return Estimate(share, rows, error, interval=share_interval(share, rows))


def points_lost(before: Array, after: Array) -> Estimate:
    """Points of accuracy that rows lose, each 1, 0 or −1.

    Where none changes, other rows may: their standard error counts one row more.
    """
    lost, won = int(np.sum(before & ~after)), int(np.sum(after & ~before))
    found = Estimate.mean(100.0 * (before.astype(np.float64) - after))
    low, high = paired_interval(lost, won, len(before))
    return replace(
        found,
        error=math.hypot(found.error, 100 / max(len(before), 1)),
        interval=(100 * low, 100 * high),
        caution=CAUTION_FOR_POINTS,
    )


def squared_scores(old: Array, new: Array, target: Array) -> Scores:
    """The mean squared errors of both models, and by how many percent it rises."""
    size = math.prod(old.shape[1:])
    ends, wanted, scale = scaled(np.stack([old, new]).astype(np.float64), target.astype(np.float64))
    with np.errstate(invalid="ignore", over="ignore"):
        left = [np.sum((a - wanted).reshape(len(a), -1) ** 2, axis=1) for a in ends]
    if not all(np.isfinite(rows).all() for rows in left):
        return Scores("MSE")
    before, after = (Estimate.mean(rows / size).scaled(scale * scale) for rows in left)
    varies = left[0].sum() > 0
    lost = Estimate.ratio(left[1], left[0]).scaled(100, -100) if varies else None
    return Scores("MSE", before, after, lost)


def as_classes(labels: Array, classes: int) -> Array | None:
    """Labels as numbers of classes, where they are whole numbers or one-hot rows; else None."""
    if classes < 2 or not np.isfinite(labels).all():
        return None
    if labels.shape[1:] == (1,):
        labels = labels[:, 0]
    if labels.shape[1:] == (classes,) and is_one_hot(labels):
        return np.asarray(labels.argmax(axis=1))
    return (
        labels.astype(np.int64) if labels.ndim == 1 and (labels == labels.round()).all() else None
    )


def is_one_hot(rows: Array) -> bool:
    """Whether each row holds a single 1 and zeros."""
    return bool(np.isin(rows, (0, 1)).all() and (rows.sum(axis=1) == 1).all())


def strange_classes(labels: Array, classes: int) -> str | None:
    """What is wrong with labels that are no numbers of classes; None if nothing is."""
    if not labels.size or (labels.min() >= 0 and labels.max() < classes):
        return None
    low, high = int(labels.min()), int(labels.max())
    if (low, high) == (1, classes):
        return f"'{LABELS}' runs from 1 to {high}, classes are counted from 0: subtract 1"
    return f"'{LABELS}' runs from {low} to {high}, the classes are 0 to {classes - 1}"


def guessing(accuracy: float, classes: int, rows: int) -> str | None:
    """A line on an original that is hardly right; None if it is better than chance."""
    chance = 1 / classes
    if rows < classes or accuracy > chance + GUESSING * math.sqrt(chance * (1 - chance) / rows):
        return None
    return (
        f"the original is right on {accuracy:.0%} of the rows, hardly more than by chance: are "
        "these the inputs and labels it was trained with (--preprocess)?"
    )


def unused_labels(data: Data | None, inputs: set[str]) -> str | None:
    """A line on an array that looks like labels but has another name; None if there is none."""
    if isinstance(data, str | Path):
        plain = Path(data).is_dir() or is_table(Path(data))
        names = () if plain else ArrayFile.opened(Path(data)).names or ()
    else:
        names = tuple(map(str, data)) if isinstance(data, Mapping) else ()
    found = [name for name in OTHER_NAMES if name in names and name not in inputs]
    if not found or LABELS in names:
        return None
    return f"the array '{found[0]}' is not used: give --labels {found[0]}, or call it '{LABELS}'"


def scaled(*arrays: FloatArray) -> tuple[FloatArray, FloatArray, float]:
    """Two arrays divided by a power of two about as large as they are, and that power."""
    largest = max(float(np.abs(a).max(initial=0.0, where=np.isfinite(a))) for a in arrays)
    scale = 2.0 ** (math.frexp(largest)[1] - 1) if largest else 1.0
    old, new = (a / scale for a in arrays)
    return old, new, scale
