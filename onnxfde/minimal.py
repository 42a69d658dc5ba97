"""The fewest neurons when U′ and V′ are chosen together.

    Σ_r V′_kr u′_r u′_rᵀ ≈ Q_k   for all outputs k, in the metric

Starts: the blocks of the merge tree; the solution for more neurons without those that matter least
(‖V_r‖² / [K⁻¹]_rr, exact after a refit); neurons drawn by importance; random ones. Each is moved
downhill (`descent`), the best ones further than the rest. Evidence, real inputs of the layer with
the outputs it should have, then pulls the solution away from the Gaussian one, on nine tenths of
its rows and only as far as the last tenth gains. What is accepted is the layer as it is stored.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from onnxfde.budget import Budget, Reduced
from onnxfde.descent import levenberg_marquardt, quasi_newton
from onnxfde.evidence import Evidence
from onnxfde.merging import Indices
from onnxfde.metric import kernel_scale
from onnxfde.objective import Fit, Forms, Neurons, Objective, Target, summed
from onnxfde.options import Tell
from onnxfde.polynomial import FloatArray, Layer, cast
from onnxfde.quotients import balanced, refit, ridged_gram, squared
from onnxfde.spectrum import eigen_neurons, lower_bounds

RIDGES = {"float64": 1e-14, "float32": 1e-12, "float16": 1e-7, "bfloat16": 1e-5}
MOST_UNKNOWNS = 500
MOST_FORMS, MOST_WIDTH = 2_000_000, 64
MOST_PRODUCTS = 2e9
RACE = ((12, 15), (4, 40), (2, 150))
"""Levenberg–Marquardt: how many of the best starts go on, and for how many steps."""
STEPS = 450
"""L-BFGS."""
SHARES = (1.0, 0.3, 0.1, 0.03, 0.01, 0.003)
"""The weight of the Gaussian target beside the evidence, less and less."""
FEW_STEPS, MORE_STEPS = 15, 40


@dataclass(eq=False)
class Meter:
    """Adds up steps for a listener."""

    tell: Tell
    total: int
    done: int = 0

    def tick(self, steps: int) -> None:
        """Some steps are done."""
        self.done = min(self.done + steps, self.total)
        self.tell(self.done, self.total)


@dataclass(frozen=True, eq=False)
class Minimal:
    """A search for the fewest neurons; `budget` knows the layer, its metric and its dtype."""

    budget: Budget
    evidence: Evidence | None = None
    seed: int = 0

    def within(self, eps: float) -> Reduced | None:
        """The fewest neurons within ε, or None when that is all of them."""
        found = [self.lossless]
        if eps >= self.budget.floor and self.budget.layer.neurons:
            found += [self.budget.within(eps), self._bisected(eps)]
        kept = [r for r in found if r and (r is self.lossless or self.allows(r, eps))]
        return min(kept, key=lambda r: r.layer.neurons, default=None)

    def at_most(self, count: int) -> Reduced | None:
        """The layer with at most this many neurons; fewer when nothing is lost by it."""
        if self.lossless and self.lossless.layer.neurons <= count:
            return self.lossless
        if count >= self.budget.layer.neurons:
            return self.lossless
        return self._solution(count, None, Meter(self.budget.tell, self._steps))[1]

    def threshold(self) -> float:
        """The smallest ε at which a neuron can go."""
        count = self.budget.layer.neurons - 1
        if count < 1:
            return 0.0
        found = self._solution(count, None, Meter(self.budget.tell, self._steps))[1]
        return self._own_error(found)

    def bound(self, count: int) -> float | None:
        """The least error of any layer with this many neurons, where something is known of it."""
        return float(self._bounds[count]) if count < len(self._bounds) else None

    def allows(self, found: Reduced, eps: float) -> bool:
        """Whether a layer is within ε: on held-out rows if there are any, else in the metric."""
        return self._own_error(found) <= eps

    def _own_error(self, found: Reduced) -> float:
        """The error, without what earlier layers brought in."""
        if self.evidence is None:
            return found.error
        error = self.evidence.held_out.error(found.layer)
        return math.sqrt(max(error**2 - self._inherited**2, 0.0))

    @cached_property
    def _inherited(self) -> float:
        assert self.evidence is not None
        return self.evidence.held_out.error(self.budget.original)

    @cached_property
    def _bounds(self) -> FloatArray:
        return lower_bounds(self.budget.rows, self.budget.layer.outgoing)

    @cached_property
    def lossless(self) -> Reduced | None:
        """The fewest neurons that are equal up to rounding: originals, or eigenvectors."""
        budget, found = self.budget, self.budget.lossless
        layer = budget.layer
        least = found.layer.neurons if found else layer.neurons
        if not layer.neurons or layer.outputs * layer.inputs >= least:
            return found
        rows = eigen_neurons(budget.rows, layer.outgoing)
        if not 0 < len(rows) < least:
            return found
        start = Layer(
            budget.metric.unwhiten(rows), np.zeros((layer.outputs, len(rows))), layer.offset
        )
        fitted = refit(layer, start, budget.metric, budget.roundoff)
        reduced = budget.stored(fitted, ())
        return reduced if budget.accepts(reduced, 0.0) else found

    def _bisected(self, eps: float) -> Reduced | None:
        """The fewest neurons within ε by bisection.

        What is found for a count depends on the counts before it, never on ε, so that a larger ε
        never leaves more neurons.
        """
        high = self.lossless.layer.neurons if self.lossless else self.budget.layer.neurons
        meter = Meter(self.budget.tell, self._steps * max(high - 1, 1).bit_length())
        low, rows, best = 0, None, None
        while high - low > 1:
            count = (low + high) // 2
            found, reduced = (None, None)
            if (self.bound(count) or 0.0) <= eps:
                found, reduced = self._solution(count, rows, meter)
            if reduced and self.allows(reduced, eps):
                high, rows, best = count, found, reduced
            else:
                low = count
        return best

    def _solution(
        self, count: int, above: FloatArray | None, meter: Meter
    ) -> tuple[FloatArray, Reduced]:
        """The best layer of `count` neurons: its whitened rows, and as it is stored."""
        key = (count, 0 if above is None else len(above))
        if key not in self._solutions:
            before = meter.done
            self._solutions[key] = self._solved(count, above, meter)
            meter.tick(before + self._steps - meter.done)
        return self._solutions[key]

    @cached_property
    def _solutions(self) -> dict[tuple[int, int], tuple[FloatArray, Reduced]]:
        return {}

    def _solved(
        self, count: int, above: FloatArray | None, meter: Meter
    ) -> tuple[FloatArray, Reduced]:
        target, small = self._gaussian, self._small(count)
        objective = Objective(((target, 1.0),), self._ridge)
        if small:
            fit = self._race(objective, count, above, meter)
        else:
            fit = quasi_newton(objective, self.budget.tree.cut(count)[0], STEPS, meter.tick)
        merged = self.budget.candidate(count)
        found = self._built(fit, objective, None)
        if self.evidence is None:
            return fit.rows, min(found, merged, key=lambda r: r.error)
        return self._taught(fit, found, merged, meter)

    def _taught(
        self, fit: Fit, found: Reduced, merged: Reduced, meter: Meter
    ) -> tuple[FloatArray, Reduced]:
        """The solution after the evidence, as far as the rows held out gain by it."""
        assert self.evidence is not None
        judge, rows = self.evidence.held_out, fit.rows
        scored = [(judge.error(r.layer), r) for r in (found, merged)]
        width = rows.size + len(fit.outgoing) * len(rows)
        for number, share in enumerate(SHARES):
            batch = self.evidence.fitted.batch(number, width)
            observed = batch.observed(self.budget.metric)
            objective = Objective(((observed, 1.0), (self._gaussian, share)), self._ridge)
            if self._small(len(rows)) and len(batch.inputs) * rows.size**2 <= MOST_PRODUCTS:
                fit = levenberg_marquardt(objective, fit.rows, FEW_STEPS, meter.tick)
            else:
                fit = quasi_newton(objective, fit.rows, MORE_STEPS, meter.tick)
            reduced = self._built(fit, objective, self.evidence.fitted)
            scored.append((judge.error(reduced.layer), reduced))
            if scored[-1][0] > min(error for error, _ in scored):
                break
        return rows, min(scored, key=lambda s: s[0])[1]

    def _race(
        self, objective: Objective, count: int, above: FloatArray | None, meter: Meter
    ) -> Fit:
        """Many starts, and the best of them further than the rest."""
        fits = [objective.fit(rows) for rows in self._starts(count, above)]
        for many, steps in RACE:
            fits = sorted(fits, key=lambda f: f.value)[:many]
            fits = [levenberg_marquardt(objective, f.rows, steps, meter.tick) for f in fits]
        return min(fits, key=lambda f: f.value)

    def _starts(self, count: int, above: FloatArray | None) -> list[FloatArray]:
        """Rows to start from."""
        rows, outgoing = self.budget.rows, self.budget.layer.outgoing
        rng = np.random.default_rng((self.seed, count))
        found = [self.budget.tree.cut(count)[0]]
        if above is not None:
            found.append(self._without_weakest(above, count))
        strength = np.linalg.norm(outgoing, axis=0) * kernel_scale(rows)
        odds = strength / strength.sum()
        drawable = int(np.count_nonzero(odds)) >= count
        while len(found) < RACE[0][0]:
            if drawable and len(found) % 2:
                found.append(rows[rng.choice(len(rows), count, replace=False, p=odds)])
            else:
                found.append(rng.normal(size=(count, rows.shape[1])))
        return found

    def _without_weakest(self, rows: FloatArray, count: int) -> FloatArray:
        """The neurons whose loss a refit could least make up for."""
        fit = Objective(((self._gaussian, 1.0),), self._ridge).fit(rows)
        scale = kernel_scale(rows)
        alone = np.sum(fit.outgoing**2, axis=0) * scale**2
        saliency = alone / np.diag(np.linalg.inv(ridged_gram(rows, scale)))
        kept: Indices = np.sort(np.argsort(saliency, kind="stable")[-count:])
        return rows[kept]

    def _built(self, fit: Fit, objective: Objective, evidence: Evidence | None) -> Reduced:
        """The layer of these neurons as it reads back from the file, V′ fitted to rounded U′."""
        metric, layer = self.budget.metric, self.budget.layer
        start = Layer(metric.unwhiten(fit.rows), fit.outgoing, layer.offset)
        incoming = cast(balanced(start, self.budget.original, metric).incoming, self.budget.dtype)
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
        if size <= max(
            layer.neurons * (width + layer.outputs), MOST_FORMS if width < MOST_WIDTH else 0
        ):
            return Forms(summed(self.budget.rows, layer.outgoing))
        return Neurons(self.budget.rows, layer.outgoing)

    def _small(self, count: int) -> bool:
        """Whether a matrix of all unknowns of U′ is worth it."""
        return count * (self.budget.layer.inputs + 1) <= MOST_UNKNOWNS

    @property
    def _ridge(self) -> float:
        return RIDGES[np.dtype(self.budget.dtype).name]

    @property
    def _steps(self) -> int:
        """Steps that one count takes at most."""
        taught = len(SHARES) * MORE_STEPS if self.evidence else 0
        return max(STEPS, sum(many * steps for many, steps in RACE)) + taught
