"""Layers with a given number of neurons whose U′ and V′ are chosen together.

    refitted merge  →  starts (`starts`) moved downhill (`descent`)  →  taught by the evidence

Several starts are moved downhill on the Gaussian target, the best of them further than the rest.
Evidence, real inputs of the layer with the outputs it should have, then pulls the best of them away
from the Gaussian solution: with less and less weight on the Gaussian target, as long as the samples
held out gain by it. All layers are made as they will be stored. If 8 bits are to follow, the ridge
of the objective is the error that they bring (`rounding_noise`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from onnxfde.neurons.block_search import BlockSearch
from onnxfde.neurons.descent import LEG, levenberg_marquardt, quasi_newton, unit
from onnxfde.neurons.frontier import Reduced
from onnxfde.neurons.held_out import Evidence
from onnxfde.neurons.kernels import mean_square
from onnxfde.neurons.objective import Fit, Forms, Neurons, Objective, Target, summed
from onnxfde.neurons.problem import Problem
from onnxfde.neurons.rounding_noise import rounding_noise
from onnxfde.neurons.starts import FEW_STARTS, starting_rows
from onnxfde.progress import Progress

RIDGES = {"float64": 1e-14, "float32": 1e-12, "float16": 1e-7, "bfloat16": 1e-5}
"""The ridge by stored type. Those of float32 and float16 worked in prototypes; the other two are
chosen by the digits of their types, not tuned."""
MOST_RIDGE = 0.01
"""The largest ridge in view of 8 bits, so that the fit itself does not suffer. Chosen; not
tuned."""
MOST_UNKNOWNS = 500
"""Unknowns in U′ up to which Levenberg–Marquardt is used, and L-BFGS beyond. Prototypes used it up
to about 600 unknowns in U′ and V′ together; solving for 500 takes 5 ms."""
MOST_FORMS = 2_000_000
"""Numbers in all quadratic forms up to which they are used although neurons would be cheaper,
because they keep all digits: 16 MB. Chosen; not tuned."""
MOST_WIDTH = 64
"""The most coordinates of z for the same. Chosen; not tuned."""
MOST_PRODUCTS = 2e9
"""Rows × unknowns² up to which Levenberg–Marquardt is used on data, 0.2 s per step on one core.
Chosen; not tuned."""
RACE = ((12, 15), (4, 40), (2, 150))
"""Rounds of Levenberg–Marquardt: (how many of the best go on, for how many steps). All twelve
starts get a few steps, the best two many. Chosen; not tuned."""
LEGS = 3
"""How often L-BFGS is restarted with new lengths: 3 · `LEG` steps, about the 500 of prototypes."""
MOST_WORK = 3e12
"""Multiplications that L-BFGS may take for one count, 2 to 3 minutes on one core; in larger layers
each leg has fewer steps. Chosen; not tuned."""
FEWEST_STEPS = 10
"""But no leg has fewer steps than this. Chosen; not tuned."""
SHARES = (1.0, 0.3, 0.1, 0.03, 0.01, 0.003)
"""The weight of the Gaussian target beside the evidence, one after the other. The first three are
those of prototypes; the others continue them."""
TAUGHT_STEPS = 15
"""Steps of Levenberg–Marquardt for each share. Chosen; not tuned."""
TAUGHT_WORK = 3e10
"""Multiplications of L-BFGS for each share, about 2 s on one core. Chosen; not tuned."""
TAUGHT_LEG = (40, 400)
"""The fewest and the most steps of L-BFGS for each share. Chosen; not tuned."""
STEP_PRODUCTS = 6
"""Matrix products that one evaluation with its gradient takes. An estimate; not measured."""


@dataclass(eq=False)
class Meter:
    """Reports how far a search is that takes about `steps` for each count it tries."""

    progress: Progress
    steps: int
    counts: int = 1
    done: int = 0

    def start(self, tried: int, counts: int) -> None:
        """Begin the next count: `tried` are done, of about `counts` in all."""
        self.done, self.counts = tried * self.steps, counts

    def step(self, steps: int) -> None:
        """Report some more steps."""
        self.done = min(self.done + steps, self.counts * self.steps)
        self.progress.at(self.done, self.counts * self.steps)


@dataclass(frozen=True, eq=False)
class FreeAttempts:
    """Freely chosen layers by number of neurons, made when they are asked for and kept."""

    problem: Problem
    blocks: BlockSearch
    progress: Progress

    def at(self, count: int) -> Iterator[Reduced]:
        """All attempts at this number of neurons; the first is the refitted merge."""
        if count not in self._made:
            self._made[count] = [], self._making(count)
        kept, source = self._made[count]
        yield from kept
        for attempt in source:
            kept.append(attempt)
            yield attempt

    @cached_property
    def _made(self) -> dict[int, tuple[list[Reduced], Iterator[Reduced]]]:
        return {}

    @cached_property
    def meter(self) -> Meter:
        """Counts the steps of one count after the other."""
        taught = len(SHARES) * TAUGHT_LEG[0] if self.problem.evidence else 0
        steps = max(LEGS * LEG, sum(n * steps for n, steps in RACE)) + taught
        return Meter(self.progress, steps)

    def _making(self, count: int) -> Iterator[Reduced]:
        """The refitted merge, then neurons moved downhill, then taught by the evidence."""
        yield self.blocks.candidate(count)
        objective = self._objective
        starts = starting_rows(self.blocks, count, objective)
        fits = [objective.fit(unit(rows)) for rows in starts]
        best = min(fits, key=lambda f: f.value)
        run = self._race if self._small(count) else self._run
        for found in run(objective, fits):
            yield self._built(found, objective, None)
            best = min(best, found, key=lambda f: f.value)
        yield from self._taught(best)

    def _race(self, objective: Objective, fits: list[Fit]) -> Iterator[Fit]:
        """Levenberg–Marquardt from many starts, the best of which go further than the rest."""
        for many, steps in RACE:
            chosen, fits = sorted(fits, key=lambda f: f.value)[:many], []
            for start in chosen:
                fits.append(levenberg_marquardt(objective, start.rows, steps, self.meter.step))
                yield fits[-1]

    def _run(self, objective: Objective, fits: list[Fit]) -> Iterator[Fit]:
        """L-BFGS: the first leg from the best start, or from all if many, then on from the best."""
        live, best = self.problem.live, min(fits, key=lambda f: f.value)
        step = STEP_PRODUCTS * len(best.rows) * live.neurons * (live.inputs + live.outputs)
        steps = int(np.clip(MOST_WORK / (LEGS * step), FEWEST_STEPS, LEG))
        for start in fits if len(fits) > FEW_STARTS else [best]:
            found = self._far(objective, start, steps)
            yield found
            best = min(best, found, key=lambda f: f.value)
        for _ in range(LEGS - 1):
            best = self._far(objective, best, steps)
            yield best

    def _far(self, objective: Objective, start: Fit, steps: int) -> Fit:
        return quasi_newton(objective, start, steps, self.meter.step, self.problem.layer.size)

    def _taught(self, fit: Fit) -> Iterator[Reduced]:
        """Less and less weight on the Gaussian target, as long as the samples held out gain."""
        evidence = self.problem.evidence
        if evidence is None:
            return
        least, width = (np.inf, np.inf), fit.rows.size + fit.outgoing.size
        for number, share in enumerate(SHARES):
            batch = evidence.fitted.batch(number, width)
            observed = batch.observed(self.problem.metric, self.problem.layer.activation)
            if not observed.total:
                continue
            objective = Objective(((observed, 1.0), (self._gaussian, share)), self._ridge)
            start = objective.fit(fit.rows)
            if self._small(len(fit.rows)) and len(batch.inputs) * fit.rows.size**2 <= MOST_PRODUCTS:
                fit = levenberg_marquardt(objective, start.rows, TAUGHT_STEPS, self.meter.step)
            else:
                work = STEP_PRODUCTS * len(batch.inputs) * width
                fit = self._far(objective, start, int(np.clip(TAUGHT_WORK / work, *TAUGHT_LEG)))
            reduced = self._built(fit, objective, evidence.fitted)
            yield reduced
            if self.problem.rank(reduced) > least:
                return
            least = self.problem.rank(reduced)

    def _built(self, fit: Fit, objective: Objective, evidence: Evidence | None) -> Reduced:
        """The layer of these neurons as it will be stored, V′ fitted to the rounded U′."""
        problem, live, metric = self.problem, self.problem.live, self.problem.metric
        start = replace(live, incoming=metric.unwhiten(fit.rows), outgoing=fit.outgoing)
        even = problem.evened(start, exact=False)
        rounded = replace(start, incoming=problem.read_back(even).incoming)
        if not np.isfinite(rounded.incoming).all():
            return Reduced(rounded, (), np.inf)
        rows = metric.whiten(rounded.incoming)
        fitted = replace(rounded, outgoing=objective.fit(rows).outgoing)
        if evidence is None:
            means = live.outgoing @ mean_square(problem.rows) - fitted.outgoing @ mean_square(rows)
            fitted = replace(fitted, offset=live.offset + means)
        else:
            fitted = evidence.centred(fitted)
        return problem.reduced(problem.read_back(fitted), ())

    @cached_property
    def _gaussian(self) -> Target:
        """The layer under Gaussian inputs, as quadratic forms or as neurons."""
        live, rows = self.problem.live, self.problem.rows
        width = live.inputs + 1
        size = live.outputs * width**2
        cheaper = size <= live.neurons * (width + live.outputs)
        if cheaper or (width <= MOST_WIDTH and size <= MOST_FORMS):
            return Forms(summed(rows, live.outgoing))
        return Neurons(rows, live.outgoing)

    @cached_property
    def _objective(self) -> Objective:
        return Objective(((self._gaussian, 1.0),), self._ridge)

    def _small(self, count: int) -> bool:
        """Whether U′ has few enough unknowns for Levenberg–Marquardt."""
        return count * (self.problem.live.inputs + 1) <= MOST_UNKNOWNS

    @cached_property
    def _ridge(self) -> float:
        """What the stored type needs, or the variance that rounding to 8 bits brings."""
        if not self.problem.int8:
            return RIDGES[self.problem.dtype.name]
        return min(rounding_noise(self.problem.live, self.problem.samples), MOST_RIDGE)
