"""Layers with a given number of neurons whose U′ and V′ are chosen together.

    refitted merge  →  starts (`starts`) moved downhill (`descent`)  →  taught by the evidence

Several starts are moved downhill on the Gaussian target, the best of them further than the rest.
Evidence, real inputs of the layer with the outputs it should have, then pulls the best of them away
from the Gaussian solution (`taught`). All layers are made as they will be stored.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from onnxfde.neurons.descent import LEG, levenberg_marquardt, quasi_newton
from onnxfde.neurons.free_layers import FreeLayers
from onnxfde.neurons.frontier import Reduced
from onnxfde.neurons.merge_search import MergeSearch
from onnxfde.neurons.objective import Fit
from onnxfde.neurons.search_meter import SearchMeter
from onnxfde.neurons.starts import FEW_STARTS, STARTS, starting_rows, starts_at
from onnxfde.neurons.taught import most_taught_steps, taught

RACE = ((12, 15), (4, 40), (2, 150))
"""Rounds of Levenberg–Marquardt: (how many of the best go on, for how many steps). All twelve
starts get a few steps, the best two many. Chosen; not tuned."""
LEGS = 5
"""How often L-BFGS is restarted with new lengths: 5 · `LEG` steps. Measured on MNIST with only a
range of inputs known, at 32 neurons: the error is 0.816 after three legs and 0.735 after five."""
SEEN_LEGS = 3
"""The same with evidence, which then goes on from there. Measured on digits: on test rows,
five are better at three counts of six and worse at the others."""
MOST_WORK = 3e12
"""Multiplications that L-BFGS may take for one count, 2 to 3 minutes on one core; in larger layers
each leg has fewer steps. Chosen; not tuned."""
OTHER_WORK = 4e11
"""The same for other activations than squares, about 6 s on one core. Chosen so that LeNet-300-100
takes less than 15 s."""
LITTLE = 0.02
"""A leg that lowers f by less than this share is the last one, if neurons are not squares.
Chosen; not tuned."""
PUPILS = 4
"""How many are taught where there are few unknowns and many starts, if neurons are not squares:
which is best with little Gaussian weight cannot be told before. Chosen; not tuned."""
SPRINT = 30
"""Steps after which most of many starts are given up, if neurons are not squares. Chosen; not
tuned."""
FEWEST_STEPS = 10
"""But no leg has fewer steps than this. Chosen; not tuned."""


@dataclass(frozen=True, eq=False)
class FreeAttempts:
    """Freely chosen layers by number of neurons, made when they are asked for and kept."""

    layers: FreeLayers
    blocks: MergeSearch
    meter: SearchMeter

    def at(self, count: int) -> list[Reduced]:
        """All attempts at this number of neurons; the first is the refitted merge."""
        if count not in self._made:
            self.meter.start()
            self._made[count] = list(self._making(count))
        return self._made[count]

    @cached_property
    def _made(self) -> dict[int, list[Reduced]]:
        return {}

    @property
    def _legs(self) -> int:
        return LEGS if self.layers.problem.evidence is None else SEEN_LEGS

    def most_steps(self, count: int) -> int:
        """The most steps that attempts at this count take."""
        if self.layers.is_small(count):
            steps = sum(many * each for many, each in RACE)
        else:
            starts = starts_at(count, self.layers.problem)
            steps = (self._legs - 1 + (starts if starts > FEW_STARTS else 1)) * LEG
        return steps + self._pupils(count) * most_taught_steps(self.layers, count)

    def most_work(self, count: int) -> float:
        """Multiplications that attempts at this count take at most."""
        each = self.layers.step_work(count)
        if self.layers.is_small(count):
            each += (count * (self.layers.problem.live.inputs + 1)) ** 3
        return self.most_steps(count) * each

    def _making(self, count: int) -> Iterator[Reduced]:
        """The refitted merge, then neurons moved downhill, then taught by the evidence."""
        yield self.blocks.candidate(count)
        layers, objective = self.layers, self.layers.objective
        if self.meter.over:
            return
        starts = starting_rows(self.blocks, count, objective)
        fits = [objective.fit(objective.kernel.unit(rows)) for rows in starts]
        reached = [min(fits, key=lambda f: f.value)]
        run = self._run if layers.problem.squares else self._sprint
        run = self._race if layers.is_small(count) else run
        for found in run(fits):
            yield layers.built(found, objective, layers.fitted_to)
            reached.append(found)
            if self.meter.over:
                return
        for best in sorted(reached, key=lambda f: f.value)[: self._pupils(count)]:
            yield from taught(layers, best, self.meter)
            if self.meter.over:
                return

    def _pupils(self, count: int) -> int:
        """How many of the neurons reached are taught: more where there are few unknowns."""
        many = starts_at(count, self.layers.problem) >= STARTS[0][1]
        return PUPILS if many and not self.layers.problem.squares else 1

    def _race(self, fits: list[Fit]) -> Iterator[Fit]:
        """Levenberg–Marquardt from many starts, the best of which go further than the rest."""
        objective = self.layers.objective
        for many, steps in RACE:
            chosen, fits = sorted(fits, key=lambda f: f.value)[:many], []
            for start in chosen:
                fits.append(levenberg_marquardt(objective, start.rows, steps, self.meter.step))
                yield fits[-1]

    def _run(self, fits: list[Fit]) -> Iterator[Fit]:
        """L-BFGS: the first leg from the best start, or from all if many, then on from the best."""
        objective, best = self.layers.objective, min(fits, key=lambda f: f.value)
        steps = self._leg_steps(len(best.rows), MOST_WORK)
        for start in fits if len(fits) > FEW_STARTS else [best]:
            found = quasi_newton(objective, start, steps, self.meter.step)
            yield found
            best = min(best, found, key=lambda f: f.value)
        for _ in range(self._legs - 1):
            best = quasi_newton(objective, best, steps, self.meter.step)
            yield best

    def _sprint(self, fits: list[Fit]) -> Iterator[Fit]:
        """L-BFGS from all starts, if there are many, for a few steps; the best of them go on."""
        objective, go_on = self.layers.objective, self.meter.step
        if len(fits) > FEW_STARTS:
            fits = [quasi_newton(objective, start, SPRINT, go_on) for start in fits]
        count = len(fits[0].rows)
        steps = self._leg_steps(count, OTHER_WORK)
        for best in sorted(fits, key=lambda f: f.value)[: self._pupils(count)]:
            for _ in range(self._legs):
                before = best.value
                best = quasi_newton(objective, best, steps, go_on)
                if best.value > (1 - LITTLE) * before or self.meter.over:
                    break
            yield best

    def _leg_steps(self, count: int, work: float) -> int:
        """Steps of one leg, so that all legs take at most this work."""
        most = work / (self._legs * self.layers.step_work(count))
        return int(np.clip(most, FEWEST_STEPS, LEG))
