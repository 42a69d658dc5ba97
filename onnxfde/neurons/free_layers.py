"""What all attempts at freely chosen neurons of one layer share: the objective, and the way back.

    U′ in whitened coordinates  →  balanced, rounded as stored  →  V′ fitted to that  →  error

If 8 bits are to follow, the ridge of the objective is the error that they bring
(`rounding_noise`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from onnxfde.neurons.frontier import Reduced
from onnxfde.neurons.held_out import BATCH_WORK, Evidence
from onnxfde.neurons.layer import Layer
from onnxfde.neurons.objective import Fit, Forms, Neurons, Objective, Observed, Target, summed
from onnxfde.neurons.problem import Problem
from onnxfde.neurons.rounding_noise import rounding_noise
from onnxfde.neurons.unit_kernels import layer_of_rows, whitened_rows

RIDGES = {"float64": 1e-14, "float32": 1e-12, "float16": 1e-7, "bfloat16": 1e-5}
"""The ridge by stored type. Those of float32 and float16 worked in prototypes; the other two are
chosen by the digits of their types, not tuned."""
OTHER_RIDGE = 1e-6
"""The ridge of other activations than squares, as a share of Var h. It worked in prototypes."""
WIDE_RIDGE = 1e-4
"""The same in `WIDE` layers. It worked in prototypes."""
WIDE = 500
"""Neurons above which a layer is wide. Taken from prototypes; not tuned."""
WIDE_SHARE = 0.1
"""The weight of the Gaussian target beside the data at the beginning, in wide layers; in others it
is 1. Measured on 768-3072-768, 1,536 neurons left: three steps lower the error on test rows by 7 %
with 0.1 and by 6 % with 1, ten by 11 % and 13 %."""
LARGE_BATCH_WORK = 1e10
"""Rows times unknowns of one evaluation on data for other activations than squares, whose descents
see the same rows all the time. Measured on LeNet-300-100 with 4,000 rows: all of them in place of
1,000 lower the error on test rows by 4 to 8 %."""
LARGEST_BATCH = 6000
"""But no more rows than this, because the activation itself takes time. Chosen; not tuned."""
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
STEP_PRODUCTS = 6
"""Matrix products that one evaluation with its gradient takes. An estimate; not measured."""


@dataclass(frozen=True, eq=False)
class FreeLayers:
    """Makes layers from freely chosen neurons of one problem."""

    problem: Problem

    def built(self, fit: Fit, objective: Objective, evidence: Evidence | None) -> Reduced:
        """The layer of these neurons as it will be stored, V′ fitted to the rounded U′."""
        problem, live, metric = self.problem, self.problem.live, self.problem.metric
        start = layer_of_rows(fit.rows, fit.outgoing, live, metric)
        even = problem.evened(start, exact=False)
        rounded = replace(start, incoming=problem.read_back(even).incoming)
        if not np.isfinite(rounded.incoming).all():
            return Reduced(rounded, (), np.inf)
        outgoing = objective.fit(whitened_rows(rounded, metric)).outgoing
        return self.centred(replace(rounded, outgoing=outgoing), evidence)

    def centred(self, fitted: Layer, evidence: Evidence | None) -> Reduced:
        """A layer with the offset that leaves no mean error, as it will be stored."""
        problem, live, kernel = self.problem, self.problem.live, self.problem.kernel
        if evidence is None:
            rows = whitened_rows(fitted, problem.metric)
            before, after = kernel.means(problem.rows), kernel.means(rows)
            means = live.outgoing @ before - fitted.outgoing @ after
            fitted = replace(fitted, offset=live.offset + means)
        else:
            fitted = evidence.centred(fitted)
        return problem.reduced(problem.read_back(fitted), ())

    @cached_property
    def gaussian(self) -> Target:
        """The layer under Gaussian inputs, as quadratic forms or as neurons."""
        live, rows = self.problem.live, self.problem.rows
        if not self.problem.squares:
            return self.problem.expanded.target
        width = live.inputs + 1
        size = live.outputs * width**2
        cheaper = size <= live.neurons * (width + live.outputs)
        if cheaper or (width <= MOST_WIDTH and size <= MOST_FORMS):
            return Forms(summed(rows, live.outgoing))
        return Neurons(rows, live.outgoing)

    @cached_property
    def objective(self) -> Objective:
        """What descents begin with: the Gaussian target alone, or a share of it beside the data."""
        evidence = self.problem.evidence
        seen: tuple[tuple[Target, float], ...] = ()
        data = 1 / (1 + self.first_share)
        if self.fitted_to is not None and evidence is not None:
            observed = self.observed(evidence, 0, self.problem.live.incoming.size)
            seen = ((observed, data),) if observed.total else ()
        return self.objective_with(seen, 1 - data if seen else 1.0)

    @property
    def first_share(self) -> float:
        """The weight of the Gaussian target beside the data at the beginning of descents."""
        return WIDE_SHARE if self._wide else 1.0

    @property
    def _wide(self) -> bool:
        return self.problem.live.neurons > WIDE

    @cached_property
    def fitted_to(self) -> Evidence | None:
        """The rows that descents see from the beginning: none for squares, which begin without."""
        evidence = self.problem.evidence
        return None if evidence is None or self.problem.squares else evidence.fitted

    def observed(self, evidence: Evidence, number: int, width: int) -> Observed:
        """Part `number` of the rows that neurons are fitted to, as a target."""
        batch = evidence.fitted.batch(number, width, self._batch_work(width))
        if batch is not evidence.fitted:
            return self._as_target(batch)
        if not self._observed:
            self._observed.append(self._as_target(batch))
        return self._observed[0]

    def _as_target(self, batch: Evidence) -> Observed:
        found = batch.observed(self.problem.metric, self.problem.layer.activation)
        return found.single() if self._wide and not self.problem.squares else found

    def _batch_work(self, width: int) -> float:
        """Rows times unknowns of one evaluation on data."""
        if self.fitted_to is None:
            return BATCH_WORK
        return min(LARGE_BATCH_WORK, LARGEST_BATCH * width)

    @cached_property
    def _observed(self) -> list[Observed]:
        """All rows, if they were asked for."""
        return []

    def objective_with(
        self, targets: tuple[tuple[Target, float], ...], share: float = 1.0
    ) -> Objective:
        """Some targets, and the Gaussian one with a share."""
        return Objective((*targets, (self.gaussian, share)), self.ridge, self.problem.kernel)

    def step_work(self, count: int) -> float:
        """Multiplications of one evaluation at this count, with its gradient."""
        live = self.problem.live
        rows = 0
        if self.fitted_to is not None:
            width = live.incoming.size
            rows = self.fitted_to.batch_size(width, self._batch_work(width))
        read = self.problem.rows.shape[1] - 1 if self.fitted_to is not None else live.inputs
        return STEP_PRODUCTS * count * (live.neurons + rows) * (read + live.outputs)

    def is_small(self, count: int) -> bool:
        """Whether U′ has few enough unknowns for Levenberg–Marquardt."""
        small = count * (self.problem.live.inputs + 1) <= MOST_UNKNOWNS
        return small and self.problem.kernel.curved

    @cached_property
    def ridge(self) -> float:
        """What the stored type needs, or the variance that rounding to 8 bits brings."""
        least = RIDGES[self.problem.dtype.name]
        if not self.problem.squares:
            least = max(least, WIDE_RIDGE if self._wide else OTHER_RIDGE)
        if not self.problem.int8:
            return least
        return min(rounding_noise(self.problem.live, self.problem.samples), MOST_RIDGE)
