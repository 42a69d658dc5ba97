"""Neurons whose rows are equal up to rounding, and to the scale and sign that σ leaves free.

    |u_ij − f_i·u_rj| ≤ ε·(|f_i·u_rj| + c_j·max|f_i·u_r|),   ε = `ROW_STEPS`·u

r is the representative, and c_j `COLUMN_STEPS` times what the weights of input j usually are,
relative to the largest of their row: a weight that is a sum of several has the rounding errors of
its terms, however small it is. But a weight may not differ because it is small in its row alone, as
its input may be large. With c = 0 rows are *strictly* equal.

The projections of equal rows on a direction g differ by at most ε·‖|u| + c‖·‖g‖. So rows are
projected on a few random directions and sorted, and only neighbours are compared in full. Every
member is compared with its representative, so that small differences do not add up.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from onnxfde.numbers import ROUNDOFF, FloatArray, Indices

ROW_STEPS = 4
"""Unit roundoffs by which equal weights may differ: two copies of a number, each rounded once, are
2 apart, and so may be the factor between their rows, which is estimated from them."""
SMALLEST = {"float32": 2.0**-149, "float16": 2.0**-24, "bfloat16": 2.0**-133, "float64": 2.0**-1074}
"""The smallest positive number of each type (IEEE 754): weights near it are rounded to multiples of
it, so that equal ones may be one of them apart."""
KEYS = 8
"""Directions on which rows are projected. Chosen; not tuned."""
KEY_STEPS = 4.0
"""At most this is taken for ‖g‖ above: four standard deviations of the projection of a difference,
and more of one that is due to rounding, which hardly ever reaches ε in every weight."""
FLOAT64_SLACK = 1e-14
"""Relative rounding errors of the projections, which are computed in float64."""
COLUMN_STEPS = 4
"""In a planted network whose neurons are present four times at random scales and signs, 2 is enough
for all but one of 256 rows after the layer before was merged."""
COLUMN_ROWS = 512
"""Rows from which the usual size of weights is taken. Chosen; not tuned."""
MOST_COMPARED = 2**22
"""Weights that are compared at a time, 32 MB. Chosen; not tuned."""


@dataclass(frozen=True, eq=False)
class RowFamilies:
    """Which neurons have the same row."""

    representatives: Indices
    """One neuron of each family, in ascending order."""
    home: Indices
    """The family of each neuron."""
    factor: FloatArray
    """What its representative's row is to be multiplied by to give a neuron's row."""
    loose: npt.NDArray[np.bool_]
    """Whether a neuron's row is not strictly equal."""


def row_families(
    rows: FloatArray,
    dtype: np.dtype[Any],
    scaled: bool,
    signed: bool,
    strict: bool = False,
    labels: FloatArray | None = None,
    rank: FloatArray | None = None,
) -> RowFamilies:
    """Families of equal rows; `scaled` and `signed` say what may differ, labels may not.

    Representatives are the neurons of highest rank; if there is none, those with the largest rows.
    """
    tolerance, quantum = ROW_STEPS * ROUNDOFF[dtype.name], SMALLEST[dtype.name]
    columns = np.zeros(rows.shape[1]) if strict else column_sizes(rows)
    search = _Search.of(rows, columns, tolerance, quantum, scaled, signed)
    leader, factor = np.arange(len(rows)), np.ones(len(rows))
    free, loose = np.ones(len(rows), dtype=bool), np.zeros(len(rows), dtype=bool)
    for first in search.worth_comparing(search.size if rank is None else rank):
        if not free[first]:
            continue
        near = search.near(first)
        near = near[free[near] & (near != first)]
        if labels is not None:
            near = near[(labels[near] == labels[first]).all(axis=1)]
        free[first] = False
        for some in search.pieces(near):
            same, factors, loosely = search.equal(first, some)
            leader[same], factor[same], free[same] = first, factors, False
            loose[same] = loosely
    representatives, home = np.unique(leader, return_inverse=True)
    return RowFamilies(representatives, home.reshape(-1), factor, loose)


