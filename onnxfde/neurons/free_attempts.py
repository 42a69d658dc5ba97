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
from onnxfde.neurons.starts import FEW_STARTS, starting_rows, starts_at
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
        return steps + most_taught_steps(self.layers, count)

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
        best = min(fits, key=lambda f: f.value)
        run = self._race if layers.is_small(count) else self._run
        for found in run(fits):
            yield layers.built(found, objective, layers.fitted_to)
            best = min(best, found, key=lambda f: f.value)
            if self.meter.over:
                return
        yield from taught(layers, best, self.meter)

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
        squares = self.layers.problem.squares
        work = MOST_WORK if squares else OTHER_WORK
        most = work / (self._legs * self.layers.step_work(len(best.rows)))
        steps = int(np.clip(most, FEWEST_STEPS, LEG))
        for start in fits if len(fits) > FEW_STARTS else [best]:
            found = quasi_newton(objective, start, steps, self.meter.step)
            yield found
            best = min(best, found, key=lambda f: f.value)
        for _ in range(self._legs - 1):
            before = best.value
            best = quasi_newton(objective, best, steps, self.meter.step)
            yield best
            if not squares and best.value > (1 - LITTLE) * before:
                return
