"""How large a model is: parameters and bytes."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from onnxfde.graph.external_data import locate
from onnxfde.graph.model import Graph
from onnxfde.graph.protos import ModelProto
from onnxfde.graph.tensors import FLOATS, external_tensors, keyed_tensors, to_array


def count_parameters(model: ModelProto, original: ModelProto | None = None) -> int:
    """The number of weights of a model: floats that are not scalars.

    Zeros do not count in tensors that `original` does not have in exactly this form.
    """
    known = dict(keyed_tensors(original)) if original else None
    total = 0
    for key, tensor in keyed_tensors(model):
        if tensor.data_type not in FLOATS or not tensor.dims:
            continue
        if known is None or known.get(key) == tensor:
            total += math.prod(tensor.dims)
        else:
            total += int(np.count_nonzero(to_array(tensor, None)))
    return total


def stored_bytes(graph: Graph) -> int:
    """Bytes of a model with its external weights."""
    outside = (locate(t, graph.folder or Path()).length for t in external_tensors(graph.model))
    return int(graph.model.ByteSize()) + sum(outside)
