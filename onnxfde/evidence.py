"""What a layer should do, seen on real inputs: rows x with the original network's outputs y.

    error(o′) = ‖o′(x) − y‖ / ‖y − mean y‖

Every tenth row is held out: neurons are fitted to the others and judged by these.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from onnxfde.metric import Metric
from onnxfde.objective import Observed
from onnxfde.polynomial import FloatArray, Layer

HELD_OUT = 10
FEWEST_ROWS = 100
BATCH_WORK = 2e8
SMALLEST_BATCH = 1000


@dataclass(frozen=True, eq=False)
class Evidence:
    """Inputs of a layer and the outputs it should have there."""

    inputs: FloatArray
    outputs: FloatArray

    @property
    def enough(self) -> bool:
        """Whether there is anything to learn from it."""
        varies = len(self.outputs) and np.any(self.fitted.outputs != self.fitted.outputs[0])
        finite = np.isfinite(self.inputs).all() and np.isfinite(self.outputs).all()
        return bool(len(self.inputs) >= FEWEST_ROWS and varies and finite)

    @cached_property
    def fitted(self) -> Evidence:
        """Nine tenths of the rows."""
        kept = np.arange(len(self.inputs)) % HELD_OUT != 0
        return Evidence(self.inputs[kept], self.outputs[kept])

    @cached_property
    def held_out(self) -> Evidence:
        """The other tenth."""
        return Evidence(self.inputs[::HELD_OUT], self.outputs[::HELD_OUT])

    def error(self, layer: Layer) -> float:
        """The relative change of the outputs; 0 if both are constant and equal."""
        with np.errstate(over="ignore", invalid="ignore"):
            change = float(np.linalg.norm(layer(self.inputs) - self.outputs))
        spread = float(np.linalg.norm(self.outputs - self.outputs.mean(axis=0)))
        return change / spread if spread > 0 else change

    def batch(self, number: int, width: int) -> Evidence:
        """The rows of one step, all of them unless `width` numbers for each are too much work."""
        most = max(int(BATCH_WORK / width), SMALLEST_BATCH)
        count = -(-len(self.inputs) // most)
        pick = slice(number % count, None, count)
        return Evidence(self.inputs[pick], self.outputs[pick])

    def observed(self, metric: Metric) -> Observed:
        """The rows as a target of neurons in whitened coordinates."""
        return Observed.of(metric.standardise(self.inputs), self.outputs)

    def offset(self, incoming: FloatArray, outgoing: FloatArray) -> FloatArray:
        """The c′ that leaves no mean error."""
        hidden = Layer(incoming, outgoing, np.zeros(len(outgoing)))
        return np.asarray((self.outputs - hidden(self.inputs)).mean(axis=0))
