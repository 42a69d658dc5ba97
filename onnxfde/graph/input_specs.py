"""The inputs that a caller must give: name, dtype and shape."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from onnxfde.errors import DataError
from onnxfde.graph.model import Graph
from onnxfde.graph.protos import ValueInfoProto
from onnxfde.graph.shapes import Dims, dims
from onnxfde.graph.tensors import numpy_dtype


@dataclass(frozen=True)
class InputSpec:
    """Name, dtype and shape of one input of a model."""

    name: str
    dtype: np.dtype[Any]
    dims: Dims

    def __str__(self) -> str:
        """As a user reads it: name and type."""
        return f"{self.name} ({self.dtype.name} {'×'.join(str(d or '?') for d in self.dims)})"

    @property
    def is_static(self) -> bool:
        """Whether every axis has a length."""
        return all(isinstance(d, int) for d in self.dims)

    @property
    def fixed_batch(self) -> int | None:
        """The length of the leading axis, if the model fixes it."""
        lead = self.dims[0] if self.dims else None
        return lead if isinstance(lead, int) else None

    def takes(self, shape: tuple[int, ...]) -> bool:
        """Whether an array of this shape, one row per sample, can be fed: in batches, or by row."""
        whole = len(shape) == len(self.dims) and matches(shape[1:], self.dims[1:])
        by_row = len(shape) == len(self.dims) + 1 and matches(shape[1:], self.dims)
        return bool(shape) and (whole or by_row)


def matches(shape: tuple[int, ...], wanted: Dims) -> bool:
    """Whether a shape is what a model asks for."""
    return len(shape) == len(wanted) and all(
        a == b for a, b in zip(shape, wanted, strict=True) if isinstance(b, int)
    )


def input_specs(graph: Graph) -> tuple[InputSpec, ...]:
    """The inputs that a caller must give; tensors only."""
    found = []
    for value in graph.inputs:
        if not value.type.HasField("tensor_type"):
            raise DataError(f"input '{value.name}' is not a tensor")
        found.append(InputSpec(value.name, dtype_of(value), dims(value)))
    return tuple(found)


def dtype_of(value: ValueInfoProto) -> np.dtype[Any]:
    """The dtype of a tensor; DataError if it does not hold real numbers."""
    dtype = numpy_dtype(value.type.tensor_type.elem_type, value.name)
    if dtype.kind in "OUSc":
        held = "complex numbers, not real ones" if dtype.kind == "c" else "texts, not numbers"
        raise DataError(f"input '{value.name}' holds {held}")
    return dtype
