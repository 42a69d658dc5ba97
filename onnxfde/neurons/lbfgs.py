"""L-BFGS: steps downhill that learn the curvature of f from the last few of them.

    x ← x − t H∇f,   H = γI + [S  γY] [R⁻ᵀ(D + γYᵀY)R⁻¹, −R⁻ᵀ; −R⁻¹, 0] [S  γY]ᵀ

S and Y hold the last steps and the changes of ∇f they brought; R is the upper triangle of SᵀY, D
its diagonal and γ = sᵀy/yᵀy of the last step (Byrd, Nocedal and Schnabel 1994). t is 1 unless f
then does not fall enough, or falls as steeply as before (the weak Wolfe conditions).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np

from onnxfde.numbers import FloatArray

REMEMBERED = 12
"""How many steps are remembered. Measured on random 64-256-10 and trained digits: 8, 15 and 30 come
equally far in 150 steps, and 30 take 20 % more time."""
LEAST_FALL = 1e-9
"""It ends when a step lowers f by less than this share of f. Taken from prototypes; not tuned."""
ENOUGH_FALL = 1e-4
"""The share of the fall that ∇f promises which a step must bring: the usual choice."""
ENOUGH_FLATTENING = 0.9
"""The share of the first slope that may be left after a step: the usual choice."""
MOST_TRIALS = 20
"""How many lengths of one step are tried: the last is a millionth of the first."""
LEAST_CURVATURE = 2.2e-16
"""A step is remembered if sᵀy is above this share of yᵀy: the machine epsilon, as usual."""

Slope = Callable[[FloatArray], tuple[float, FloatArray]]
"""f and ∇f at a point."""


@dataclass(frozen=True, eq=False)
class Point:
    """A point with f and ∇f."""

    x: FloatArray
    value: float
    slope: FloatArray


@dataclass(eq=False)
class Memory:
    """The last steps, and the products between them that a direction needs."""

    steps: FloatArray
    changes: FloatArray
    newest_last: list[int] = field(default_factory=list)
    """The rows in use, oldest first."""

    @classmethod
    def of(cls, unknowns: int) -> Memory:
        """Nothing is remembered yet."""
        return cls(np.zeros((REMEMBERED, unknowns)), np.zeros((REMEMBERED, unknowns)))

    def __post_init__(self) -> None:
        """Make room for SᵀY and YᵀY."""
        self.mixed = np.zeros((REMEMBERED, REMEMBERED))
        self.squared = np.zeros((REMEMBERED, REMEMBERED))

    def learn(self, step: FloatArray, change: FloatArray) -> None:
        """Remember a step along which f is convex, and forget the oldest one."""
        if not step @ change > LEAST_CURVATURE * (change @ change):
            return
        used = self.newest_last
        row = used.pop(0) if len(used) == REMEMBERED else len(used)
        used.append(row)
        self.steps[row], self.changes[row] = step, change
        self.mixed[:, row] = self.steps @ change
        self.mixed[row] = self.changes @ step
        self.squared[:, row] = self.squared[row] = self.changes @ change

    def direction(self, slope: FloatArray) -> FloatArray:
        """−H∇f."""
        if not self.newest_last:
            return -slope / max(float(np.linalg.norm(slope)), 1e-300)
        used = np.array(self.newest_last)
        mixed, squared = self.mixed[np.ix_(used, used)], self.squared[np.ix_(used, used)]
        scale = mixed[-1, -1] / squared[-1, -1]
        upper, along = np.triu(mixed), (self.steps @ slope)[used]
        inner = np.linalg.solve(upper, along)
        outer = np.diag(mixed) * inner + scale * (squared @ inner - (self.changes @ slope)[used])
        weights = np.zeros((2, REMEMBERED))
        weights[0, used], weights[1, used] = np.linalg.solve(upper.T, outer), -scale * inner
        return np.asarray(-scale * slope - weights[0] @ self.steps - weights[1] @ self.changes)


def lbfgs(slope_at: Slope, start: FloatArray) -> Iterator[Point]:
    """The points that L-BFGS goes through, each lower than the last, until f hardly falls."""
    at, memory = Point(start, *slope_at(start)), Memory.of(start.size)
    while True:
        found = lower_point(slope_at, at, memory.direction(at.slope))
        if found is None and memory.newest_last:
            memory = Memory.of(start.size)
            found = lower_point(slope_at, at, memory.direction(at.slope))
        if found is None:
            return
        memory.learn(found.x - at.x, found.slope - at.slope)
        fall, at = at.value - found.value, found
        yield at
        if fall <= LEAST_FALL * abs(at.value):
            return


def lower_point(slope_at: Slope, at: Point, direction: FloatArray) -> Point | None:
    """A point along a direction that meets the Wolfe conditions, or is lower at least."""
    steep = float(at.slope @ direction)
    if not steep < 0:
        return None
    least, most, length, lower = 0.0, np.inf, 1.0, None
    for _ in range(MOST_TRIALS):
        x = at.x + length * direction
        found = Point(x, *slope_at(x))
        if not found.value <= at.value + ENOUGH_FALL * length * steep:
            most = length
        elif found.slope @ direction < ENOUGH_FLATTENING * steep:
            least, lower = length, found
        else:
            return found
        length = 2 * length if most == np.inf else (least + most) / 2
    return lower
