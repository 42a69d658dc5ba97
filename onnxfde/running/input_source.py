"""Where a model's inputs come from: data that the user gave, or a range."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from onnxfde.graph.input_specs import input_specs
from onnxfde.graph.model import Graph
from onnxfde.numbers import FloatArray
from onnxfde.options import DEFAULT_RANGE, Range
from onnxfde.running.samples import Samples, random_samples

MEASURED_ROWS = 4096
"""Random inputs that layers are measured on: enough for the covariance of some hundred inputs."""
VERIFIED_ROWS = 1024
"""Random inputs that a result is compared on, others than those it was measured on."""
DATA_ROWS = 16_384
"""Rows of the data that layers are measured on, spread evenly over all of it: several times the
width of the layers seen so far; more would take longer and tell little more."""


@dataclass(frozen=True, eq=False)
class InputSource:
    """Where a model's inputs come from."""

    limits: Range = DEFAULT_RANGE
    data: Samples | None = None
    box_given: bool = False
    """Whether the range is what a certificate is about although there is data."""

    def measuring_samples(self, graph: Graph) -> Samples:
        """What to run a network on to see the values inside it."""
        if self.data is not None:
            return self.data.some(DATA_ROWS)
        return random_samples(input_specs(graph), self.limits, MEASURED_ROWS)

    def verification_samples(self, graph: Graph) -> Samples:
        """What to compare models on: the data, or random inputs not used for measuring."""
        if self.data is not None:
            return self.data
        return random_samples(input_specs(graph), self.limits, VERIFIED_ROWS, seed=1)

    def box(self, graph: Graph) -> dict[str, tuple[FloatArray | float, FloatArray | float]]:
        """The range of every input: that of the data, element by element, or the common one."""
        if self.data is None or self.box_given:
            return {value.name: self.limits for value in graph.inputs}
        arrays = self.data.arrays
        row_by_row = {s.name: arrays[s.name].ndim > len(s.dims) for s in self.data.specs}
        return {
            name: (
                arrays[name].min(axis=0, keepdims=not single).astype(np.float64),
                arrays[name].max(axis=0, keepdims=not single).astype(np.float64),
            )
            for name, single in row_by_row.items()
        }
