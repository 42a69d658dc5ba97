"""Evidence of what a layer should do: its real inputs x, with the original network's outputs y.

    error(o′)     ‖o′(x) − y‖ / ‖y − mean y‖
    expected      max(error on all samples, (1 + 1/√h)·error on the h samples held out)

The samples to choose by (`row_split`) are held out; neurons are fitted to the others.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from onnxfde.estimates import Estimate, RowChanges, relative_error
from onnxfde.neurons.activation import Activation
from onnxfde.neurons.kernels import Metric
from onnxfde.neurons.layer import Layer
from onnxfde.neurons.objective import Observed, ObservedView
from onnxfde.numbers import FloatArray
from onnxfde.row_split import CHOSEN, Mask, split_rows

FEWEST_ROWS = 100
"""Fewer rows are not used: less than ten would be held out to choose by. Chosen; not tuned."""
BATCH_WORK = 2e8
"""Rows times unknowns of one evaluation on data, about 0.1 s on one core; where there are more
rows, each share of `free_attempts` uses another part of them. Chosen; not tuned."""
SMALLEST_BATCH = 1000
"""But no part has fewer rows than this, so that it is representative. Chosen; not tuned."""


@dataclass(frozen=True, eq=False)
class Evidence:
    """Inputs of a layer and the outputs it should have there."""

    inputs: FloatArray
    outputs: FloatArray
    rows_per_sample: int = 1
    """How many consecutive rows come from one sample and must stay together."""
    chosen_by: Mask | None = None
    """The samples that are held out; None: those of the usual split."""

    @property
    def enough(self) -> bool:
        """Whether there are enough rows, all finite, with outputs that vary."""
        if len(self.inputs) < FEWEST_ROWS or self.samples < CHOSEN:
            return False
        if not (np.isfinite(self.inputs).all() and np.isfinite(self.outputs).all()):
            return False
        parts = (self.fitted.outputs, self.held_out.outputs)
        return all(len(y) > 0 and RowChanges.between(y, y).varies for y in parts)

    @property
    def samples(self) -> int:
        """How many samples the rows come from."""
        return len(self.inputs) // self.rows_per_sample

    @cached_property
    def _held(self) -> Mask:
        mask = self.chosen_by
        if mask is None or len(mask) != self.samples:
            mask = split_rows(self.samples).choose
        return np.repeat(mask, self.rows_per_sample)

    @cached_property
    def fitted(self) -> Evidence:
        """The samples to fit to."""
        return Evidence(self.inputs[~self._held], self.outputs[~self._held], self.rows_per_sample)

    @cached_property
    def held_out(self) -> Evidence:
        """The samples to choose by."""
        return Evidence(self.inputs[self._held], self.outputs[self._held], self.rows_per_sample)

    def error(self, layer: Layer) -> float:
        """The relative change of the outputs."""
        return RowChanges.between(self.outputs, layer(self.inputs)).value

    def estimate(self, layer: Layer) -> Estimate:
        """The same, and how far it can be trusted."""
        return relative_error(self.outputs, layer(self.inputs), self.rows_per_sample)

    def expected_errors(self, layer: Layer) -> tuple[float, float]:
        """The errors to expect on new inputs of a layer that was chosen by this evidence.

        By all samples, and by those held out; the larger one counts.
        """
        margin = 1 + 1 / np.sqrt(self.held_out.samples)
        return self.error(layer), float(margin * self.held_out.error(layer))

    def batch(self, number: int, width: int, work: float = BATCH_WORK) -> Evidence:
        """Part `number` of the rows, or all if `width` unknowns times all rows are not too much."""
        count = -(-len(self.inputs) // self.batch_size(width, work))
        order = np.random.default_rng(1).permutation(len(self.inputs)) % count
        pick = order == number % count
        return Evidence(self.inputs[pick], self.outputs[pick]) if count > 1 else self

    def batch_size(self, width: int, work: float = BATCH_WORK) -> int:
        """The most rows of a part, with so many unknowns."""
        return min(max(int(work / width), SMALLEST_BATCH), len(self.inputs))

    def some(self, most: int) -> Evidence:
        """At most so many of the rows."""
        step = -(-len(self.inputs) // max(most, 1))
        if step <= 1:
            return self
        return Evidence(self.inputs[::step], self.outputs[::step])

    def hidden_view(self, layer: Layer) -> ObservedView:
        """The rows seen through the neurons of a layer."""
        inputs = np.column_stack([self.inputs, np.ones(len(self.inputs))])
        rows = np.column_stack([layer.incoming, *layer.unit_parameters])
        return Observed.of(inputs, self.outputs, layer.activation).at(rows)

    def observed(self, metric: Metric, activation: Activation) -> Observed:
        """The rows as a target for neurons in whitened coordinates."""
        return Observed.of(metric.standardise(self.inputs), self.outputs, activation)

    def centred(self, layer: Layer) -> Layer:
        """The layer with the offset that leaves no mean error."""
        hidden = replace(layer, offset=np.zeros(layer.outputs))
        return replace(layer, offset=(self.outputs - hidden(self.inputs)).mean(axis=0))