def column_sizes(rows: FloatArray) -> FloatArray:
    """c, from the median of the weights of each input, relative to the largest of their rows."""
    if not len(rows):
        return np.zeros(rows.shape[1])
    some = np.abs(rows[:: 1 + len(rows) // COLUMN_ROWS])
    largest = some.max(axis=1, initial=0.0, keepdims=True)
    return np.asarray(COLUMN_STEPS * np.median(some / np.where(largest > 0, largest, 1.0), axis=0))


@dataclass(frozen=True, eq=False)
class _Search:
    rows: FloatArray
    """Scaled to a largest weight of 1 if the scale is free."""
    size: FloatArray
    columns: FloatArray
    tolerance: float
    quantum: float
    scaled: bool
    signed: bool
    keys: FloatArray
    spread: FloatArray
    """How much the keys of an equal row may differ."""
    order: Indices
    """By the first key."""
    sorted_keys: FloatArray
    second_keys: FloatArray
    """The second keys in the same order."""

    @classmethod
    @np.errstate(over="ignore", invalid="ignore")
    def of(
        cls,
        rows: FloatArray,
        columns: FloatArray,
        tolerance: float,
        quantum: float,
        scaled: bool,
        signed: bool,
    ) -> _Search:
        size = np.abs(rows).max(axis=1, initial=0.0)
        size = np.where(size > 0, size, 1.0) if scaled else np.ones(len(rows))
        rows = rows / size[:, None]
        directions = np.random.default_rng(0).standard_normal((rows.shape[1], KEYS))
        keys = rows @ directions
        allowed = (2 if scaled else 1) * tolerance + FLOAT64_SLACK
        largest = np.abs(rows).max(axis=1, initial=0.0)
        length = np.linalg.norm(rows, axis=1) + largest * np.linalg.norm(columns)
        length = allowed * length + 2 * quantum / size * np.sqrt(rows.shape[1])
        spread = np.outer(length, np.minimum(np.linalg.norm(directions, axis=0), KEY_STEPS))
        first, second = (np.abs(keys) if signed else keys)[:, :2].T
        order = np.argsort(first, kind="stable")
        told = (columns, tolerance, quantum, scaled, signed)
        return cls(rows, size, *told, keys, spread, order, first[order], second[order])

    def worth_comparing(self, rank: FloatArray) -> list[int]:
        """Neurons with a neighbour that may be equal, those of the highest rank first."""
        gaps = np.diff(self.sorted_keys, prepend=-np.inf, append=np.inf)
        close = np.minimum(gaps[1:], gaps[:-1]) <= self.spread[self.order, 0]
        chosen = np.sort(self.order[close])
        found: list[int] = chosen[np.argsort(-rank[chosen], kind="stable")].tolist()
        return found

    def near(self, first: int) -> Indices:
        """Neurons whose keys allow them to be equal to one neuron."""
        key, spread = self.keys[first], self.spread[first]
        middle = abs(key[0]) if self.signed else key[0]
        start, end = np.searchsorted(self.sorted_keys, (middle - spread[0], middle + spread[0]))
        some, second = self.order[start : end + 1], self.second_keys[start : end + 1]
        some = some[np.abs(second - (abs(key[1]) if self.signed else key[1])) <= spread[1]]
        found = (np.abs(self.keys[some] - key) <= spread).all(axis=1)
        if self.signed:
            found |= (np.abs(self.keys[some] + key) <= spread).all(axis=1)
        return np.asarray(some[found])

    def pieces(self, some: Indices) -> Iterator[Indices]:
        """As many neurons at a time as may be compared at once."""
        step = max(1, MOST_COMPARED // self.rows.shape[1])
        for at in range(0, len(some), step):
            yield some[at : at + step]

    def equal(self, first: int, some: Indices) -> tuple[Indices, FloatArray, npt.NDArray[np.bool_]]:
        """Those of some neurons that are equal to one, their factors, and which are loosely so."""
        row, rows = self.rows[first], self.rows[some]
        along = rows @ row / (row @ row)
        ratio = self.size[some] / self.size[first]
        if not self.scaled:
            along = np.sign(along)
        scaled = along[:, None] * row
        steps = self.quantum / self.size[some]
        excess = np.abs(rows - scaled) - self.tolerance * np.abs(scaled) - steps[:, None]
        usual = self.tolerance * np.abs(row).max() * self.columns
        same = (excess <= np.abs(along)[:, None] * usual).all(axis=1)
        same &= along != 0 if self.signed else along > 0
        loose = (excess > 0).any(axis=1)
        return some[same], (along * ratio)[same], loose[same]
