"""The fewest neurons when U′ and V′ are chosen together.

    Σ_r V′_kr u′_r u′_rᵀ ≈ Q_k   for all outputs k, in the metric

Several starts (`starts`) are moved downhill (`descent`), the best of them further than the rest.
Evidence, real inputs of the layer with the outputs it should have, then pulls the solution away
from the Gaussian one: it is fitted to nine tenths of the samples, and only as far as the last tenth
gains by it. What is judged is the layer as it is stored. Where 8 bits are to follow, the ridge of
the objective is the error that they bring (`rounding_noise`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from onnxfde.neurons.balance import balanced
from onnxfde.neurons.block_search import BlockSearch
from onnxfde.neurons.completed_square import eigen_neurons
from onnxfde.neurons.descent import LEG, levenberg_marquardt, quasi_newton, unit
from onnxfde.neurons.frontier import Reduced
from onnxfde.neurons.held_out import Evidence
from onnxfde.neurons.kernels import mean_square
from onnxfde.neurons.layer import Layer
from onnxfde.neurons.objective import Fit, Forms, Neurons, Objective, Target, summed
from onnxfde.neurons.problem import Problem
from onnxfde.neurons.refit import refit
from onnxfde.neurons.rounding_noise import rounding_noise
from onnxfde.neurons.starts import FEW_STARTS, starting_rows
from onnxfde.numbers import cast
from onnxfde.progress import Progress

RIDGES = {"float64": 1e-14, "float32": 1e-12, "float16": 1e-7, "bfloat16": 1e-5}
"""The ridge by stored type: about the square of its roundoff, so that weights which cancel cost no
more digits than the type has."""
MOST_RIDGE = 0.01
"""A ridge beyond which the fit would suffer more than 8 bits do; chosen, not tuned."""
MOST_UNKNOWNS = 500
"""Levenberg–Marquardt up to here, where solving for all unknowns takes milliseconds, then
L-BFGS."""
MOST_FORMS, MOST_WIDTH = 2_000_000, 64
"""Numbers in all quadratic forms, and inputs, up to which forms are used although neurons would be
cheaper: forms keep all digits."""
MOST_PRODUCTS = 2e9
"""Multiplications for one matrix of unknowns on data: about a second."""
MOST_EIGEN = 1e10
"""Multiplications for the eigenvectors of all outputs: a few seconds."""
TIE = 1.05
"""A lossless layer is preferred to one whose measured error is at most this factor smaller."""
RACE = ((12, 15), (4, 40), (2, 150))
"""Levenberg–Marquardt: how many of the best starts go on, and for how many steps. Most starts show
within 15 steps that they lead nowhere."""
LEGS = 3
MOST_WORK, FEWEST_STEPS = 3e12, 10
"""L-BFGS takes LEGS·LEG steps, or fewer in layers where that is more work (in multiplications, a
few minutes) but at least FEWEST_STEPS in each leg."""
SHARES = (1.0, 0.3, 0.1, 0.03, 0.01, 0.003)
"""The weight of the Gaussian target beside the evidence, one after the other."""
FEW_STEPS = 15
"""Steps of Levenberg–Marquardt for each share."""
TAUGHT_WORK, TAUGHT_STEPS = 3e10, (40, 400)
"""Multiplications that one share is worth (seconds), and the steps of L-BFGS which that makes."""


@dataclass(eq=False)
class Meter:
    """Tells how far a search is that takes about `steps` for each count it tries."""

    progress: Progress
    steps: int
    counts: int = 1
    done: int = 0

    def start(self, tried: int, counts: int) -> None:
        """Begin with the next count, of this many in all."""
        self.done, self.counts = tried * self.steps, counts

    def step(self, steps: int) -> None:
        """Some steps are done."""
        self.done = min(self.done + steps, self.counts * self.steps)
        self.progress.at(self.done, self.counts * self.steps)


@dataclass(frozen=True, eq=False)
class FreeSearch:
    """The frontier of a layer when its neurons are chosen freely."""

    problem: Problem
    blocks: BlockSearch
    progress: Progress = field(default_factory=Progress)

    def within(self, eps: float) -> Reduced | None:
        """The fewest neurons within ε, or None when that is all of them."""
        kept = [self.lossless] if self.lossless else []
        if eps >= self.problem.floor and self.problem.live.neurons:
            found = (self.blocks.within(eps), self._bisected(eps))
            kept += [r for r in found if r and self.error(r) <= eps]
        return min(kept, key=lambda r: (r.layer.neurons, *self._rank(r)), default=None)

    def at_most(self, count: int) -> Reduced | None:
        """The layer with at most this many neurons; fewer when nothing is lost by it."""
        known = self.lossless
        enough = known is not None and known.layer.neurons <= count
        if count >= self.problem.live.neurons or (enough and self._inherited < self.problem.floor):
            return known
        best = min(self._attempts(count), key=self._rank)
        if known and enough and self.measured(known) <= TIE * self.measured(best):
            return known
        return best

    def smallest_eps(self) -> float:
        """An ε at which a neuron can go: that of the cheapest merge."""
        count = self.problem.live.neurons - 1
        if count < 1:
            return 0.0
        return max(self.problem.floor, self.error(self.blocks.candidate(count)))

    @property
    def neurons_lossless(self) -> int:
        """How many neurons are equal up to rounding."""
        return self.lossless.layer.neurons if self.lossless else self.problem.layer.neurons

    def measured(self, found: Reduced) -> float:
        """The error on samples held out, if there are any, else in the metric."""
        evidence = self.problem.evidence
        return evidence.held_out.error(found.layer) if evidence else found.error

    def error(self, found: Reduced) -> float:
        """What ε bounds: the error to expect, without what earlier layers brought in."""
        evidence = self.problem.evidence
        if evidence is None:
            return found.error
        return math.sqrt(max(evidence.expected_error(found.layer) ** 2 - self._inherited**2, 0.0))

    def _rank(self, found: Reduced) -> tuple[float, float]:
        """Better layers first: those that ε allows before any that it does not."""
        return self.error(found), self.measured(found)

    @cached_property
    def _inherited(self) -> float:
        evidence = self.problem.evidence
        return evidence.held_out.error(self.problem.layer) if evidence else 0.0

    @cached_property
    def lossless(self) -> Reduced | None:
        """The fewest neurons that are equal up to rounding: originals, or eigenvectors."""
        problem, found = self.problem, self.blocks.lossless
        live = problem.live
        work = live.outputs * live.inputs**3
        if not live.neurons or work > MOST_EIGEN or not np.isfinite(problem.rows).all():
            return found
        rows = eigen_neurons(problem.rows, live.outgoing)
        if not 0 < len(rows) < (found.layer.neurons if found else live.neurons):
            return found
        start = Layer(
            problem.metric.unwhiten(rows), np.zeros((live.outputs, len(rows))), live.offset
        )
        reduced = problem.stored(refit(live, start, problem.metric, problem.roundoff), ())
        return reduced if reduced.layer.finite and problem.accepts(reduced, 0.0) else found

    def _bisected(self, eps: float) -> Reduced | None:
        """The fewest neurons within ε by bisection.

        A count is good if any attempt at it is, whatever ε was before: a larger ε never leaves
        more neurons.
        """
        high = self.lossless.layer.neurons if self.lossless else self.problem.live.neurons
        low, tried, fewest = 0, 0, None
        while high - low > 1:
            count, left = (low + high) // 2, (high - low - 1).bit_length()
            self._meter.start(tried, tried + left)
            if self._reaches(count, eps):
                high = fewest = count
            else:
                low = count
            tried += 1
        return None if fewest is None else min(self._attempts(fewest), key=self._rank)

    def _reaches(self, count: int, eps: float) -> bool:
        """Whether some attempt at this count is within ε."""
        if self.problem.evidence is None and (self.problem.lower_bound(count) or 0.0) > eps:
            return False
        return any(self.error(attempt) <= eps for attempt in self._attempts(count))

    def _attempts(self, count: int) -> Iterator[Reduced]:
        """Layers of `count` neurons, made when they are asked for and kept."""
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
    def _meter(self) -> Meter:
        """Counts the steps of one count after the other."""
        taught = len(SHARES) * TAUGHT_STEPS[0] if self.problem.evidence else 0
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
        """Many starts, and the best of them further than the rest."""
        for many, steps in RACE:
            chosen, fits = sorted(fits, key=lambda f: f.value)[:many], []
            for start in chosen:
                fits.append(levenberg_marquardt(objective, start.rows, steps, self._meter.step))
                yield fits[-1]

    def _run(self, objective: Objective, fits: list[Fit]) -> Iterator[Fit]:
        """The first leg from the best start, or from several, and then leg by leg."""
        live, best = self.problem.live, min(fits, key=lambda f: f.value)
        step = 6 * len(best.rows) * live.neurons * (live.inputs + live.outputs)
        steps = int(np.clip(MOST_WORK / (LEGS * step), FEWEST_STEPS, LEG))
        for start in fits if len(fits) > FEW_STARTS else [best]:
            found = self._far(objective, start, steps)
            yield found
            best = min(best, found, key=lambda f: f.value)
        for _ in range(LEGS - 1):
            best = self._far(objective, best, steps)
            yield best

    def _far(self, objective: Objective, start: Fit, steps: int) -> Fit:
        return quasi_newton(objective, start, steps, self._meter.step, self.problem.layer.size)

    def _taught(self, fit: Fit) -> Iterator[Reduced]:
        """Less and less Gaussian, as long as the samples held out gain by it."""
        evidence = self.problem.evidence
        if evidence is None:
            return
        least, width = (np.inf, np.inf), fit.rows.size + fit.outgoing.size
        for number, share in enumerate(SHARES):
            batch = evidence.fitted.batch(number, width)
            observed = batch.observed(self.problem.metric)
            if not observed.total:
                continue
            objective = Objective(((observed, 1.0), (self._gaussian, share)), self._ridge)
            start = objective.fit(fit.rows)
            if self._small(len(fit.rows)) and len(batch.inputs) * fit.rows.size**2 <= MOST_PRODUCTS:
                fit = levenberg_marquardt(objective, start.rows, FEW_STEPS, self._meter.step)
            else:
                steps = np.clip(TAUGHT_WORK / (6 * len(batch.inputs) * width), *TAUGHT_STEPS)
                fit = self._far(objective, start, int(steps))
            reduced = self._built(fit, objective, evidence.fitted)
            yield reduced
            if self._rank(reduced) > least:
                return
            least = self._rank(reduced)

    def _built(self, fit: Fit, objective: Objective, evidence: Evidence | None) -> Reduced:
        """The layer of these neurons as it reads back from the file, V′ fitted to rounded U′."""
        problem, live = self.problem, self.problem.live
        metric = problem.metric
        start = Layer(metric.unwhiten(fit.rows), fit.outgoing, live.offset)
        even = balanced(start, problem.layer, metric, exact=False)
        incoming = cast(even.incoming, problem.dtype)
        if not np.isfinite(incoming).all():
            return Reduced(Layer(incoming, fit.outgoing, live.offset), (), np.inf)
        rows = metric.whiten(incoming)
        outgoing = objective.fit(rows).outgoing
        if evidence is None:
            means = live.outgoing @ mean_square(problem.rows) - outgoing @ mean_square(rows)
            offset = live.offset + means
        else:
            offset = evidence.offset(incoming, outgoing)
        return problem.reduced(Layer(incoming, outgoing, offset).stored_as(problem.dtype), ())

    @cached_property
    def _gaussian(self) -> Target:
        """The layer under Gaussian inputs, in the cheaper of two ways."""
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
        """Whether a matrix of all unknowns of U′ is worth it."""
        return count * (self.problem.live.inputs + 1) <= MOST_UNKNOWNS

    @cached_property
    def _ridge(self) -> float:
        """What the stored type needs, or the variance of a rounding to 8 bits."""
        if not self.problem.int8:
            return RIDGES[self.problem.dtype.name]
        return min(rounding_noise(self.problem.live, self.problem.samples), MOST_RIDGE)
