"""Whether a given number of neurons can stay within ε: with as few steps as that can be told.

    starts (`starts`)  →  moved downhill (`descent`), the best of them furthest  →  taught

A descent ends as soon as it is within ε, or will not be in the steps it has (`chase`). What is done
at one count depends on nothing that was done before, and a larger ε looks wherever a smaller one
does: so it never fails where the smaller one succeeds.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np

from onnxfde.neurons.chase import LEVEL, Chase
from onnxfde.neurons.descent import Waypoint, damped_steps, descending
from onnxfde.neurons.free_attempts import FEWEST_STEPS, RACE
from onnxfde.neurons.free_layers import FreeLayers
from onnxfde.neurons.frontier import Reduced
from onnxfde.neurons.merge_search import MergeSearch
from onnxfde.neurons.objective import Fit
from onnxfde.neurons.search_meter import SearchMeter
from onnxfde.neurons.starts import FEW_STARTS, starting_rows, starts_at
from onnxfde.neurons.taught import most_taught_steps, taught
from onnxfde.numbers import FloatArray

TRIAL_STEPS = 450
"""The most steps of L-BFGS from one start. Measured on random 64-256-10: from 300 to 450 steps the
error falls by another 0.6 %, about half a neuron of 210."""
SEEN_STEPS = 100
"""The same with evidence, which then goes on from there. Chosen; not tuned."""
TAUGHT_TRIAL = 100
"""The most steps of L-BFGS on the evidence, for each share. Chosen; not tuned."""
TRIAL_UNKNOWNS = 300
"""Unknowns in U′ up to which Levenberg–Marquardt is used, and L-BFGS beyond. Measured on digits:
with 455 one of its steps takes as long as about 15 of L-BFGS."""
SEARCH_WORK = 1e12
"""Multiplications that L-BFGS may take in one search, about a minute on one core: 512-1024-512 has
15 steps for each count. Sprints, Levenberg–Marquardt and evidence have fixed numbers of steps
besides. Chosen; not tuned."""
FULL_TRIALS = 10
"""As many trials of all neurons cost as much as a whole search at most (`count_search`): those of
0.98, 0.98·0.7, 0.98·0.49, … of the neurons 3.3, and five that bisect less than five."""
SPRINTS = ((6, 20), (2, 60))
"""Rounds of L-BFGS before the best start goes on alone: (how many of the best, for how many steps).
Chosen; not tuned."""
TAUGHT_HOPE = 1.5
"""Evidence can lower an error by about this factor: descents on the Gaussian target may end so far
above ε. Measured on the networks of frontier.md: by 1.4 at most where errors exceed 1e-3."""
TAUGHT_LATER = 1.3
"""What all further shares can lower the error by after the first. Measured there: by 1.2."""
TrialRounds = tuple[tuple[int, int], ...]
"""How many of the best go on, for how many steps."""
EVIDENCE_LEVEL = 0.2
"""With evidence, f must fall by this share before the rows are looked at again, because that takes
as long as some steps. Chosen; not tuned."""


@dataclass(frozen=True, eq=False)
class CountTrials:
    """Tries to stay within ε with a given number of neurons."""

    layers: FreeLayers
    blocks: MergeSearch
    meter: SearchMeter
    steps: int
    """The most steps of L-BFGS from one start."""
    most_neurons: int
    """Counts above this would take too much work."""

    @classmethod
    def planned(
        cls, layers: FreeLayers, blocks: MergeSearch, meter: SearchMeter, top: int
    ) -> CountTrials:
        """Trials of counts below `top` that together take at most `SEARCH_WORK`."""
        affordable = SEARCH_WORK / (FULL_TRIALS * layers.step_work(1))
        steps = int(np.clip(affordable / max(top, 1), FEWEST_STEPS, TRIAL_STEPS))
        return cls(layers, blocks, meter, steps, int(affordable / steps))

    def within(self, count: int, eps: float) -> Reduced | None:
        """A layer of this many neurons within ε, if one is found."""
        problem = self.layers.problem
        if problem.evidence is None and (problem.lower_bound(count) or 0.0) > eps:
            return None
        tried = self._tried(count, eps)
        return next((found for found in tried if problem.expected_error(found) <= eps), None)

    def most_steps(self, count: int) -> int:
        """The most steps that a trial at this count takes."""
        rounds = self._rounds(count, starts_at(count, self.layers.problem))
        steps = sum(many * each for many, each in rounds)
        return steps + most_taught_steps(self.layers, count, TAUGHT_TRIAL)

    def _tried(self, count: int, eps: float) -> Iterator[Reduced]:
        """Layers that may be within ε, one after the other."""
        layers, objective = self.layers, self.layers.objective
        seen = layers.problem.evidence is not None
        if seen:
            yield self.blocks.candidate(count)
        goal = (eps * TAUGHT_HOPE if seen else eps) ** 2
        unit = objective.kernel.unit
        fits = [objective.fit(unit(r)) for r in starting_rows(self.blocks, count, objective)]
        level = EVIDENCE_LEVEL if seen else LEVEL
        rounds = self._rounds(count, len(fits))
        steps = sum(each for _, each in rounds)
        best = yield from self._raced([(fit, Chase(goal, steps, level)) for fit in fits], rounds)
        if best is not None and best.value <= goal and not self.meter.over:
            yield from self._taught(best, eps)

    def _raced(
        self, racing: list[tuple[Fit, Chase]], rounds: TrialRounds
    ) -> Generator[Reduced, None, Fit | None]:
        """Descents from many starts, the best of which go further than the rest."""
        for many, each in rounds:
            chosen = sorted(racing, key=lambda r: r[0].value * r[1].excess)[:many]
            racing = []
            for start, chase in chosen:
                reached = yield from self._leg(start, chase, each)
                if reached is not None:
                    racing.append((reached, chase))
        return min((fit for fit, _ in racing), key=lambda f: f.value, default=None)

    def _is_small(self, count: int) -> bool:
        """Whether U′ has few enough unknowns for Levenberg–Marquardt."""
        small = count * (self.layers.problem.live.inputs + 1) <= TRIAL_UNKNOWNS
        return small and self.layers.problem.kernel.curved

    def _rounds(self, count: int, starts: int) -> TrialRounds:
        """How many of the best go on, for how many steps."""
        if self._is_small(count):
            return RACE
        last = (1, self.steps if self.layers.problem.evidence is None else SEEN_STEPS)
        return (last,) if starts <= FEW_STARTS else (*SPRINTS, last)

    def _leg(self, start: Fit, chase: Chase, steps: int) -> Generator[Reduced, None, Fit | None]:
        """Steps from one start; None if it does not reach the goal, or the time is over."""
        objective, reached = self.layers.objective, start.rows
        for reached, value in islice(self._way(start), steps):
            near = chase.follow(value)
            due = chase.due and bool(self.layers.problem.other_metrics)
            if near or due:
                found = self._built(reached)
                if due:
                    chase.measured(found.error)
                yield found
            if not self.meter.step(1) or chase.hopeless:
                return None
        return objective.fit(objective.kernel.unit(reached))

    def _built(self, rows: FloatArray) -> Reduced:
        """A layer of these neurons."""
        objective = self.layers.objective
        fit = objective.fit(objective.kernel.unit(rows))
        return self.layers.built(fit, objective, self.layers.fitted_to)

    def _way(self, start: Fit) -> Iterator[Waypoint]:
        """Where the descent from one start goes through."""
        objective = self.layers.objective
        if not self._is_small(len(start.rows)):
            return descending(objective, start)
        return (Waypoint(fit.rows, fit.value) for fit in damped_steps(objective, start))

    def _taught(self, fit: Fit, eps: float) -> Iterator[Reduced]:
        """Layers fitted to the evidence, as long as they may come within ε."""
        for found in taught(self.layers, fit, self.meter, TAUGHT_TRIAL):
            yield found
            if self.layers.problem.expected_error(found) > TAUGHT_LATER * eps:
                return
