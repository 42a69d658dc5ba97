"""What items add to a score: characters that were read, classes, and boxes that two networks share.

characters   (length − edit distance) / length           of a line
boxes        F1 = 2·matched / (boxes + original's boxes)  of a picture
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from benchmarks.real.subject import Run, Score
from onnxfde.numbers import Array, FloatArray


def first_outputs(run: Run, name: str, x: Array, batch: int) -> Iterator[Array]:
    """The first output for so many rows at once."""
    for start in range(0, len(x), batch):
        yield run({name: x[start : start + batch]})[0]


def class_score(outputs: Array, labels: Array) -> Score:
    """The share of rows whose largest output is that of the label."""
    right = outputs.argmax(axis=1) == labels
    return Score(right.astype(np.float64), np.ones(len(labels)))


def edit_distance(first: str, second: str) -> int:
    """How many characters have to be put in, left out or changed.

    >>> edit_distance("kitten", "sitting"), edit_distance("", "abc"), edit_distance("a", "a")
    (3, 3, 0)
    """
    row = list(range(len(second) + 1))
    for i, a in enumerate(first, 1):
        diagonal, row[0] = row[0], i
        for j, b in enumerate(second, 1):
            kept = diagonal + (a != b)
            diagonal, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, kept)
    return row[-1]


def decoded(best: Array, characters: Sequence[str]) -> str:
    """What a line says, by the likeliest class of each step: repeats count once, class 0 is none.

    >>> decoded(np.array([0, 1, 1, 0, 1, 2]), ["", "a", "b"])
    'aab'
    """
    new = np.concatenate([[True], best[1:] != best[:-1]]) & (best != 0)
    return "".join(characters[k] for k in best[new])


def character_score(read: Sequence[str], true: Sequence[str]) -> Score:
    """Of each line, characters less edits; spaces do not count."""
    pairs = [(a.replace(" ", ""), b.replace(" ", "")) for a, b in zip(read, true, strict=True)]
    lengths = np.array([len(b) for _, b in pairs], np.float64)
    edits = np.array([edit_distance(a, b) for a, b in pairs], np.float64)
    return Score(lengths - edits, lengths)


def overlaps(boxes: FloatArray, others: FloatArray) -> FloatArray:
    """The share that two boxes (left, top, right, bottom) have in common, for all pairs."""
    low = np.maximum(boxes[:, None, :2], others[None, :, :2])
    high = np.minimum(boxes[:, None, 2:], others[None, :, 2:])
    both = np.clip(high - low, 0, None).prod(axis=2)
    areas, other_areas = ((b[:, 2:] - b[:, :2]).prod(axis=1) for b in (boxes, others))
    return np.asarray(both / np.maximum(areas[:, None] + other_areas - both, 1e-9))


def matched(found: FloatArray, wanted: FloatArray, least: float) -> int:
    """How many boxes (four corners, class, score) are found again, the surest first, each once."""
    free = np.ones(len(wanted), bool)
    shared = overlaps(found[:, :4], wanted[:, :4]) * (found[:, None, 4] == wanted[None, :, 4])
    for i in np.argsort(-found[:, 5], kind="stable"):
        open_pairs = np.where(free, shared[i], 0.0)
        if len(wanted) and open_pairs.max() >= least:
            free[open_pairs.argmax()] = False
    return int(len(wanted) - free.sum())


def box_score(
    found: Sequence[FloatArray], wanted: Sequence[FloatArray], least: float = 0.5
) -> Score:
    """F1 of boxes; a picture without boxes in either adds nothing."""
    pairs = list(zip(found, wanted, strict=True))
    top = np.array([2 * matched(a, b, least) for a, b in pairs], np.float64)
    return Score(top, np.array([len(a) + len(b) for a, b in pairs], np.float64))
