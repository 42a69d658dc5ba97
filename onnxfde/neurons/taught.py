"""Neurons taught by evidence: real inputs of the layer with the outputs it should have.

    min over U′, V′ of  error on the rows² + share · error on the Gaussian target²,   share → 0

Less and less weight lies on the Gaussian target, as long as the samples held out gain by it.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from onnxfde.neurons.descent import levenberg_marquardt, quasi_newton
from onnxfde.neurons.free_layers import STEP_PRODUCTS, FreeLayers
from onnxfde.neurons.frontier import Reduced
from onnxfde.neurons.objective import Fit
from onnxfde.neurons.search_meter import SearchMeter

MOST_PRODUCTS = 2e9
"""Rows × unknowns² up to which Levenberg–Marquardt is used on data, 0.2 s per step on one core.
Chosen; not tuned."""
SHARES = (1.0, 0.3, 0.1, 0.03, 0.01, 0.003)
"""The weight of the Gaussian target beside the evidence, one after the other. The first three are
those of prototypes; the others continue them."""
TAUGHT_STEPS = 15
"""Steps of Levenberg–Marquardt for each share. Chosen; not tuned."""
TAUGHT_WORK = 3e10
"""Multiplications of L-BFGS for each share, about 2 s on one core. Chosen; not tuned."""
FEWEST_TAUGHT = 10
"""The fewest for other activations than squares, which see the evidence from the beginning. Chosen;
not tuned."""
TAUGHT_LEG = (40, 400)
"""The fewest and the most steps of L-BFGS for each share. Chosen; not tuned."""


def taught(
    layers: FreeLayers, fit: Fit, meter: SearchMeter, most: int = TAUGHT_LEG[1]
) -> Iterator[Reduced]:
    """Layers fitted to the evidence, starting from `fit`, with less and less Gaussian weight.

    L-BFGS takes at most `most` steps for each weight.
    """
    problem, evidence = layers.problem, layers.problem.evidence
    if evidence is None:
        return
    least, width = (np.inf, np.inf), fit.rows.size + fit.outgoing.size
    for number, share in enumerate(SHARES):
        if layers.fitted_to is not None and share >= layers.first_share:
            continue
        observed = layers.observed(evidence, number, width)
        samples = len(observed.inputs)
        if not observed.total:
            continue
        objective = layers.objective_with(((observed, 1.0),), share)
        start = objective.fit(fit.rows)
        if layers.is_small(len(fit.rows)) and samples * fit.rows.size**2 <= MOST_PRODUCTS:
            fit = levenberg_marquardt(objective, start.rows, TAUGHT_STEPS, meter.step)
        else:
            work, fewest = float(STEP_PRODUCTS * samples * width), TAUGHT_LEG[0]
            if layers.fitted_to is not None:
                work, fewest = layers.step_work(len(fit.rows)), FEWEST_TAUGHT
            steps = int(np.clip(TAUGHT_WORK / work, min(fewest, most), most))
            fit = quasi_newton(objective, start, steps, meter.step)
        reduced = layers.built(fit, objective, evidence.fitted)
        yield reduced
        if problem.rank(reduced) > least or meter.over:
            return
        least = problem.rank(reduced)


def most_taught_steps(layers: FreeLayers, count: int, most: int = TAUGHT_LEG[1]) -> int:
    """The most steps that `taught` takes from `count` neurons."""
    if layers.problem.evidence is None:
        return 0
    return len(SHARES) * (TAUGHT_STEPS if layers.is_small(count) else most)
