"""Moving neurons downhill on an `Objective` f(U′), whose V′ is always the best one.

    Levenberg–Marquardt   (H + μ diag H_U) ΔU = −½∇f,   H = H_U − H_UV H_VV⁻¹ H_VU
    L-BFGS                where a matrix over all unknowns would be too large

H is the Gauss–Newton matrix with V′ eliminated. The scale of a square is free: Levenberg–Marquardt
keeps all neurons at length 1; L-BFGS starts each leg with lengths proportional to ‖V_r‖‖u_r‖²,
which makes f about equally curved in all of them. With other activations its unknowns are rows
times ‖V_r‖ (`unit_kernels`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import NamedTuple

import numpy as np

from onnxfde.neurons.lbfgs import lbfgs
from onnxfde.neurons.objective import Fit, Objective
from onnxfde.numbers import FloatArray

PATIENCE = 8
"""Levenberg–Marquardt stops if f fell by less than `SLOW` in this many steps. Chosen; not tuned."""
SLOW = 1e-3
"""The least fall of f, relative to f, that is worth `PATIENCE` steps. Chosen; not tuned."""
FLAT = 1e-26
"""f is a squared relative error: below this, an error of 1e-13, it is rounding."""
FIRST_DAMPING = 1e-2
"""The damping μ of the first step. Chosen; not tuned."""
LESS_DAMPING = 5
"""After a step that lowers f, μ is divided by this. Chosen; not tuned."""
MORE_DAMPING = 4
"""After a step that does not, μ is multiplied by this. Chosen; not tuned."""
LEAST_DAMPING = 1e-12
"""μ does not fall below this. Chosen; not tuned."""
MOST_FAILURES = 8
"""How many dampings are tried for one step; the last is 4⁷ times the first. Chosen; not tuned."""
JITTER = 1e-12
"""Added to diagonals, relative to their sum or maximum, against singular matrices: well above
float64 rounding, well below any curvature that matters. Chosen; not tuned."""
LEG = 150
"""Steps of L-BFGS after which the lengths of the neurons should be reset. Chosen; not tuned."""

GoOn = Callable[[int], bool]
"""Is called with the number of steps done since the last call; false if the descent must end."""


class Waypoint(NamedTuple):
    """Neurons U′ on the way down, and f(U′)."""

    rows: FloatArray
    value: float


def always(steps: int) -> bool:
    """Go on, whatever the number of steps done."""
    return True


def levenberg_marquardt(
    objective: Objective, rows: FloatArray, steps: int, go_on: GoOn = always
) -> Fit:
    """The neurons that Levenberg–Marquardt reaches from `rows`."""
    best = objective.fit(objective.kernel.unit(rows))
    for found in islice(damped_steps(objective, best), steps):
        best = found
        if not go_on(1):
            break
    return best


def damped_steps(objective: Objective, start: Fit) -> Iterator[Fit]:
    """The neurons that Levenberg–Marquardt goes through, until f hardly falls."""
    best, damping, values = start, FIRST_DAMPING, [start.value]
    while True:
        found, damping = damped_step(objective, best, damping)
        if found is None:
            return
        best = found
        yield best
        values.append(best.value)
        stalled = len(values) > PATIENCE and values[-PATIENCE - 1] - values[-1] < SLOW * values[-1]
        if stalled or best.value < FLAT:
            return


def damped_step(objective: Objective, at: Fit, damping: float) -> tuple[Fit | None, float]:
    """One step that lowers f, if there is one, and the damping for the next."""
    count, width = at.rows.shape
    gram, first, second = objective.curvature(at.rows)
    gram[np.diag_indices(count)] += JITTER * np.trace(gram)
    pairs = at.outgoing.T @ at.outgoing
    left = second - first.T @ np.linalg.solve(gram, first)
    curvature = (left.reshape(count, width, count, width) * pairs[:, None, :, None]).reshape(
        second.shape
    )
    scale = np.diag(second) * np.repeat(np.diag(pairs), width)
    scale = scale + JITTER * scale.max()
    if not scale.all():
        return None, damping
    diagonal = np.diag_indices(len(curvature))
    undamped = curvature[diagonal].copy()
    for _ in range(MOST_FAILURES):
        curvature[diagonal] = undamped + damping * scale
        step = np.linalg.solve(curvature, -at.gradient.ravel())
        found = objective.fit(objective.kernel.unit(at.rows + step.reshape(count, width)))
        if found.value < at.value:
            return found, max(damping / LESS_DAMPING, LEAST_DAMPING)
        damping *= MORE_DAMPING
    return None, damping


def quasi_newton(objective: Objective, start: Fit, steps: int, go_on: GoOn = always) -> Fit:
    """The neurons that L-BFGS reaches from `start`."""
    reached, values = start.rows, [start.value]
    for at in islice(descending(objective, start), steps):
        reached = at.rows
        values.append(at.value)
        if not go_on(1) or objective.kernel.stalled(values):
            break
    found = objective.fit(objective.kernel.unit(reached))
    return found if found.value < start.value else start


def descending(objective: Objective, start: Fit) -> Iterator[Waypoint]:
    """The neurons that L-BFGS goes through from `start`, until f hardly falls."""
    x, factors = objective.kernel.preconditioned(start.rows, start.outgoing)

    def slope_at(flat: FloatArray) -> tuple[float, FloatArray]:
        found = objective.fit(flat.reshape(x.shape) / factors)
        return found.value, 2 * (found.gradient / factors).ravel()

    for point in lbfgs(slope_at, x.ravel()):
        yield Waypoint(point.x.reshape(x.shape) / factors, point.value)
