"""Where a model's inputs come from: the user's data, or random numbers in a range."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from onnxfde.graph.input_specs import input_specs
from onnxfde.graph.model import Graph
from onnxfde.numbers import FloatArray
from onnxfde.options import DEFAULT_RANGE, Range
from onnxfde.running.samples import Samples, random_samples

MEASURED_ROWS = 4096
"""Random inputs on which layers are measured. Chosen: enough for the covariance of a few hundred
inputs; not tuned."""
VERIFIED_ROWS = 1024
"""Random inputs on which a result is compared with the original. Chosen; not tuned."""
DATA_ROWS = 16_384
"""Most rows of the data on which layers are measured, evenly spread over the data. Chosen: several
times the inputs of the layers seen so far; not tuned."""


@dataclass(frozen=True, eq=False)
class InputSource:
    """Data, or a range for random inputs."""

    limits: Range = DEFAULT_RANGE
    data: Samples | None = None
    box_given: bool = False
    """Whether the user gave the range, so that the certificate covers it even if there is data."""

    def measuring_samples(self, graph: Graph) -> Samples:
        """The inputs on which the values inside a network are measured."""
        if self.data is not None:
            return self.data.some(DATA_ROWS)
        return random_samples(input_specs(graph), self.limits, MEASURED_ROWS)

    def verification_samples(self, graph: Graph) -> Samples:
        """The inputs on which models are compared: the data, or random inputs not measured on."""
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
                arrays[name].min(axis=0, keepdims=not without_batch).astype(np.float64),
                arrays[name].max(axis=0, keepdims=not without_batch).astype(np.float64),
            )
            for name, without_batch in row_by_row.items()
        }
