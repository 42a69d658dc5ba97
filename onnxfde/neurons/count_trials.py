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

from onnxfde.neurons.block_search import BlockSearch
from onnxfde.neurons.chase import LEVEL, Chase
from onnxfde.neurons.descent import damped_steps, descending, unit
from onnxfde.neurons.free_attempts import FEWEST_STEPS, RACE
from onnxfde.neurons.free_layers import FreeLayers
from onnxfde.neurons.frontier import Reduced
from onnxfde.neurons.objective import Fit
from onnxfde.neurons.search_meter import SearchMeter
from onnxfde.neurons.starts import FEW_STARTS, starting_rows, starts_at
from onnxfde.neurons.taught import most_taught_steps, taught

TRIAL_STEPS = 300
"""The most steps of L-BFGS from one start. Measured on random 64-256-10: from 300 to 450 steps the
error falls by another 0.6 %, which is a third of a neuron of 210."""
SEARCH_WORK = 1e12
"""Multiplications that L-BFGS may take in one search, about a minute on one core: 512-1024-512 has
15 steps for each count. Chosen; not tuned."""
FULL_TRIALS = 10
"""As many trials of all neurons cost as much as a whole search at most (`count_search`): those of
0.98, 0.98·0.7, 0.98·0.49, … of the neurons 3.3, and five that bisect less than five."""
SPRINTS = ((6, 20), (2, 60))
"""Rounds of L-BFGS before the best start goes on alone: (how many of the best, for how many steps).
Chosen; not tuned."""
TAUGHT_HOPE = 3.0
"""Evidence can lower an error by about this factor: descents on the Gaussian target may end so far
above ε. Measured on trained glycolysis networks (frontier.md): 0.098 → 0.028 at 6 neurons."""
EVIDENCE_LEVEL = 0.2
"""With evidence, f must fall by this share before the rows are looked at again, because that takes
as long as some steps. Chosen; not tuned."""


@dataclass(frozen=True, eq=False)
class CountTrials:
    """Tries to stay within ε with a given number of neurons."""

    layers: FreeLayers
    blocks: BlockSearch
    meter: SearchMeter
    steps: int
    """The most steps of L-BFGS from one start."""
    most_neurons: int
    """Counts above this would take too much work."""

    @classmethod
    def planned(
        cls, layers: FreeLayers, blocks: BlockSearch, meter: SearchMeter, top: int
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
        if self.layers.is_small(count):
            steps = sum(many * each for many, each in RACE)
        else:
            steps = self.steps
            if starts_at(count, self.layers.problem) > FEW_STARTS:
                steps += sum(many * each for many, each in SPRINTS)
        return steps + most_taught_steps(self.layers, count)

    def _tried(self, count: int, eps: float) -> Iterator[Reduced]:
        """Layers that may be within ε, one after the other."""
        layers, objective = self.layers, self.layers.objective
        seen = layers.problem.evidence is not None
        if seen:
            yield self.blocks.candidate(count)
        goal = (eps * TAUGHT_HOPE if seen else eps) ** 2
        fits = [objective.fit(unit(r)) for r in starting_rows(self.blocks, count, objective)]
        run = self._race if layers.is_small(count) else self._run
        best = yield from run(fits, goal, EVIDENCE_LEVEL if seen else LEVEL)
        if best.value <= goal and not self.meter.over:
            yield from taught(layers, best, self.meter)

    def _race(
        self, fits: list[Fit], goal: float, level: float
    ) -> Generator[Reduced, None, Fit]:
        """Levenberg–Marquardt from many starts, the best of which go further than the rest."""
        for many, steps in RACE:
            chosen, fits = sorted(fits, key=lambda f: f.value)[:many], []
            for start in chosen:
                chase, reached = Chase(goal, steps, level), start
                for reached in islice(damped_steps(self.layers.objective, start), steps):
                    if chase.follow(reached.value):
                        yield self._built(reached)
                    if not self.meter.step(1):
                        return reached
                fits.append(reached)
        return min(fits, key=lambda f: f.value)

    def _run(self, fits: list[Fit], goal: float, level: float) -> Generator[Reduced, None, Fit]:
        """L-BFGS: short sprints from many starts, then on from the best."""
        racing = [(fit, Chase(goal, self.steps, level)) for fit in fits]
        last = (1, self.steps)
        rounds = (last,) if len(fits) <= FEW_STARTS else (*SPRINTS, last)
        for many, each in rounds:
            chosen, racing = sorted(racing, key=lambda r: r[0].value)[:many], []
            for start, chase in chosen:
                if not chase.hopeless:
                    start = yield from self._leg(start, chase, each)
                racing.append((start, chase))
        return min((fit for fit, _ in racing), key=lambda f: f.value)

    def _leg(self, start: Fit, chase: Chase, steps: int) -> Generator[Reduced, None, Fit]:
        """L-BFGS from one start, until its chase is over."""
        objective, reached = self.layers.objective, start.rows
        for reached, value in islice(descending(objective, start), steps):
            if chase.follow(value):
                yield self._built(objective.fit(unit(reached)))
            if not self.meter.step(1) or chase.hopeless:
                break
        return objective.fit(unit(reached))

    def _built(self, fit: Fit) -> Reduced:
        return self.layers.built(fit, self.layers.objective, None)
