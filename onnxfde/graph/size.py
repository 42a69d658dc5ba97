"""How large a model is: parameters and bytes."""

from __future__ import annotations

import math
from pathlib import Path

from onnxfde.graph.external_data import locate
from onnxfde.graph.large_files import file_bytes
from onnxfde.graph.model import Graph
from onnxfde.graph.protos import ModelProto
from onnxfde.graph.tensors import FLOATS, keyed_tensors, outside_tensors


def count_parameters(model: ModelProto) -> int:
    """The number of weights of a model: floats that are not scalars."""
    tensors = (tensor for _, tensor in keyed_tensors(model))
    return sum(math.prod(t.dims) for t in tensors if t.data_type in FLOATS and t.dims)


def stored_bytes(graph: Graph) -> int:
    """Bytes of a model with its external weights."""
    folder = graph.folder or Path()
    outside = (locate(tensor, folder).length for tensor in outside_tensors(graph.model))
    return file_bytes(graph.model, folder) + sum(outside)
