"""The fewest neurons when U′ and V′ are chosen together.

    Σ_r V′_kr u′_r u′_rᵀ ≈ Q_k   for all outputs k, in the metric

Starts: the blocks of the merge tree; those of twice as many without the ones that matter least
(‖V_r‖² / [K⁻¹]_rr, exact after a refit); neurons drawn by importance; random ones. Each is moved
downhill (`descent`), the best ones further than the rest. Evidence, real inputs of the layer with
the outputs it should have, then pulls the solution away from the Gaussian one, on nine tenths of
its rows and only as far as the last tenth gains. What is accepted is the layer as it is stored.

Where 8 bits are to follow, the objective's ridge is the error that they bring, `rounding_noise`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from onnxfde.neurons.balance import balanced
from onnxfde.neurons.block_search import Budget, Reduced
from onnxfde.neurons.completed_square import eigen_neurons
from onnxfde.neurons.descent import LEG, levenberg_marquardt, quasi_newton, unit
from onnxfde.neurons.held_out import Evidence
from onnxfde.neurons.kernels import kernel_scale
from onnxfde.neurons.layer import Layer
from onnxfde.neurons.lower_bound import lower_bounds
from onnxfde.neurons.objective import Fit, Forms, Neurons, Objective, Target, summed
from onnxfde.neurons.refit import refit, ridged_gram, squared
from onnxfde.numbers import FloatArray, cast
from onnxfde.progress import Tell

VALUE_STEPS, WEIGHT_STEPS, MOST_RIDGE = 255, 64, 0.01
RIDGES = {"float64": 1e-14, "float32": 1e-12, "float16": 1e-7, "bfloat16": 1e-5}
MOST_UNKNOWNS = 500
FEW_STARTS = 2
STARTS = ((MOST_UNKNOWNS, 12), (4000, 6))
"""Up to how many unknowns how many starts are tried."""
MOST_FORMS, MOST_WIDTH = 2_000_000, 64
MOST_PRODUCTS = 2e9
MOST_EIGEN = 1e10
TIE = 1.05
RACE = ((12, 15), (4, 40), (2, 150))
"""Levenberg–Marquardt: how many of the best starts go on, and for how many steps."""
LEGS = 3
MOST_WORK, FEWEST_STEPS = 3e12, 10
"""L-BFGS takes LEGS·LEG steps, or fewer in layers where that is more work (multiplications)."""
SHARES = (1.0, 0.3, 0.1, 0.03, 0.01, 0.003)
"""The weight of the Gaussian target beside the evidence, less and less."""
FEW_STEPS = 15
TAUGHT_WORK, TAUGHT_STEPS = 3e10, (40, 400)
"""Multiplications that one share is worth, and the steps of L-BFGS that they make."""


@dataclass(eq=False)
class Meter:
    """Tells how far a search is, which takes about `steps` for each count it tries."""

    tell: Tell
    steps: int
    counts: int = 1
    done: int = 0

    def start(self, tried: int, counts: int) -> None:
        """Begin with the next count, of this many in all."""
        self.done, self.counts = tried * self.steps, counts

    def tick(self, steps: int) -> None:
        """Some steps are done."""
        self.done = min(self.done + steps, self.counts * self.steps)
        self.tell(self.done, self.counts * self.steps)


@dataclass(frozen=True, eq=False)
class Minimal:
    """A search for the fewest neurons; `budget` knows the layer, its metric and its dtype."""

    budget: Budget
    evidence: Evidence | None = None
    seed: int = 0
    int8: bool = False
    """Whether the hidden values will be rounded to 8 bits."""

    def within(self, eps: float) -> Reduced | None:
        """The fewest neurons within ε, or None when that is all of them."""
        kept = [self.lossless] if self.lossless else []
        if eps >= self.budget.floor and self.budget.layer.neurons:
            found = (self.budget.within(eps), self._bisected(eps))
            kept += [r for r in found if r and self.error(r) <= eps]
        return min(kept, key=lambda r: (r.layer.neurons, *self._rank(r)), default=None)

    def at_most(self, count: int) -> Reduced | None:
        """The layer with at most this many neurons; fewer when nothing is lost by it."""
        known = self.lossless
        enough = known is not None and known.layer.neurons <= count
        if count >= self.budget.layer.neurons or (enough and self._inherited < self.budget.floor):
            return known
        best = min(self._attempts(count), key=self._rank)
        if known and enough and self.measured(known) <= TIE * self.measured(best):
            return known
        return best

    def threshold(self) -> float:
        """An ε at which a neuron can go: that of the cheapest merge."""
        count = self.budget.layer.neurons - 1
        if count < 1:
            return 0.0
        return max(self.budget.floor, self.error(self.budget.candidate(count)))

    def measured(self, found: Reduced) -> float:
        """The error on held-out rows if there are any, else in the metric."""
        return self.evidence.held_out.error(found.layer) if self.evidence else found.error

    def error(self, found: Reduced) -> float:
        """What ε bounds: the error to expect, without what earlier layers brought in."""
        if self.evidence is None:
            return found.error
        return math.sqrt(max(self.evidence.judged(found.layer) ** 2 - self._inherited**2, 0.0))

    def _rank(self, found: Reduced) -> tuple[float, float]:
        """Better layers first: those that ε allows before any that it does not."""
        return self.error(found), self.measured(found)

    @cached_property
    def _inherited(self) -> float:
        return self.evidence.held_out.error(self.budget.original) if self.evidence else 0.0

    @cached_property
    def _bounds(self) -> FloatArray:
        return lower_bounds(self.budget.rows, self.budget.layer.outgoing)

    @cached_property
    def lossless(self) -> Reduced | None:
        """The fewest neurons that are equal up to rounding: originals, or eigenvectors."""
        budget, found = self.budget, self.budget.lossless
        layer = budget.layer
        least = found.layer.neurons if found else layer.neurons
        work = layer.outputs * layer.inputs**3
        if not layer.neurons or work > MOST_EIGEN or not np.isfinite(budget.rows).all():
            return found
        rows = eigen_neurons(budget.rows, layer.outgoing)
        if not 0 < len(rows) < least:
            return found
        start = Layer(
            budget.metric.unwhiten(rows), np.zeros((layer.outputs, len(rows))), layer.offset
        )
        fitted = refit(layer, start, budget.metric, budget.roundoff)
        reduced = budget.stored(fitted, ())
        return reduced if reduced.layer.finite and budget.accepts(reduced, 0.0) else found

    def _bisected(self, eps: float) -> Reduced | None:
        """The fewest neurons within ε by bisection.

        A count is good if any attempt at it is, whatever ε was before: a larger ε never leaves
        more neurons.
        """
        high = self.lossless.layer.neurons if self.lossless else self.budget.layer.neurons
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
        if self.evidence is None and count < len(self._bounds) and self._bounds[count] > eps:
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
        taught = len(SHARES) * TAUGHT_STEPS[0] if self.evidence else 0
        return Meter(
            self.budget.tell, max(LEGS * LEG, sum(n * steps for n, steps in RACE)) + taught
        )

    def _making(self, count: int) -> Iterator[Reduced]:
        """The refitted merge, then neurons moved downhill, then taught by the evidence."""
        yield self.budget.candidate(count)
        objective = Objective(((self._gaussian, 1.0),), self._ridge)
        fits = [objective.fit(unit(rows)) for rows in self._starts(count)]
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
                fits.append(levenberg_marquardt(objective, start.rows, steps, self._meter.tick))
                yield fits[-1]

    def _run(self, objective: Objective, fits: list[Fit]) -> Iterator[Fit]:
        """The first leg from the best start, or from several, and then leg by leg."""
        layer, best = self.budget.layer, min(fits, key=lambda f: f.value)
        step = 6 * len(best.rows) * layer.neurons * (layer.inputs + layer.outputs)
        steps = int(np.clip(MOST_WORK / (LEGS * step), FEWEST_STEPS, LEG))
        for start in fits if len(fits) > FEW_STARTS else [best]:
            found = self._far(objective, start, steps)
            yield found
            best = min(best, found, key=lambda f: f.value)
        for _ in range(LEGS - 1):
            best = self._far(objective, best, steps)
            yield best

    def _far(self, objective: Objective, start: Fit, steps: int) -> Fit:
        return quasi_newton(objective, start, steps, self._meter.tick, self.budget.original.size)

    def _taught(self, fit: Fit) -> Iterator[Reduced]:
        """Less and less Gaussian, as long as the rows held out gain by it."""
        if self.evidence is None:
            return
        least, width = (np.inf, np.inf), fit.rows.size + fit.outgoing.size
        for number, share in enumerate(SHARES):
            batch = self.evidence.fitted.batch(number, width)
            observed = batch.observed(self.budget.metric)
            if not observed.total:
                continue
            objective = Objective(((observed, 1.0), (self._gaussian, share)), self._ridge)
            start = objective.fit(fit.rows)
            if self._small(len(fit.rows)) and len(batch.inputs) * fit.rows.size**2 <= MOST_PRODUCTS:
                fit = levenberg_marquardt(objective, start.rows, FEW_STEPS, self._meter.tick)
            else:
                steps = np.clip(TAUGHT_WORK / (6 * len(batch.inputs) * width), *TAUGHT_STEPS)
                fit = self._far(objective, start, int(steps))
            reduced = self._built(fit, objective, self.evidence.fitted)
            yield reduced
            if self._rank(reduced) > least:
                return
            least = self._rank(reduced)

    def _starts(self, count: int) -> list[FloatArray]:
        """Whitened rows to start from."""
        rows, tree = self.budget.rows, self.budget.tree
        twice, _ = tree.cut(min(2 * count, tree.neurons))
        found = [tree.cut(count)[0], self._strongest(twice, count)]
        unknowns = count * rows.shape[1]
        most = next((many for limit, many in STARTS if unknowns <= limit), FEW_STARTS)
        rng = np.random.default_rng((self.seed, count))
        strength = np.linalg.norm(self.budget.layer.outgoing, axis=0) * kernel_scale(rows)
        odds = strength / strength.sum()
        enough = int(np.count_nonzero(odds)) >= count
        while len(found) < most:
            if enough and len(found) % 2:
                found.append(rows[rng.choice(len(rows), count, replace=False, p=odds)])
            else:
                found.append(rng.normal(size=(count, rows.shape[1])))
        return found

    def _strongest(self, rows: FloatArray, count: int) -> FloatArray:
        """The neurons whose loss a refit could make up for least."""
        fit = Objective(((self._gaussian, 1.0),), self._ridge).fit(rows)
        scale = kernel_scale(rows)
        alone = np.sum(fit.outgoing**2, axis=0) * scale**2
        saliency = alone / np.diag(np.linalg.inv(ridged_gram(rows, scale)))
        return np.asarray(rows[np.sort(np.argsort(saliency, kind="stable")[-count:])])

    def _built(self, fit: Fit, objective: Objective, evidence: Evidence | None) -> Reduced:
        """The layer of these neurons as it reads back from the file, V′ fitted to rounded U′."""
        metric, layer = self.budget.metric, self.budget.layer
        start = Layer(metric.unwhiten(fit.rows), fit.outgoing, layer.offset)
        even = balanced(start, self.budget.original, metric, exact=False)
        incoming = cast(even.incoming, self.budget.dtype)
        if not np.isfinite(incoming).all():
            return Reduced(Layer(incoming, fit.outgoing, layer.offset), (), np.inf)
        rows = metric.whiten(incoming)
        outgoing = objective.fit(rows).outgoing
        if evidence is None:
            means = layer.outgoing @ squared(self.budget.rows) - outgoing @ squared(rows)
            offset = layer.offset + means
        else:
            offset = evidence.offset(incoming, outgoing)
        stored = Layer(incoming, outgoing, offset).stored_as(self.budget.dtype)
        return Reduced(stored, (), metric.relative_error(layer, stored))

    @cached_property
    def _gaussian(self) -> Target:
        """The layer under Gaussian inputs, in the cheaper of two ways."""
        layer, width = self.budget.layer, self.budget.layer.inputs + 1
        size = layer.outputs * width**2
        cheaper = size <= layer.neurons * (width + layer.outputs)
        if cheaper or (width <= MOST_WIDTH and size <= MOST_FORMS):
            return Forms(summed(self.budget.rows, layer.outgoing))
        return Neurons(self.budget.rows, layer.outgoing)

    def _small(self, count: int) -> bool:
        """Whether a matrix of all unknowns of U′ is worth it."""
        return count * (self.budget.layer.inputs + 1) <= MOST_UNKNOWNS

    @cached_property
    def _ridge(self) -> float:
        """What the stored dtype needs, or the variance of a rounding to 8 bits."""
        if not self.int8:
            return RIDGES[np.dtype(self.budget.dtype).name]
        return min(rounding_noise(self.budget.layer, self.budget.samples), MOST_RIDGE)


def rounding_noise(layer: Layer, x: FloatArray) -> float:
    """The variance of a hidden value h = (w·x + b)² of mean 1 when it and w are rounded.

    (R/255)²/12 + 4·E[h]·(max|w|/64)²/12·E‖x‖² / E[h]²          R: the range of h
    """
    hidden = (x @ layer.incoming[:, :-1].T + layer.incoming[:, -1]) ** 2
    mean = hidden.mean(axis=0)
    mean[mean == 0] = 1.0
    reach = float(np.max(hidden / mean))
    step = np.abs(layer.incoming[:, :-1]).max(axis=1) / WEIGHT_STEPS
    length = float(np.sum(x**2)) / len(x)
    return (reach / VALUE_STEPS) ** 2 / 12 + float(np.median(step**2 / mean)) * length / 3
