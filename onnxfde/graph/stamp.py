"""The metadata that onnxfde writes into a model, by which it recognises its own results.

onnxfde.version, onnxfde.settings (JSON), onnxfde.weights (a hash of them)
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from onnxfde.graph.external_data import locate, parts_read
from onnxfde.graph.model import Graph
from onnxfde.graph.protos import ModelProto, TensorProto
from onnxfde.graph.tensors import FLOATS, keyed_tensors, to_array

PREFIX = "onnxfde."
WEIGHTS = (*FLOATS, TensorProto.UINT8, TensorProto.INT8)


def stamp(graph: Graph, version: str, settings: dict[str, Any]) -> None:
    """Record version, settings and the weights as they are now."""
    model = graph.model
    values = {"version": version, "settings": as_text(settings), "weights": weights_hash(graph)}
    for entry in [e for e in model.metadata_props if e.key.startswith(PREFIX)]:
        model.metadata_props.remove(entry)
    for key, value in values.items():
        model.metadata_props.add(key=PREFIX + key, value=value)


def stamp_bytes(version: str, settings: dict[str, Any]) -> int:
    """How many bytes a stamp adds to a model."""
    blank = Graph(ModelProto())
    stamp(blank, version, settings)
    return blank.model.ByteSize()


def is_own_work(graph: Graph, version: str, settings: dict[str, Any]) -> bool:
    """Whether this version made the model with these settings, and its weights are untouched."""
    found = {entry.key: entry.value for entry in graph.model.metadata_props}
    if found.get(f"{PREFIX}version") != version:
        return False
    if found.get(f"{PREFIX}settings") != as_text(settings):
        return False
    return found.get(f"{PREFIX}weights") == weights_hash(graph)


def as_text(settings: dict[str, Any]) -> str:
    """Settings in one fixed form."""
    return json.dumps(settings, sort_keys=True, ensure_ascii=False)


def bytes_of(tensor: TensorProto, folder: Path | None) -> Iterator[bytes]:
    """The values of a weight as bytes; external ones, which are stored so, in parts."""
    if tensor.data_location == TensorProto.EXTERNAL and sys.byteorder == "little":
        return parts_read(locate(tensor, folder or Path()))
    return iter((to_array(tensor, folder).tobytes(),))


def weights_hash(graph: Graph) -> str:
    """A hash of every tensor that may be a weight."""
    digest = hashlib.sha256()
    for key, tensor in keyed_tensors(graph.model):
        if tensor.data_type in WEIGHTS:
            digest.update(f"{key} {list(tensor.dims)}".encode())
            for part in bytes_of(tensor, graph.folder):
                digest.update(part)
    return digest.hexdigest()
