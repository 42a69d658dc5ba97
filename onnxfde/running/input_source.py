"""Where a model's inputs come from: the user's data, or random numbers in a range."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from onnxfde.errors import DataError
from onnxfde.graph.input_specs import input_specs
from onnxfde.graph.model import Graph
from onnxfde.graph.shapes import Dims
from onnxfde.numbers import Array, FloatArray
from onnxfde.options import DEFAULT_RANGE, Range
from onnxfde.running.dead_leaves import dead_leaves_samples, image_fault
from onnxfde.running.random_inputs import random_samples
from onnxfde.running.run_clock import RunClock
from onnxfde.running.run_size import run_size, sized_to_compare, with_little_work
from onnxfde.running.samples import Samples

MEASURED_ROWS = 4096
"""Random inputs on which layers are measured. Chosen: enough for the covariance of a few hundred
inputs; not tuned."""
VERIFIED_ROWS = 1024
"""Random inputs on which a result is compared with the original. Chosen; not tuned."""
DATA_ROWS = 16_384
"""Most rows of the data on which layers are measured, evenly spread over the data. Chosen: several
times the inputs of the layers seen so far; not tuned."""

MADE_IMAGES = 500
"""Made-up images that a network is fitted to. Chosen: as many real ones are enough; not tuned."""
COMPARED_IMAGES = 200
"""Other ones, on which a result is compared with the original. Chosen; not tuned."""
MADE_WORK = 5e10
"""Multiply-adds that one run on all made-up images may take: networks that take more for an image
get fewer of them. Chosen; not tuned."""
FEWEST_MADE = 50
"""But not fewer than this. Chosen; not tuned."""


@dataclass(frozen=True, eq=False)
class InputSource:
    """Data, or a range for random inputs or for made-up images."""

    limits: Range = DEFAULT_RANGE
    data: Samples | None = None
    """The data that layers are fitted to and chosen by (`row_split`)."""
    verdict: Samples | None = None
    """Data that is neither, on which the result is measured; only its range counts before that, for
    the certificate."""
    box_given: bool = False
    """Whether the user gave the range, so that the certificate covers it even if there is data."""
    clock: RunClock = field(default_factory=RunClock)
    """How long models may run on these inputs."""
    images: bool = False
    """Whether inputs are made-up images (`dead_leaves`), because there is no data."""
    made: dict[int, Samples] = field(default_factory=dict)
    """Those that were made, by their seed."""

    def measuring_samples(self, graph: Graph) -> Samples:
        """The inputs on which the values inside a network are measured."""
        if self.data is not None:
            return self.data.some(DATA_ROWS)
        if self.images:
            return self.made_images(graph, MADE_IMAGES, seed=0)
        return with_little_work(
            random_samples(input_specs(graph), self.limits, MEASURED_ROWS), graph
        )

    def made_images(self, graph: Graph, rows: int, seed: int) -> Samples:
        """So many made-up images or, for a large network, fewer; each seed gives others."""
        if seed not in self.made:
            specs = input_specs(graph)
            one = dead_leaves_samples(specs, self.limits, {}, 1)
            work = run_size(graph, one.run_shapes(1)).work
            rows = min(rows, max(int(MADE_WORK / max(work, 1.0)), FEWEST_MADE))
            self.made[seed] = dead_leaves_samples(specs, self.limits, {}, rows, 1000 * seed)
        return self.made[seed]

    def shapes_of_one(self, graph: Graph) -> Mapping[str, Dims]:
        """The shapes of inputs for one sample, where these are data or made-up images."""
        if self.data is not None:
            return self.data.run_shapes(1)
        if self.images:
            return dead_leaves_samples(input_specs(graph), self.limits, {}, 1).run_shapes(1)
        return {}

    def with_images(self, graph: Graph) -> InputSource:
        """The same with made-up images in place of random numbers; DataError if that cannot be."""
        if fault := image_fault(input_specs(graph)):
            raise DataError(fault)
        return replace(self, images=True)

    def parted(self, for_loss: bool = False) -> InputSource:
        """The same data with a part kept for the verdict, if there is enough of it.

        Where a loss of the whole model is aimed at, a part to choose by is spared too.
        """
        parts = self.data.parted(for_loss) if self.data is not None else None
        return self if parts is None else replace(self, data=parts[0], verdict=parts[1])

    @property
    def wider(self) -> InputSource | None:
        """Random inputs around 0 that reach as far, if those of this range lie elsewhere.

        Real inputs between LO and HI are seldom uniform: many lie near 0, and then neurons behave
        as they do for inputs around 0.
        """
        reach = max(map(abs, self.limits))
        if self.data is not None or self.images or self.limits == (-reach, reach):
            return None
        return InputSource((-reach, reach), clock=self.clock)

    @property
    def assumption(self) -> str | None:
        """What is assumed about the inputs, if there is no data."""
        if self.data is not None:
            return None
        low, high = self.limits
        if self.images:
            return (
                f"inputs look like made-up images (dead leaves) with values in [{low:g}, {high:g}]"
            )
        text = f"inputs are independent and uniform in [{low:g}, {high:g}]"
        if self.wider is None:
            return text
        low, high = self.wider.limits
        return f"{text} or, where that gives a larger error, in [{low:g}, {high:g}]"

    def verification_samples(self, graph: Graph) -> Samples:
        """The inputs on which models are compared: data kept for it, or random inputs."""
        if self.data is not None:
            return sized_to_compare(self.verdict or self.data, graph)
        if self.images:
            return sized_to_compare(self.made_images(graph, COMPARED_IMAGES, seed=1), graph)
        samples = random_samples(input_specs(graph), self.limits, VERIFIED_ROWS, seed=1)
        return sized_to_compare(with_little_work(samples, graph), graph)

    def box(self, graph: Graph) -> dict[str, tuple[FloatArray | float, FloatArray | float]]:
        """The range of every input: that of the data, element by element, or the common one."""
        if self.data is None or self.box_given:
            return {value.name: self.limits for value in graph.inputs}
        found: dict[str, tuple[FloatArray | float, FloatArray | float]] = {}
        for spec in self.data.specs:
            low, high = self.limits_of(spec.name)
            keep = self.data.arrays[spec.name].ndim == len(spec.dims)
            place = (None, ...) if keep else ...
            found[spec.name] = low[place].astype(np.float64), high[place].astype(np.float64)
        return found

    @property
    def all_within_box(self) -> bool:
        """Whether the user gave the range of the inputs, and no row of the data is outside."""
        if not self.box_given or self.data is None:
            return self.box_given
        found = (self.limits_of(spec.name) for spec in self.data.specs)
        least, most = self.limits
        return all(low.min() >= least and high.max() <= most for low, high in found)

    def limits_of(self, name: str) -> tuple[Array, Array]:
        """The smallest and largest value of each element of an input in all rows of the data."""
        if self.data is not None and self.data.limits is not None:
            return self.data.limits[name]
        given = [part for part in (self.data, self.verdict) if part]
        parts = [part.as_fed(name, part.arrays[name]) for part in given]
        low = np.min([part.min(axis=0) for part in parts], axis=0)
        return low, np.max([part.max(axis=0) for part in parts], axis=0)
