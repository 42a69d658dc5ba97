"""The task's metric of two models: accuracy where labels name classes, else mean squared error.

    accuracy   share of rows with  argmax y = label       (labels 0, 1, …: numbers, or one-hot rows)
    MSE        mean of (y − target)²                      (as many targets as values)

What is strange about labels is said in one line.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from onnxfde.numbers import Array, Data, FloatArray
from onnxfde.running.csv_files import is_table
from onnxfde.running.data_files import ArrayFile
from onnxfde.running.data_rows import LABELS

OTHER_NAMES = ("labels", "label", "targets", "target", "Y")
"""What arrays of labels are called by mistake."""
GUESSING = 2.0
"""Standard errors above chance up to which an accuracy is called guessing. Chosen."""


class Scores(NamedTuple):
    """A metric before and after, if labels fit an output, and what is strange about them."""

    metric: str | None = None
    before: float | None = None
    after: float | None = None
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
            rows = min(len(old), len(classes))
            hits = [float(np.mean(a[:rows].argmax(axis=1) == classes[:rows])) for a in (old, new)]
            remark = strange_classes(classes, old.shape[1]) or guessing(hits[0], old.shape[1], rows)
            return Scores("accuracy", hits[0], hits[1], remark)
        if old.size == labels.size and old.dtype.kind == "f":
            target = labels.reshape(old.shape).astype(np.float64)
            return Scores("MSE", squared_error(old, target), squared_error(new, target))
    shapes = [
        " or ".join("×".join(map(str, a.shape)) for a in arrays) for arrays in ([labels], before)
    ]
    return Scores(remark=f"'{LABELS}' is not used: it is {shapes[0]}, the output {shapes[1]}")


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


def squared_error(values: Array, target: FloatArray) -> float | None:
    """The mean of the squared differences; None if it is not finite."""
    own, wanted, scale = scaled(values.astype(np.float64), target)
    with np.errstate(invalid="ignore"):
        found = float(np.mean((own - wanted) ** 2)) * scale * scale
    return found if math.isfinite(found) else None


def scaled(*arrays: FloatArray) -> tuple[FloatArray, FloatArray, float]:
    """Two arrays divided by a power of two about as large as they are, and that power."""
    largest = max(float(np.abs(a).max(initial=0.0, where=np.isfinite(a))) for a in arrays)
    scale = 2.0 ** (math.frexp(largest)[1] - 1) if largest else 1.0
    old, new = (a / scale for a in arrays)
    return old, new, scale
