"""Moving neurons downhill on an `Objective` f(U′), whose V′ is always the best one.

    Levenberg–Marquardt   (H + μ diag H_U) ΔU = −½∇f,   H = H_U − H_UV H_VV⁻¹ H_VU
    L-BFGS                for more unknowns than a matrix of them is worth

H is the Gauss–Newton matrix with V′ eliminated. The scale of a neuron is free: Levenberg–Marquardt
keeps neurons at length 1; L-BFGS starts each leg with lengths ‖V_r‖‖u_r‖², which makes all of them
about equally curved.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from onnxfde.neurons.objective import Fit, Objective
from onnxfde.numbers import FloatArray
from onnxfde.threads import few_threads

PATIENCE, SLOW = 8, 1e-3
"""Stop when f fell by less than a share SLOW within the last PATIENCE steps."""
FLAT = 1e-26
MOST_FAILURES = 8
JITTER = 1e-12
LEG = 150
"""Steps of L-BFGS after which its lengths should be evened again."""
WEAKEST = 1e-3

Tick = Callable[[int], None]
"""Hears how many steps were done since it last heard."""


def untold(steps: int) -> None:
    """Hear nothing."""


def unit(rows: FloatArray) -> FloatArray:
    """Rows of length 1."""
    length = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows / np.where(length == 0, 1.0, length))


def levenberg_marquardt(
    objective: Objective, rows: FloatArray, steps: int, tick: Tick = untold
) -> Fit:
    """Where Levenberg–Marquardt gets from `rows`."""
    best, damping = objective.fit(unit(rows)), 1e-2
    values = [best.value]
    for _ in range(steps):
        found, damping = damped_step(objective, best, damping)
        if found is None:
            break
        best = found
        tick(1)
        values.append(best.value)
        stalled = len(values) > PATIENCE and values[-PATIENCE - 1] - values[-1] < SLOW * values[-1]
        if stalled or best.value < FLAT:
            break
    return best


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
        found = objective.fit(unit(at.rows + step.reshape(count, width)))
        if found.value < at.value:
            return found, max(damping / 5, JITTER)
        damping *= 4
    return None, damping


def quasi_newton(
    objective: Objective, start: Fit, steps: int, tick: Tick = untold, size: int = 0
) -> Fit:
    """Where L-BFGS gets from `start`; `size` decides how many threads scipy may take."""
    from scipy.optimize import minimize

    lengths = np.linalg.norm(start.outgoing, axis=0) * np.linalg.norm(start.rows, axis=1) ** 2
    lengths = np.maximum(lengths / lengths.max(initial=1e-300), WEAKEST)
    rows = unit(start.rows) * lengths[:, None]

    def value(flat: FloatArray) -> tuple[float, FloatArray]:
        found = objective.fit(flat.reshape(rows.shape))
        return found.value, 2 * found.gradient.ravel()

    options = {"maxiter": steps, "maxfun": 2 * steps, "maxcor": 30, "ftol": 1e-9, "gtol": 1e-12}
    with few_threads(size):
        ended = minimize(
            value, rows.ravel(), jac=True, method="L-BFGS-B", options=options,
            callback=lambda _: tick(1),
        )  # fmt: skip
    found = objective.fit(unit(ended.x.reshape(rows.shape)))
    return found if found.value < start.value else start
