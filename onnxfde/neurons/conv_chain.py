"""Operations on maps one after the other: y = f_k(… f_1(x)).

dL/dx_i = J_iᵀ dL/dx_{i+1}             from the last operation back to the first that may change
region of y → regions of x_k, …, x_1    each operation says which part it reads
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from onnxfde.neurons.map_operations import Operation
from onnxfde.neurons.map_windows import MapRegion, Size
from onnxfde.numbers import Array

Numbered = Mapping[tuple[int, str], Array]
"""Arrays of a chain by the place of the operation and the name of its field."""


@dataclass(frozen=True, eq=False)
class ConvChain:
    """Operations, each reading what the one before makes."""

    operations: tuple[Operation, ...]

    def __call__(self, x: Array) -> Array:
        """The result for maps."""
        for operation in self.operations:
            x, _ = operation.forward(x)
        return x

    def sizes(self, size: Size) -> list[Size]:
        """Of what the first operation reads, and of what each makes."""
        found = [size]
        for operation in self.operations:
            found.append(operation.size(found[-1]))
        return found

    def cropped(self, region: MapRegion, size: Size) -> tuple[ConvChain, MapRegion]:
        """The chain that makes a region of the result, and the region of maps that it reads."""
        found: list[Operation] = []
        for operation, before in zip(self.operations[::-1], self.sizes(size)[-2::-1], strict=True):
            made, region = operation.cropped(region, before)
            found.insert(0, made)
        return ConvChain(tuple(found)), region

    def forward(self, x: Array) -> tuple[Array, list[Any]]:
        """The result, and a tape for each operation."""
        tapes = []
        for operation in self.operations:
            x, tape = operation.forward(x)
            tapes.append(tape)
        return x, tapes

    def gradients(
        self, tapes: Sequence[Any], dy: Array, free: Collection[int] | None = None
    ) -> Numbered:
        """Of the parameters of all operations, or of some."""
        places = range(len(self.operations)) if free is None else free
        found: dict[tuple[int, str], Array] = {}
        for place in range(len(self.operations) - 1, min(places) - 1, -1):
            operation, tape = self.operations[place], tapes[place]
            if place in places:
                slopes = operation.gradients(tape, dy)
                found |= {(place, name): slope for name, slope in slopes.items()}
            if place > min(places):
                dy = operation.backward(tape, dy)
        return found

    @property
    def parameters(self) -> Numbered:
        """Those of all operations."""
        return {
            (place, name): array
            for place, operation in enumerate(self.operations)
            for name, array in operation.parameters.items()
        }

    def replaced(self, parameters: Numbered) -> ConvChain:
        """With other parameters; those that are not given stay."""
        found = list(self.operations)
        for (place, name), array in parameters.items():
            found[place] = replace(found[place], **{name: array})  # type: ignore[type-var]
        return ConvChain(tuple(found))
